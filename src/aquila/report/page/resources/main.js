let figures = [];

function onClick(selector, choose) {
  for (const button of document.querySelectorAll(selector)) {
    button.addEventListener('click', () => choose(button));
  }
}

function setPressed(button, pressed) {
  button.setAttribute('aria-pressed', pressed);
}

function showRuns(isShown) {
  page.runs.forEach((run, n) => { run.shown = isShown(run, n); });
  for (const button of byId('legend').children) setPressed(button, page.runs[button.dataset.run].shown);
  figures.forEach((figure) => figure.updateShown());
}

function listen() {
  onClick('#legend button', (button) => {
    const clicked = Number(button.dataset.run);
    showRuns((run, n) => (n === clicked ? !run.shown : run.shown));
  });
  const filters = { all: () => true, none: () => false, aquila: (run) => run.is_aquila };
  onClick('[data-show]', (button) => showRuns(filters[button.dataset.show]));
  onClick('[data-axis]', (button) => {
    xAxis = button.dataset.axis;
    document.querySelectorAll('[data-axis]').forEach((b) => setPressed(b, b === button));
    figures.filter((figure) => figure.spec.by_cost).forEach((figure) => figure.build());
  });
}

async function start() {
  await unpackNumbers();
  makeSortable(byId('methods-table'));
  listenForBaseline(byId('baseline'));
  if (byId('measure')) new CostToQuality();
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
  document.documentElement.classList.remove('js'); // tables and static figures remain
  console.error(error);
});
