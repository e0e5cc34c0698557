function onClick(selector, choose) {
  for (const button of document.querySelectorAll(selector)) {
    button.addEventListener('click', () => choose(button));
  }
}

function rebuild() {
  figures.filter((figure) => !figure.isHero).forEach((figure) => figure.build());
}

function listen() {
  onClick('#legend button', (button) => {
    const clicked = Number(button.dataset.run);
    showRuns((run, n) => (n === clicked ? !run.shown : run.shown));
  });
  const filters = { all: isListed, none: () => false, aquila: (run) => run.is_aquila && isListed(run) };
  onClick('[data-show]', (button) => showRuns(filters[button.dataset.show]));
  onClick('[data-axis]', (button) => {
    view.axis = button.dataset.axis;
    document.querySelectorAll('[data-axis]').forEach((b) => setPressed(b, b === button));
    figures.filter((figure) => figure.spec.by_cost && !figure.isHero).forEach((figure) => figure.build());
  });
  byId('smoothing').addEventListener('change', (event) => {
    view.smoothing = Number(event.target.value);
    rebuild();
  });
  byId('error-axis')?.addEventListener('change', (event) => {
    view.error = event.target.checked;
    rebuild();
  });
  onClick('[data-csv]', ({ dataset }) =>
    saveFile(fileName(dataset.csv, 'csv'), tableCsv(byId(dataset.csv)), 'text/csv'));
  onClick('[data-copy-table]', (button) =>
    copyText(button, tableMarkdown(byId(button.dataset.copyTable))));
  onClick('[data-copy]', (button) =>
    copyText(button, `${byId(button.dataset.copy).querySelector('code').textContent}\n`));
  listenForRuns();
}

/** Marks the section that is being read in the navigation. */
function followSections() {
  const links = new Map([...document.querySelectorAll('nav a')].map((a) => [a.hash.slice(1), a]));
  const observer = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) continue;
      links.forEach((link) => link.removeAttribute('aria-current'));
      links.get(target.id)?.setAttribute('aria-current', 'true');
    }
  }, { rootMargin: '-20% 0px -75% 0px' });
  links.forEach((_, id) => observer.observe(byId(id)));
}

async function start() {
  await unpackNumbers();
  makeSortable(byId('methods-table'));
  listenForBaseline(byId('baseline'));
  if (byId('measure')) new CostToQuality();
  document.querySelectorAll('[data-chart]').forEach((figure) => figures.push(new Chart(figure)));
  const map = new LevelMap();
  document.querySelectorAll('.scroll-frame').forEach(addScrollCues);
  listen();
  listRuns();
  followSections();
  const repaint = () => {
    page.runs.forEach((run) => { delete run.colourNow; });
    figures.forEach((figure) => figure.build());
    map.draw();
  };
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', repaint);
  document.documentElement.dataset.ready = 'true';
}

start().catch((error) => {
  document.documentElement.classList.remove('js'); // tables and static figures remain
  console.error(error);
});
