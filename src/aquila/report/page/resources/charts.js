const DASHES = [[], [7, 4], [2, 3], [9, 3, 2, 3]];
const view = { axis: 'bytes', smoothing: 1, error: false };
const HERO_WINDOW = 5;
const NARROW = 500;
const HEADROOM = 52; // pixels above the first figure, for the names of lines that end at the top
let figures = [];

/** Returns the colour of a run's line, as page.css computes it for the legend. */
function runColour(run) {
  run.colourNow ??= getComputedStyle(
    document.querySelector(`#legend [data-run="${page.runs.indexOf(run)}"] .line`)).stroke;
  return run.colourNow;
}

/** One figure drawn by uPlot; holds the visible range. */
class Chart {
  constructor(figure) {
    this.figure = figure;
    this.spec = page.charts.find((chart) => chart.column === figure.dataset.chart);
    this.container = figure.querySelector('.plot');
    this.readout = figure.querySelector('.readout');
    this.isHero = figure.classList.contains('hero');
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
    const key = this.isHero ? 'bytes' : view.axis;
    return this.spec.by_cost ? page.costs.find((cost) => cost.key === key) : undefined;
  }

  get axisKey() {
    return this.cost ? this.cost.key : 'round';
  }

  /** Whether the chart shows 1 − accuracy. */
  get showsError() {
    return view.error && this.spec.unit === 'fraction' && this.spec.by_cost && !this.isHero;
  }

  get log() {
    return this.spec.log || this.showsError;
  }

  get higherIsBetter() {
    return !this.showsError && Boolean(page.measures[this.spec.column]?.higher);
  }

  get headroom() {
    if (!this.isHero || !this.higherIsBetter) return 0;
    return this.container.clientWidth < NARROW ? HEADROOM + 16 : HEADROOM;
  }

  format(value) {
    if (this.spec.unit === 'bytes') return formatBytes(value);
    return this.spec.unit === 'fraction' ? formatPercent(value) : formatNumber(value);
  }

  formatX(value) {
    return this.cost ? formatQuantity(value, this.cost.units) : `round ${Math.round(value)}`;
  }

  build() {
    this.plot?.destroy();
    this.lines = page.runs.map((run) => this.points(run, this.spec.column));
    this.bands = page.runs.map((run) => run.seeds
      ? ['low', 'high'].map((end) => this.points(run, `${this.spec.column}:${end}`)) : undefined);
    this.zoomed = false;
    this.view = this.fullView();
    this.plot = new uPlot(this.options(), uPlot.join(this.lines), this.container);
    this.hover = new Hover(this);
    this.readout.textContent = '';
    const [title, unit] = this.figure.querySelector('h3').childNodes;
    title.data = this.showsError ? `1 − ${this.spec.title.toLowerCase()}` : this.spec.title;
    const most = Math.max(...page.runs.map((run) => this.window(run)));
    if (this.spec.by_cost) unit.textContent = most > 1 ? `, mean of ${most} evaluations` : '';
  }

  /** Returns the number of evaluations to average; the figure at the top averages five. */
  window(run) {
    if (!this.isHero) return view.smoothing;
    return run.points >= 5 * HERO_WINDOW ? HERO_WINDOW : 1;
  }

  /** Returns the points of a column: smoothed, and only those that the axes can show. */
  points(run, column) {
    const from = run.columns[this.axisKey];
    const to = run.columns[column];
    const xs = [];
    const ys = [];
    for (let n = 0; n < from.length; n++) {
      const value = this.showsError ? 1 - to[n] : to[n];
      const isDrawn = Number.isFinite(value) && (!this.log || value > 0);
      if (isDrawn && Number.isFinite(from[n]) && (!this.cost || from[n] > 0)) {
        xs.push(from[n]);
        ys.push(value);
      }
    }
    return [xs, smooth(ys, this.window(run))];
  }

