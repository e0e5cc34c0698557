const MARK_WIDTH = 62; // pixels that a tick of the axis needs
const INSIDE = 70; // percent of the width from which on the factor is inside the bar, as in bars.py

/** What each run needed to the same quality, for a selectable measure, target and cost. */
class CostToQuality {
  constructor() {
    this.measure = byId('measure');
    this.slider = byId('target');
    this.body = document.querySelector('.cost-to-quality tbody');
    this.cost = byId('cost');
    this.cost.addEventListener('change', () => this.draw());
    this.measure.addEventListener('change', () => {
      this.updateTargetRange();
      this.setTarget(this.defaultTarget());
      this.draw();
    });
    this.slider.addEventListener('input', () => {
      this.target = this.targetAt(this.slider.value / this.slider.max);
      this.draw();
    });
    this.updateTargetRange();
    this.setTarget(page.target);
    new ResizeObserver(() => this.draw()).observe(byId('bar-axis'));
  }

  get measureKey() {
    return this.measure.value;
  }

  get higherIsBetter() {
    return page.measures[this.measureKey].higher;
  }

  /** Targets range from the median first value to the best value of any run. */
  updateTargetRange() {
    const known = page.runs
      .map((run) => [...run.columns[this.measureKey]].filter(Number.isFinite))
      .filter((values) => values.length);
    const best = known.map((values) => values.reduce((a, b) => (this.higherIsBetter === a > b ? a : b)));
    this.best = best.sort((a, b) => (this.higherIsBetter ? b - a : a - b));
    const first = known.map((values) => values[0]).sort((a, b) => a - b);
    this.targetRange = [first[first.length >> 1], this.best[0]];
    this.log = !this.higherIsBetter && Math.min(...this.targetRange) > 0;
  }

  /** Slightly worse than the median run, as in comparison.py. */
  defaultTarget() {
    return this.best[this.best.length >> 1] * (this.higherIsBetter ? 0.99 : 1.05);
  }

  targetAt(fraction) {
    const [from, to] = this.targetRange;
    return this.log ? from * (to / from) ** fraction : from + (to - from) * fraction;
  }

  setTarget(target) {
    const [from, to] = this.targetRange;
    const fraction = this.log ? Math.log(target / from) / Math.log(to / from) : (target - from) / (to - from);
    this.target = target;
    this.slider.value = Number.isFinite(fraction) ? fraction * this.slider.max : this.slider.max;
  }

  showTarget() {
    const { fraction } = page.measures[this.measureKey];
    const value = fraction ? formatPercent(Number(this.target.toFixed(4))) : formatNumber(this.target);
    const title = this.measure.selectedOptions[0].textContent;
    byId('goal').textContent = `${title} ${value}`;
    const name = this.cost.selectedOptions[0].textContent;
    byId('cost-name').textContent = name[0].toUpperCase() + name.slice(1);
    this.slider.setAttribute('aria-valuetext', `${title} ${value}`);
  }

  /** Returns the round, as an index, in which a run first reached the target; -1 if never. */
  reachedAt(run) {
    const values = run.columns[this.measureKey];
    const tolerance = 1e-6 * Math.abs(this.target); // the columns are float32
    return values.findIndex((v) =>
      this.higherIsBetter ? v >= this.target - tolerance : v <= this.target + tolerance);
  }

  draw() {
    this.showTarget();
    const cost = page.costs.find(({ key }) => key === this.cost.value);
    const found = [...this.body.rows].map((row) => {
      const run = page.runs[row.dataset.run];
      const round = this.reachedAt(run);
      const column = run.columns[cost.key];
      const needed = round < 0 || !(column[round] > 0) ? Infinity : column[round];
      const missing = Number.isFinite(column[0]) ? 'not reached' : '–';
      row.querySelector('.needed').textContent = needed < Infinity ? formatQuantity(needed, cost.units) : missing;
      row.querySelector('.rounds').textContent = round < 0 ? '–' : run.columns.round[round] + 1;
      return { row, run, needed };
    });
    const known = found.map(({ needed }) => needed).filter((needed) => needed < Infinity);
    const compared = found.find(({ run }) => page.runs.indexOf(run) === page.reference).needed;
    const scale = logScale(known, cost.axis_size);
    drawBarAxis(scale, costTicks(cost), cost);
    found.sort((a, b) => (a.needed === b.needed ? 0 : a.needed - b.needed));
    for (const { row, needed } of found) drawBar(row, needed, compared, scale);
    byId('factor-note').hidden = compared === Infinity;
    this.body.append(...found.map(({ row }) => row));
  }
}

/** Returns the ends and the ticks of the logarithmic axis of the bars. */
function logScale(known, unitSize) {
  const low = unitSize * 10 ** Math.floor(Math.log10(Math.min(...known, 1e30) / unitSize / 2));
  const high = Math.max(...known, 10 * low);
  const position = (value) => (100 * Math.log(value / low)) / Math.log(high / low);
  const every = Math.ceil((Math.floor(Math.log10(high / low) + 1e-9) + 1) / 6);
  const marks = [];
  for (let value = low; value <= high * (1 + 1e-9); value *= 10 ** every) marks.push(Number(value.toPrecision(12)));
  return { position, marks, low };
}

function svgElement(name, attributes, text) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

function drawBarAxis({ position, marks, low }, format, cost) {
  const unit = format === formatByteTick ? '' : ` ${cost.label.split(', ')[1]}`;
  const axis = byId('bar-axis');
  const gap = (100 * MARK_WIDTH) / (axis.clientWidth || 600);
  let free = 0;
  const named = marks.filter((mark) => {
    const fits = position(mark) >= free && position(mark) < 93;
    if (fits) free = position(mark) + gap;
    return fits;
  });
  axis.replaceChildren(...named.map((mark) =>
    svgElement('text', { x: `${position(mark)}%`, y: 12, 'text-anchor': mark > low ? 'middle' : 'start' },
      format(mark) + unit)));
}

function drawBar(row, needed, compared, { position, marks }) {
  const width = needed < Infinity ? position(needed) : 0;
  const lines = marks.map((mark) => svgElement('line',
    { x1: `${position(mark)}%`, x2: `${position(mark)}%`, y1: 0, y2: '100%', class: 'grid' }));
  const factor = needed < Infinity && compared < Infinity ? `${formatRatio(compared / needed)} ×` : '';
  const inside = width > INSIDE;
  row.querySelector('.bar-cell svg').replaceChildren(...lines,
    svgElement('rect', { width: `${width}%`, y: 3, height: 18, rx: 2 }),
    svgElement('text', { x: `${width}%`, dx: inside ? -7 : 7, y: 16,
      'text-anchor': inside ? 'end' : 'start', class: inside ? 'inside' : 'outside' }, factor));
}
