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

/** Shows at which sides a scrollable table continues. */
function addScrollCues(frame) {
  const region = frame.firstElementChild;
  const update = () => {
    const left = region.scrollWidth - region.clientWidth - region.scrollLeft;
    frame.classList.toggle('more-left', region.scrollLeft > 2);
    frame.classList.toggle('more-right', left > 2);
  };
  region.addEventListener('scroll', update, { passive: true });
  new ResizeObserver(update).observe(region);
  update();
}
