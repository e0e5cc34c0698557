const NO_UPLOAD = 0;
const NO_REPLY = 255;
const MARGIN = { left: 40, bottom: 36, top: 18, gap: 14, bars: 0.2 };

/** Level map of one run, devices by rounds, with bars of the bytes per device. */
class LevelMap {
  constructor() {
    this.canvas = byId('level-map');
    this.runSelect = byId('device-run');
    this.cell = [0, 0];
    this.runSelect.addEventListener('change', () => this.draw());
    this.canvas.addEventListener('pointermove', (event) => this.onPointerMove(event));
    this.canvas.addEventListener('keydown', (event) => this.onKeyDown(event));
    new ResizeObserver(() => this.draw()).observe(this.canvas.parentElement);
  }

  get run() {
    return page.runs[this.runSelect.value];
  }

  draw() {
    const { run, canvas } = this;
    const width = canvas.parentElement.clientWidth;
    const height = Math.max(180, Math.min(480, run.map_devices * 20)) + MARGIN.top + MARGIN.bottom;
    const pixelRatio = window.devicePixelRatio || 1;
    canvas.width = width * pixelRatio;
    canvas.height = height * pixelRatio;
    canvas.style.height = `${height}px`;
    const context = canvas.getContext('2d');
    context.scale(pixelRatio, pixelRatio);
    const bars = Math.max(64, width * MARGIN.bars);
    this.box = { x: MARGIN.left, y: MARGIN.top, w: width - MARGIN.left - MARGIN.gap - bars,
      h: height - MARGIN.top - MARGIN.bottom };
    this.colours = levelColours(run);
    this.drawCells(context);
    this.drawBars(context, this.box.x + this.box.w + MARGIN.gap, bars - 2);
    this.drawAxes(context);
    this.describeCell();
    showLegend(this.colours, run.no_upload_label);
    const rows = run.map_devices < run.devices ? `the first ${run.map_devices} of ${run.devices}` : run.devices;
    const every = run.map_round_step > 1 ? `1 of ${run.map_round_step} rounds` : 'all rounds';
    canvas.setAttribute('aria-label',
      `Levels of ${run.label}: ${rows} devices, ${every}; bars: uplink per device`);
    byId('map-note').textContent = run.map_devices < run.devices || run.map_round_step > 1
      ? `Shown: ${rows} devices, ${every}.` : '';
  }

