let figures = [];

function switches(selector, choose) {
  for (const button of document.querySelectorAll(selector)) {
    button.addEventListener('click', () => choose(button));
  }
}

function press(button, pressed) {
  button.setAttribute('aria-pressed', pressed);
}

function showRuns(wanted) {
  page.runs.forEach((run, n) => { run.shown = wanted(run, n); });
  for (const button of byId('legend').children) press(button, page.runs[button.dataset.run].shown);
  figures.forEach((figure) => figure.toggle());
}

function listen() {
  switches('#legend button', (button) => {
    const own = Number(button.dataset.run);
    showRuns((run, n) => (n === own ? !run.shown : run.shown));
  });
  const sets = { all: () => true, none: () => false, own: (run) => run.own };
  switches('[data-show]', (button) => showRuns(sets[button.dataset.show]));
  switches('[data-axis]', (button) => {
    axis = button.dataset.axis;
    document.querySelectorAll('[data-axis]').forEach((b) => press(b, b === button));
    figures.filter((figure) => figure.chart.by_bytes).forEach((figure) => figure.build());
  });
}

async function start() {
  await unpack();
  sortable(byId('methods-table'));
  savings(byId('baseline'));
  if (byId('measure')) new Race();
  figures = [...document.querySelectorAll('[data-chart]')].map((figure) => new Chart(figure));
  const map = new LevelMap();
  listen();
  const repaint = () => {
    figures.forEach((figure) => figure.plot.redraw(false));
    map.draw();
  };
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', repaint);
  document.documentElement.dataset.ready = 'true';
}

start().catch((error) => {
  document.documentElement.classList.remove('js'); // the tables and still figures remain
  console.error(error);
});
