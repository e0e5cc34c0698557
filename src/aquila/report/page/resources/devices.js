const SILENT = 0;
const ABSENT = 255;
const MARGIN = { left: 40, bottom: 36, top: 18, gap: 14, bars: 0.2 };

/** The map of levels of one run, devices down, rounds across, and each device's bytes beside it. */
class LevelMap {
  constructor() {
    this.canvas = byId('level-map');
    this.choice = byId('device-run');
    this.cell = [0, 0];
    this.choice.addEventListener('change', () => this.draw());
    this.canvas.addEventListener('pointermove', (event) => this.point(event));
    this.canvas.addEventListener('keydown', (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.canvas.parentElement);
  }

  get run() {
    return page.runs[this.choice.value];
  }

  draw() {
    const { run, canvas } = this;
    const width = canvas.parentElement.clientWidth;
    const height = Math.max(180, Math.min(480, run.rows * 20)) + MARGIN.top + MARGIN.bottom;
    const sharp = window.devicePixelRatio || 1;
    canvas.width = width * sharp;
    canvas.height = height * sharp;
    canvas.style.height = `${height}px`;
    const pen = canvas.getContext('2d');
    pen.scale(sharp, sharp);
    const bars = Math.max(64, width * MARGIN.bars);
    this.box = { x: MARGIN.left, y: MARGIN.top, w: width - MARGIN.left - MARGIN.gap - bars,
      h: height - MARGIN.top - MARGIN.bottom };
    this.colours = levelColours(run);
    this.drawCells(pen);
    this.drawBars(pen, this.box.x + this.box.w + MARGIN.gap, bars - 2);
    this.drawAxes(pen);
    this.tell();
    scale(this.colours, run.silence);
    const rows = run.rows < run.devices ? `the first ${run.rows} of ${run.devices}` : run.devices;
    const every = run.every > 1 ? `, every ${run.every}th shown` : '';
    canvas.setAttribute('aria-label',
      `Levels of ${run.label}: ${rows} devices by rounds${every}; uplink of each device beside it`);
    byId('map-note').textContent = run.rows < run.devices || every
      ? `Shown: ${rows} devices, rounds${every || ' all'}.` : '';
  }

  drawCells(pen) {
    const { run, box } = this;
    const small = new OffscreenCanvas(run.cells, run.rows);
    const image = new ImageData(run.cells, run.rows);
    run.map.forEach((level, n) => image.data.set(this.colours.get(level), 4 * n));
    small.getContext('2d').putImageData(image, 0, 0);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(small, box.x, box.y, box.w, box.h);
  }

  drawBars(pen, left, width) {
    const { run, box } = this;
    const most = Math.max(...run.deviceBytes) || 1;
    const each = box.h / run.rows;
    pen.fillStyle = css(`--${run.colour}`);
    run.deviceBytes.forEach((bytes, n) =>
      pen.fillRect(left, box.y + n * each, (width * bytes) / most, Math.max(each * 0.85, 0.5)));
    pen.fillStyle = css('--muted');
    pen.font = '12px system-ui, sans-serif';
    pen.fillText(`to ${short(most / MIB, 3)} MiB`, left, 12);
  }

  drawAxes(pen) {
    const { run, box } = this;
    pen.fillStyle = css('--muted');
    pen.font = '12px system-ui, sans-serif';
    pen.textAlign = 'right';
    pen.textBaseline = 'middle';
    for (const n of ticks(0, run.rows - 1 || 1, false, Math.min(run.rows, box.h / 20))) {
      if (Number.isInteger(n) && n < run.rows) {
        pen.fillText(n, box.x - 6, box.y + ((n + 0.5) * box.h) / run.rows);
      }
    }
    pen.textAlign = 'center';
    const rounds = run.cells * run.every;
    for (const n of ticks(0, Math.max(rounds - 1, 1), false, box.w / 90)) {
      if (Number.isInteger(n)) pen.fillText(n, box.x + ((n + 0.5) * box.w) / rounds, box.y + box.h + 12);
    }
    pen.textAlign = 'left';
    pen.fillText('device', 0, 8);
    pen.textAlign = 'right';
    pen.fillText('round', box.x + box.w, box.y + box.h + 28);
  }

  point(event) {
    const { run, box } = this;
    const at = this.canvas.getBoundingClientRect();
    const device = Math.floor(((event.clientY - at.top - box.y) / box.h) * run.rows);
    const cell = Math.floor(((event.clientX - at.left - box.x) / box.w) * run.cells);
    if (device >= 0 && device < run.rows && cell >= 0) this.tell([device, cell]);
  }

  key(event) {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    this.tell([this.cell[0] + step[0], this.cell[1] + step[1]]);
  }

  tell(cell) {
    const { run } = this;
    if (cell) {
      this.cell = [Math.min(Math.max(cell[0], 0), run.rows - 1), Math.min(Math.max(cell[1], 0), run.cells - 1)];
    }
    const [device, at] = this.cell;
    if (!cell || device >= run.rows || at >= run.cells) return;
    const level = run.map[device * run.cells + at];
    const said = { [SILENT]: run.silence, [ABSENT]: 'no reply' }[level] ?? `level ${level}`;
    const sent = short(run.deviceBytes[device] / MIB);
    byId('map-cell').textContent =
      `device ${device}, round ${at * run.every}: ${said} · ${sent} MiB in the whole run`;
  }
}

/** Colours of all values in the map: a ramp for levels, greys for silence. */
function levelColours(run) {
  const values = [...new Set(run.map)].sort((a, b) => a - b);
  const levels = values.filter((v) => v !== SILENT && v !== ABSENT);
  const [low, high] = [levels[0], levels[levels.length - 1]];
  const from = rgb('--ramp-low');
  const to = rgb('--ramp-high');
  const colours = new Map();
  if (values.includes(SILENT)) colours.set(SILENT, [...rgb('--silent'), 255]);
  for (const level of levels) {
    const share = high > low ? (level - low) / (high - low) : 0.6;
    colours.set(level, [...from.map((c, n) => Math.round(c + (to[n] - c) * share)), 255]);
  }
  if (values.includes(ABSENT)) colours.set(ABSENT, [0, 0, 0, 0]);
  return colours;
}

function rgb(name) {
  const [, ...parts] = /^#(..)(..)(..)$/.exec(css(name));
  return parts.map((part) => parseInt(part, 16));
}

/** Says what the colours of the map mean; of many levels, only some are named. */
function scale(colours, silence) {
  const levels = [...colours.keys()].filter((v) => v !== SILENT && v !== ABSENT);
  const every = Math.ceil(levels.length / 8);
  const named = levels.filter((_, n) => n % every === 0 || n === levels.length - 1);
  const entries = named.map((level) => [level, `${level} bit${level > 1 ? 's' : ''}`]);
  if (colours.has(SILENT)) entries.unshift([SILENT, silence]);
  if (colours.has(ABSENT)) entries.push([ABSENT, 'no reply']);
  byId('map-scale').replaceChildren(...entries.map(([value, text]) => {
    const entry = document.createElement('span');
    const patch = document.createElement('i');
    patch.style.background = `rgba(${colours.get(value).join(',')})`;
    entry.append(patch, text);
    return entry;
  }));
}
