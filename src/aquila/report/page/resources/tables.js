/** Makes the headings of the table of methods sort it. */
function sortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement('button');
    button.type = 'button';
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener('click', () => {
      const down = head.getAttribute('aria-sort') === 'ascending';
      heads.forEach((other) => other.removeAttribute('aria-sort'));
      head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
      sortRows(table.tBodies[0], column, head.dataset.kind === 'text', down);
    });
  });
}

/** Rows without a value come last either way. */
function sortRows(body, column, text, down) {
  const value = (row) => row.cells[column].dataset.value;
  const order = text ? (a, b) => a.localeCompare(b) : (a, b) => a - b;
  const rows = [...body.rows].sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    if (x === undefined || y === undefined) return (x === undefined) - (y === undefined);
    return down ? order(y, x) : order(x, y);
  });
  body.append(...rows);
}

function savings(select) {
  select.addEventListener('change', () => {
    const baseline = page.runs[select.value];
    byId('baseline-name').textContent = baseline.label;
    for (const row of byId('methods-table').tBodies[0].rows) {
      const ratio = baseline.uplink / Math.max(page.runs[row.dataset.run].uplink, 1);
      const cell = row.querySelector('[data-saving]');
      cell.dataset.value = ratio;
      cell.textContent = `${times(ratio)} ×`;
    }
  });
}

/** The bars of bytes to the same quality, for a measure and target that can be chosen. */
class Race {
  constructor() {
    this.measure = byId('measure');
    this.slider = byId('target');
    this.body = document.querySelector('.race tbody');
    this.measure.addEventListener('change', () => {
      this.range();
      this.aim(this.middle());
      this.draw();
    });
    this.slider.addEventListener('input', () => {
      this.target = this.at(this.slider.value / this.slider.max);
      this.draw();
    });
    this.range();
    this.aim(page.target);
  }

  get key() {
    return this.measure.value;
  }

  get higher() {
    return page.measures[this.key];
  }

  /** Targets reach from where runs began to the best that any run was. */
  range() {
    const known = page.runs
      .map((run) => [...run.columns[this.key]].filter(Number.isFinite))
      .filter((values) => values.length);
    const best = known.map((values) => values.reduce((a, b) => (this.higher === a > b ? a : b)));
    this.best = best.sort((a, b) => (this.higher ? b - a : a - b));
    const first = known.map((values) => values[0]).sort((a, b) => a - b);
    this.ends = [first[first.length >> 1], this.best[0]];
    this.log = !this.higher && Math.min(...this.ends) > 0;
  }

  /** A little short of the run in the middle, as in story.py. */
  middle() {
    return this.best[this.best.length >> 1] * (this.higher ? 0.99 : 1.05);
  }

  at(share) {
    const [from, to] = this.ends;
    return this.log ? from * (to / from) ** share : from + (to - from) * share;
  }

  aim(target) {
    const [from, to] = this.ends;
    const share = this.log ? Math.log(target / from) / Math.log(to / from) : (target - from) / (to - from);
    this.target = target;
    this.slider.value = Number.isFinite(share) ? share * this.slider.max : this.slider.max;
    this.name();
  }

  name() {
    const value = this.higher ? percent(Number(this.target.toFixed(4))) : short(this.target);
    const title = this.measure.selectedOptions[0].textContent;
    byId('goal').textContent = `${title} ${value}`;
    this.slider.setAttribute('aria-valuetext', `${title} ${value}`);
  }

  needed(run) {
    const values = run.columns[this.key];
    const slack = 1e-6 * Math.abs(this.target); // the columns have 4 bytes
    const there = values.findIndex((v) =>
      this.higher ? v >= this.target - slack : v <= this.target + slack);
    return there < 0 ? Infinity : run.columns.sent[there];
  }

  draw() {
    this.name();
    const found = [...this.body.rows].map((row) => [row, this.needed(page.runs[row.dataset.run])]);
    const most = Math.max(...found.map(([, mib]) => (mib < Infinity ? mib : 0)), 1e-12);
    found.sort(([, a], [, b]) => (a === b ? 0 : a - b));
    for (const [row, mib] of found) {
      const there = mib < Infinity;
      row.querySelector('rect').setAttribute('width', there ? `${(100 * mib) / most}%` : '0');
      row.lastElementChild.textContent = there ? short(mib) : 'not reached';
    }
    this.body.append(...found.map(([row]) => row));
  }
}
