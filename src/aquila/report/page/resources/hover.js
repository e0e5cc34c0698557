const TOOLTIP_ROWS = 12;

/** Shows the values of all runs at one position, in one chart and in those with the same axis. */
class Hover {
  constructor(chart) {
    this.chart = chart;
    this.line = this.element('i', 'cursor-line');
    this.tooltip = this.element('div', 'tooltip');
    this.dots = page.runs.map((run) => {
      const dot = this.element('i', 'dot');
      dot.style.color = runColour(run);
      return dot;
    });
  }

  element(name, className) {
    const element = document.createElement(name);
    element.className = className;
    element.hidden = true;
    this.chart.plot.over.append(element);
    return element;
  }

  hide() {
    for (const element of [this.line, this.tooltip, ...this.dots]) element.hidden = true;
    this.chart.readout.textContent = '';
  }

  /** Returns the value of each shown run at x: the last one before it, best first. */
  readings(x) {
    const found = [];
    page.runs.forEach((run, n) => {
      const [xs, ys] = this.chart.lines[n];
      if (!run.shown || !xs.length) return;
      const at = lastAtOrBefore(xs, x);
      const ended = x > xs[xs.length - 1] * (1 + 1e-9) + 1e-12;
      if (at >= 0) found.push({ run, n, x: xs[at], y: ys[at], ended });
    });
    const sign = this.chart.higherIsBetter ? -1 : 1;
    return found.sort((a, b) => sign * (a.y - b.y));
  }

  /** Shows the position x; `source` is the chart under the pointer. */
  show(x, source) {
    const u = this.chart.plot;
    const readings = this.readings(x);
    const left = u.valToPos(x, 'x');
    if (!readings.length || left < 0 || left > u.over.clientWidth) return this.hide();
    this.line.hidden = false;
    this.line.style.transform = `translateX(${left}px)`;
    this.dots.forEach((dot) => { dot.hidden = true; });
    for (const { n, x: at, y, ended } of readings) {
      if (ended) continue;
      this.dots[n].hidden = false;
      this.dots[n].style.transform = `translate(${u.valToPos(at, 'x')}px, ${u.valToPos(y, 'y')}px)`;
    }
    const best = readings[0];
    this.chart.readout.textContent =
      `${best.run.label}: ${this.chart.format(best.y)} at ${this.chart.formatX(best.x)}`
      + (readings.length > 1 ? `, best of ${readings.length}` : '');
    this.tooltip.hidden = source !== this.chart;
    if (source === this.chart) this.fillTooltip(readings, x, left);
  }

  fillTooltip(readings, x, left) {
    const title = document.createElement('b');
    title.textContent = this.chart.formatX(x);
    const rows = readings.slice(0, TOOLTIP_ROWS).map(({ run, y, ended }) => {
      const row = document.createElement('span');
      const mark = document.createElement('i');
      mark.style.background = runColour(run);
      const value = document.createElement('em');
      value.textContent = this.chart.format(y);
      row.append(mark, run.label, value);
      row.classList.toggle('ended', ended);
      return row;
    });
    if (readings.length > TOOLTIP_ROWS) {
      const more = document.createElement('span');
      more.textContent = `and ${readings.length - TOOLTIP_ROWS} more`;
      rows.push(more);
    }
    this.tooltip.replaceChildren(title, ...rows);
    const width = this.tooltip.offsetWidth;
    const room = this.chart.plot.over.clientWidth;
    const at = left + 14 + width <= room ? left + 14 : left - 14 - width;
    this.tooltip.style.left = `${Math.max(0, Math.min(at, room - width))}px`;
  }
}

/** Shows the same position in all charts with the same horizontal axis. */
function linkCursors(source, x) {
  for (const chart of figures) {
    if (x === undefined || chart.axisKey !== source.axisKey) chart.hover.hide();
    else chart.hover.show(x, source);
  }
}

function lastAtOrBefore(sorted, value) {
  let [low, high] = [0, sorted.length];
  const limit = value + Math.abs(value) * 1e-9;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= limit) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