  /** Returns the smallest range that contains all shown lines. */
  fullView() {
    const shown = [...this.lines.keys()].filter((n) => page.runs[n].shown)
      .flatMap((n) => [this.lines[n], ...(this.bands[n] ?? [])]);
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
      const margin = Math.abs(low) / 2 || 0.5;
      return low === high ? [low - margin, high + margin] : widen(low, high, 0.03, false);
    };
    return { x: side(0, Boolean(this.cost)), y: side(1, this.log) };
  }

  options() {
    const axis = (name, log, format, size) => ({
      stroke: () => cssVariable('--muted'),
      grid: { stroke: () => cssVariable('--rule'), width: 1 },
      ticks: { show: false },
      font: '12px system-ui, sans-serif',
      size,
      gap: 6,
      splits: (u, _, low, high) => ticks(low, high, log, name === 'x' ? u.width / 90 : u.height / 50,
        name === 'x' && this.cost ? this.cost.axis_size : 1),
      filter: (_, splits) => splits,
      values: (_, splits) => splits.map((value) => format(value)),
    });
    const label = this.cost ? this.cost.label : 'round';
    const tickText = this.spec.unit === 'bytes' ? formatByteTick : (value) => this.format(value);
    return {
      width: this.container.clientWidth,
      height: this.container.clientHeight,
      legend: { show: false },
      padding: [10 + this.headroom, 30, 0, 0],
      scales: {
        x: { time: false, distr: this.cost ? 3 : 1, range: () => this.view.x },
        y: { distr: this.log ? 3 : 1, range: () => this.view.y },
      },
      axes: [
        { ...axis('x', Boolean(this.cost), this.cost ? costTicks(this.cost) : formatNumber, 28),
          label, labelSize: 20, labelGap: 2, labelFont: '12px system-ui, sans-serif' },
        axis('y', this.log, tickText, 56),
      ],
      series: [{}, ...page.runs.map((run) => ({
        show: run.shown,
        stroke: () => runColour(run),
        width: run.is_aquila ? 2.6 : 1.6,
        dash: DASHES[run.dash],
        points: { show: false },
        spanGaps: true,
      }))],
      cursor: {
        points: { show: false },
        x: false,
        y: false,
        drag: { x: true, y: true, uni: 16, dist: 5, setScale: false },
        bind: { dblclick: () => () => this.reset() },
      },
      hooks: {
        drawAxes: [(u) => this.drawBands(u)],
        draw: [(u) => drawLabels(this, u)],
        setSelect: [(u) => this.zoomToSelection(u)],
        setCursor: [(u) => this.onCursor(u)],
      },
    };
  }

  /** Returns the points of a line in pixels of the canvas. */
  pixels(u, n, [xs, ys] = this.lines[n]) {
    const step = Math.ceil(xs.length / 300) || 1;
    const found = [];
    for (let i = 0; i < xs.length; i++) {
      if (i % step === 0 || i === xs.length - 1) {
        found.push([u.valToPos(xs[i], 'x', true), u.valToPos(ys[i], 'y', true)]);
      }
    }
    return found;
  }

  drawBands(u) {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.globalAlpha = 0.18;
    page.runs.forEach((run, n) => {
      if (!run.shown || !this.bands[n]) return;
      const [low, high] = this.bands[n].map((line) => this.pixels(u, n, line));
      ctx.beginPath();
      [...low, ...high.reverse()].forEach(([x, y]) => ctx.lineTo(x, y));
      ctx.fillStyle = runColour(run);
      ctx.fill();
    });
    ctx.restore();
  }

  onCursor(u) {
    if (!u.cursor.event || !this.hover) return; // also called while uPlot starts
    const { left } = u.cursor;
    linkCursors(this, left < 0 ? undefined : u.posToVal(left, 'x'));
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

  show(range) {
    this.view = range;
    this.plot.batch(() => {
      this.plot.setScale('x', { min: range.x[0], max: range.x[1] });
      this.plot.setScale('y', { min: range.y[0], max: range.y[1] });
    });
  }

  updateShown() {
    page.runs.forEach((run, n) => this.plot.setSeries(n + 1, { show: run.shown }));
    this.hover.hide();
    if (!this.zoomed) this.show(this.fullView());
  }
}
