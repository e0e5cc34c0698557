const DASHES = [[], [7, 4], [2, 3], [9, 3, 2, 3]];
const FADES = [1, 0.6, 0.35];
let xAxis = 'bytes';

/** One figure drawn by uPlot; holds the visible range. */
class Chart {
  constructor(figure) {
    this.figure = figure;
    this.spec = page.charts.find((chart) => chart.column === figure.dataset.chart);
    this.container = figure.querySelector('.plot');
    this.readout = figure.querySelector('.readout');
    this.format = this.spec.unit === 'fraction' ? formatPercent : formatNumber;
    this.container.tabIndex = 0;
    this.container.setAttribute('role', 'application');
    this.container.setAttribute('aria-label', `${this.spec.title}, zoomable figure`);
    this.container.setAttribute('aria-describedby', 'hint');
    this.container.classList.add('interactive');
    this.build();
    this.listen();
  }

  /** The cost on the horizontal axis; undefined if it shows rounds. */
  get cost() {
    return this.spec.by_cost ? page.costs.find((cost) => cost.key === xAxis) : undefined;
  }

  build() {
    this.plot?.destroy();
    this.lines = page.runs.map((run) => this.points(run));
    this.zoomed = false;
    this.view = this.fullView();
    this.plot = new uPlot(this.options(), uPlot.join(this.lines), this.container);
    this.dot = document.createElement('i');
    this.dot.className = 'dot';
    this.dot.hidden = true;
    this.plot.over.append(this.dot);
    this.readout.textContent = '';
  }

  points(run) {
    const from = run.columns[this.cost ? this.cost.key : 'round'];
    const to = run.columns[this.spec.column];
    const xs = [];
    const ys = [];
    for (let n = 0; n < from.length; n++) {
      const isDrawn = Number.isFinite(to[n]) && (!this.spec.log || to[n] > 0);
      if (isDrawn && (!this.cost || from[n] > 0)) {
        xs.push(from[n]);
        ys.push(to[n]);
      }
    }
    return [xs, ys];
  }

  /** Returns the smallest range that contains all shown lines. */
  fullView() {
    const shown = this.lines.filter((_, n) => page.runs[n].shown);
    const side = (index, log) => {
      let [low, high] = [Infinity, -Infinity];
      for (const line of shown) {
        for (const value of line[index]) {
          if (value < low) low = value;
          if (value > high) high = value;
        }
      }
      if (low > high) return log ? [1, 10] : [0, 1];
      if (log) return low === high ? [low / 2, high * 2] : widen(low, high, 0.03, true);
      return low === high ? [low - 0.5, high + 0.5] : widen(low, high, 0.03, false);
    };
    return { x: side(0, Boolean(this.cost)), y: side(1, this.spec.log) };
  }

  options() {
    const axis = (name, log, format, size) => ({
      stroke: () => cssVariable('--muted'),
      grid: { stroke: () => cssVariable('--rule'), width: 1 },
      ticks: { show: false },
      font: '12px system-ui, sans-serif',
      size,
      gap: 6,
      splits: (u, _, low, high) => ticks(low, high, log, name === 'x' ? u.width / 90 : u.height / 50),
      filter: (_, splits) => splits,
      values: (_, splits) => splits.map((value) => format(value)),
    });
    return {
      width: this.container.clientWidth,
      height: this.container.clientHeight,
      legend: { show: false },
      padding: [8, 14, 0, 0],
      scales: {
        x: { time: false, distr: this.cost ? 3 : 1, range: () => this.view.x },
        y: { distr: this.spec.log ? 3 : 1, range: () => this.view.y },
      },
      axes: [
        { ...axis('x', Boolean(this.cost), formatNumber, 28), label: this.cost ? this.cost.label : 'round',
          labelSize: 20, labelGap: 2, labelFont: '12px system-ui, sans-serif' },
        axis('y', this.spec.log, this.format, 54),
      ],
      series: [{}, ...page.runs.map((run) => ({
        show: run.shown,
        stroke: () => cssVariable(`--${run.colour}`),
        width: run.is_aquila ? 2.5 : 1.4,
        dash: DASHES[run.dash],
        alpha: FADES[run.fade],
        points: { show: false },
        spanGaps: true,
      }))],
      cursor: {
        points: { show: false },
        drag: { x: true, y: true, uni: 16, dist: 5, setScale: false },
        bind: { dblclick: () => () => this.reset() },
      },
      hooks: {
        setSelect: [(u) => this.zoomToSelection(u)],
        setCursor: [(u) => this.showNearestPoint(u)],
      },
    };
  }

