/** Which runs the page shows: the featured ones or all, those that match the filter, the legend. */
const shownRuns = { all: page.runs.every((run) => run.featured), filter: '' };

function isListed(run) {
  const matches = run.label.toLowerCase().includes(shownRuns.filter);
  return matches && (shownRuns.all || run.featured || shownRuns.filter !== '');
}

/** Shows the listed runs in tables, legend and figures, and hides the others. */
function listRuns() {
  for (const element of document.querySelectorAll('tr[data-run], #legend [data-run]')) {
    element.hidden = !isListed(page.runs[element.dataset.run]);
  }
  showRuns(isListed);
}

function setPressed(button, pressed) {
  button.setAttribute('aria-pressed', pressed);
}

function showRuns(isShown) {
  page.runs.forEach((run, n) => { run.shown = isShown(run, n); });
  for (const button of byId('legend').children) setPressed(button, page.runs[button.dataset.run].shown);
  figures.forEach((figure) => figure.updateShown());
}

function listenForRuns() {
  byId('run-filter').addEventListener('input', (event) => {
    shownRuns.filter = event.target.value.trim().toLowerCase();
    listRuns();
  });
  const toggle = byId('all-runs'); // only pages with many runs have it
  toggle?.addEventListener('click', () => {
    shownRuns.all = !shownRuns.all;
    setPressed(toggle, shownRuns.all);
    const featured = page.runs.filter((run) => run.featured).length;
    toggle.textContent = shownRuns.all ? `show the ${featured} main runs` : `show all ${page.runs.length} runs`;
    listRuns();
  });
}
