/** Makes the table sortable by its headings. */
function makeSortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement('button');
    button.type = 'button';
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener('click', () => {
      const descending = head.getAttribute('aria-sort') === 'ascending';
      heads.forEach((other) => other.removeAttribute('aria-sort'));
      head.setAttribute('aria-sort', descending ? 'descending' : 'ascending');
      sortRows(table.tBodies[0], column, head.dataset.kind === 'text', descending);
    });
  });
}

/** Sorts rows; those without a value come last in both directions. */
function sortRows(body, column, text, descending) {
  const value = (row) => row.cells[column].dataset.value;
  const order = text ? (a, b) => a.localeCompare(b) : (a, b) => a - b;
  const rows = [...body.rows].sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    if (x === undefined || y === undefined) return (x === undefined) - (y === undefined);
    return descending ? order(y, x) : order(x, y);
  });
  body.append(...rows);
}

function listenForBaseline(select) {
  select.addEventListener('change', () => {
    const baseline = page.runs[select.value];
    byId('baseline-name').textContent = baseline.label;
    for (const row of byId('methods-table').tBodies[0].rows) {
      const ratio = baseline.uplink / Math.max(page.runs[row.dataset.run].uplink, 1);
      const cell = row.querySelector('[data-saving]');
      cell.dataset.value = ratio;
      cell.textContent = `${formatRatio(ratio)} ×`;
    }
  });
}

/** What each run needed to the same quality, for a selectable measure and target. */
class CostToQuality {
  constructor() {
    this.measure = byId('measure');
    this.slider = byId('target');
    this.body = document.querySelector('.cost-to-quality tbody');
    this.cost = byId('cost'); // only pages with several costs have it
    this.cost?.addEventListener('change', () => this.draw());
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
  }

  get measureKey() {
    return this.measure.value;
  }

  get higherIsBetter() {
    return page.measures[this.measureKey];
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
    this.showTarget();
  }

  showTarget() {
    const value = this.higherIsBetter ? formatPercent(Number(this.target.toFixed(4))) : formatNumber(this.target);
    const title = this.measure.selectedOptions[0].textContent;
    byId('goal').textContent = `${title} ${value}`;
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
    const bars = this.cost ? this.cost.value : page.costs[0].key;
    const found = [...this.body.rows].map((row) => {
      const run = page.runs[row.dataset.run];
      const round = this.reachedAt(run);
      for (const cell of row.querySelectorAll('[data-cost]')) {
        const column = run.columns[cell.dataset.cost];
        const reached = round < 0 ? 'not reached' : formatNumber(column[round]);
        cell.textContent = Number.isFinite(column[0]) ? reached : '–';
      }
      const needed = round < 0 ? Infinity : run.columns[bars][round];
      return [row, Number.isFinite(needed) ? needed : Infinity];
    });
    const largest = Math.max(...found.map(([, needed]) => (needed < Infinity ? needed : 0)), 1e-12);
    found.sort(([, a], [, b]) => (a === b ? 0 : a - b));
    for (const [row, needed] of found) {
      const width = needed < Infinity ? `${(100 * needed) / largest}%` : '0';
      row.querySelector('rect').setAttribute('width', width);
    }
    this.body.append(...found.map(([row]) => row));
  }
}