  listen() {
    this.container.addEventListener('wheel', (event) => {
      const wantsZoom = event.ctrlKey || event.metaKey || this.container.contains(document.activeElement);
      if (!wantsZoom) return; // otherwise the page could not scroll past a figure
      event.preventDefault();
      const box = this.plot.over.getBoundingClientRect();
      const at = [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
      this.zoom(event.deltaY > 0 ? 1.25 : 0.8, ...at);
    }, { passive: false });
    this.container.addEventListener('pointerdown', () => this.container.focus({ preventScroll: true }));
    this.container.addEventListener('keydown', (event) => {
      const act = {
        '+': () => this.zoom(0.8), '=': () => this.zoom(0.8), '-': () => this.zoom(1.25),
        '0': () => this.reset(), Escape: () => this.reset(),
        ArrowLeft: () => this.move(-0.1, 0), ArrowRight: () => this.move(0.1, 0),
        ArrowUp: () => this.move(0, -0.1), ArrowDown: () => this.move(0, 0.1),
      }[event.key];
      if (act && !event.ctrlKey && !event.metaKey && !event.altKey) {
        event.preventDefault();
        act();
      }
    });
    const buttons = { in: () => this.zoom(0.7), out: () => this.zoom(1.4), reset: () => this.reset() };
    for (const button of this.figure.querySelectorAll('[data-zoom]')) {
      button.addEventListener('click', buttons[button.dataset.zoom]);
    }
    new ResizeObserver(() => {
      const [width, height] = [this.container.clientWidth, this.container.clientHeight];
      if (width && height) this.plot.setSize({ width, height });
    }).observe(this.container);
  }

  /** Zooms to a window, given as fractions of width and height from the top left. */
  showWindow(left, top, right, bottom) {
    const { over } = this.plot;
    const at = (fraction, side) =>
      this.plot.posToVal(fraction * (side === 'x' ? over.clientWidth : over.clientHeight), side);
    const x = [at(left, 'x'), at(right, 'x')];
    const y = [at(bottom, 'y'), at(top, 'y')];
    if (canZoomTo(...x, Boolean(this.cost)) && canZoomTo(...y, this.spec.log)) {
      this.zoomed = true;
      this.show({ x, y });
    }
  }

  zoom(factor, x = 0.5, y = 0.5) {
    this.showWindow(x - x * factor, y - y * factor, x + (1 - x) * factor, y + (1 - y) * factor);
  }

  move(x, y) {
    this.showWindow(x, y, 1 + x, 1 + y);
  }

  zoomToSelection(u) {
    const { left, top, width, height } = u.select;
    const { clientWidth, clientHeight } = u.over;
    if (!width || !height) return;
    u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.showWindow(left / clientWidth, top / clientHeight,
      (left + width) / clientWidth, (top + height) / clientHeight);
  }

  reset() {
    this.zoomed = false;
    this.show(this.fullView());
  }

  show(view) {
    this.view = view;
    this.plot.batch(() => {
      this.plot.setScale('x', { min: view.x[0], max: view.x[1] });
      this.plot.setScale('y', { min: view.y[0], max: view.y[1] });
    });
  }

  updateShown() {
    page.runs.forEach((run, n) => this.plot.setSeries(n + 1, { show: run.shown }));
    if (!this.zoomed) this.show(this.fullView());
  }

  /** Describes the point nearest to the pointer. */
  showNearestPoint(u) {
    const { left, top } = u.cursor;
    let best = { distance: 30 };
    page.runs.forEach((run, n) => {
      if (!run.shown || left < 0) return;
      const [xs, ys] = this.lines[n];
      const start = nearest(xs, u.posToVal(left, 'x'));
      for (let i = Math.max(start - 3, 0); i < Math.min(start + 3, xs.length); i++) {
        const [px, py] = [u.valToPos(xs[i], 'x'), u.valToPos(ys[i], 'y')];
        const distance = Math.hypot(px - left, py - top);
        if (distance < best.distance) best = { distance, run, px, py, x: xs[i], y: ys[i] };
      }
    });
    this.dot.hidden = !best.run;
    this.readout.textContent = '';
    if (!best.run) return;
    this.dot.style.transform = `translate(${best.px}px, ${best.py}px)`;
    this.dot.style.color = cssVariable(`--${best.run.colour}`);
    const where = this.cost ? `${formatNumber(best.x)} ${this.cost.unit}` : `round ${best.x}`;
    this.readout.textContent = `${best.run.label}: ${this.format(best.y)} at ${where}`;
  }
}

/** Returns whether float64 can still resolve positions within a range. */
function canZoomTo(low, high, log) {
  const size = Math.max(Math.abs(low), Math.abs(high));
  return high - low > 1e-9 * size && size < 1e15 && (!log || low > 1e-15);
}

function widen(low, high, fraction, log) {
  if (log) {
    const factor = (high / low) ** fraction;
    return [low / factor, high * factor];
  }
  const margin = (high - low) * fraction;
  return [low - margin, high + margin];
}

/** Returns round numbers within a range; uPlot puts no ticks on narrow log scales. */
function ticks(low, high, log, wanted) {
  const count = Math.max(wanted, 2);
  if (log && high / low > 8) {
    const decades = Math.log10(high / low);
    const multipliers = decades * 3 <= count ? [1, 2, 5] : [1];
    const every = Math.max(1, Math.ceil(decades / count));
    const found = [];
    for (let n = Math.floor(Math.log10(low)); n <= Math.log10(high); n++) {
      if (n % every === 0) for (const multiplier of multipliers) found.push(Number(`${multiplier}e${n}`));
    }
    return found.filter((tick) => tick >= low && tick <= high);
  }
  const unit = 10 ** Math.floor(Math.log10((high - low) / count));
  const step = unit * [1, 2, 5, 10].find((multiplier) => (high - low) / (unit * multiplier) <= count);
  const found = [];
  for (let n = Math.ceil(low / step); n * step <= high; n++) {
    found.push(Number((n * step).toPrecision(12)));
  }
  return found;
}

function nearest(sorted, value) {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}