  drawCells(context) {
    const { run, box } = this;
    const small = new OffscreenCanvas(run.map_rounds, run.map_devices);
    const image = new ImageData(run.map_rounds, run.map_devices);
    run.levels.forEach((level, n) => image.data.set(this.colours.get(level), 4 * n));
    small.getContext('2d').putImageData(image, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(small, box.x, box.y, box.w, box.h);
  }

  drawBars(context, left, width) {
    const { run, box } = this;
    const largest = Math.max(...run.deviceBytes) || 1;
    const barHeight = box.h / run.map_devices;
    context.fillStyle = runColour(run);
    run.deviceBytes.forEach((bytes, n) =>
      context.fillRect(left, box.y + n * barHeight, (width * bytes) / largest, Math.max(barHeight * 0.85, 0.5)));
    context.fillStyle = cssVariable('--muted');
    context.font = '12px system-ui, sans-serif';
    context.textAlign = 'right'; // the label may be wider than the bars
    context.fillText(`max ${formatBytes(largest)}`, left + width, 12);
  }

  drawAxes(context) {
    const { run, box } = this;
    context.fillStyle = cssVariable('--muted');
    context.font = '12px system-ui, sans-serif';
    context.textAlign = 'right';
    context.textBaseline = 'middle';
    for (const n of ticks(0, run.map_devices - 1 || 1, false, Math.min(run.map_devices, box.h / 20))) {
      if (Number.isInteger(n) && n < run.map_devices) {
        context.fillText(n, box.x - 6, box.y + ((n + 0.5) * box.h) / run.map_devices);
      }
    }
    context.textAlign = 'center';
    const rounds = run.map_rounds * run.map_round_step;
    for (const n of ticks(0, Math.max(rounds - 1, 1), false, box.w / 90)) {
      if (Number.isInteger(n)) context.fillText(n, box.x + ((n + 0.5) * box.w) / rounds, box.y + box.h + 12);
    }
    context.textAlign = 'left';
    context.fillText('device', 0, 8);
    context.textAlign = 'right';
    context.fillText('round', box.x + box.w, box.y + box.h + 28);
  }

  onPointerMove(event) {
    const { run, box } = this;
    const at = this.canvas.getBoundingClientRect();
    const device = Math.floor(((event.clientY - at.top - box.y) / box.h) * run.map_devices);
    const cell = Math.floor(((event.clientX - at.left - box.x) / box.w) * run.map_rounds);
    if (device >= 0 && device < run.map_devices && cell >= 0) this.describeCell([device, cell]);
  }

  onKeyDown(event) {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    this.describeCell([this.cell[0] + step[0], this.cell[1] + step[1]]);
  }

  describeCell(cell) {
    const { run } = this;
    if (cell) {
      this.cell = [Math.min(Math.max(cell[0], 0), run.map_devices - 1), Math.min(Math.max(cell[1], 0), run.map_rounds - 1)];
    }
    const [device, at] = this.cell;
    if (!cell || device >= run.map_devices || at >= run.map_rounds) return;
    const level = run.levels[device * run.map_rounds + at];
    const description = { [NO_UPLOAD]: run.no_upload_label, [NO_REPLY]: 'no reply' }[level] ?? `level ${level}`;
    const sent = formatBytes(run.deviceBytes[device]);
    byId('map-cell').textContent =
      `device ${device}, round ${at * run.map_round_step}: ${description} · total uplink of the device ${sent}`;
  }
}

/** Returns the colours of all values in the map: a ramp for levels, grey for no upload. */
function levelColours(run) {
  const values = [...new Set(run.levels)].sort((a, b) => a - b);
  const levels = values.filter((v) => v !== NO_UPLOAD && v !== NO_REPLY);
  const [low, high] = [levels[0], levels[levels.length - 1]];
  const from = rgb('--ramp-low');
  const to = rgb('--ramp-high');
  const colours = new Map();
  if (values.includes(NO_UPLOAD)) colours.set(NO_UPLOAD, [...rgb('--no-upload'), 255]);
  for (const level of levels) {
    const fraction = high > low ? (level - low) / (high - low) : 0.6;
    colours.set(level, [...from.map((c, n) => Math.round(c + (to[n] - c) * fraction)), 255]);
  }
  if (values.includes(NO_REPLY)) colours.set(NO_REPLY, [0, 0, 0, 0]);
  return colours;
}

function rgb(name) {
  const [, ...parts] = /^#(..)(..)(..)$/.exec(cssVariable(name));
  return parts.map((part) => parseInt(part, 16));
}

/** Shows the legend of the map; at most nine levels are listed. */
function showLegend(colours, noUploadLabel) {
  const levels = [...colours.keys()].filter((v) => v !== NO_UPLOAD && v !== NO_REPLY);
  const every = Math.ceil(levels.length / 8);
  const named = levels.filter((_, n) => n % every === 0 || n === levels.length - 1);
  const entries = named.map((level) => [level, `${level} bit${level > 1 ? 's' : ''}`]);
  if (colours.has(NO_UPLOAD)) entries.unshift([NO_UPLOAD, noUploadLabel]);
  if (colours.has(NO_REPLY)) entries.push([NO_REPLY, 'no reply']);
  byId('map-scale').replaceChildren(...entries.map(([value, text]) => {
    const entry = document.createElement('span');
    const swatch = document.createElement('i');
    swatch.style.background = `rgba(${colours.get(value).join(',')})`;
    entry.append(swatch, text);
    return entry;
  }));
}
