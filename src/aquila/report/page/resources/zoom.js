/** Zooms to a window, given as fractions of width and height from the top left. */
Chart.prototype.showWindow = function showWindow(left, top, right, bottom) {
  const { over } = this.plot;
  const at = (fraction, side) =>
    this.plot.posToVal(fraction * (side === 'x' ? over.clientWidth : over.clientHeight), side);
  const x = [at(left, 'x'), at(right, 'x')];
  const y = [at(bottom, 'y'), at(top, 'y')];
  if (canZoomTo(...x, Boolean(this.cost)) && canZoomTo(...y, this.log)) {
    this.zoomed = true;
    this.show({ x, y });
  }
};

Chart.prototype.zoom = function zoom(factor, x = 0.5, y = 0.5) {
  this.showWindow(x - x * factor, y - y * factor, x + (1 - x) * factor, y + (1 - y) * factor);
};

Chart.prototype.move = function move(x, y) {
  this.showWindow(x, y, 1 + x, 1 + y);
};

Chart.prototype.listen = function listen() {
  const { container, figure } = this;
  container.addEventListener('wheel', (event) => {
    const wantsZoom = event.ctrlKey || event.metaKey || container.contains(document.activeElement);
    if (!wantsZoom) return; // otherwise the page could not scroll past a figure
    event.preventDefault();
    const box = this.plot.over.getBoundingClientRect();
    const at = [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
    this.zoom(event.deltaY > 0 ? 1.25 : 0.8, ...at);
  }, { passive: false });
  container.addEventListener('pointerdown', () => container.focus({ preventScroll: true }));
  container.addEventListener('pointerleave', () => linkCursors(this, undefined));
  container.addEventListener('keydown', (event) => {
    const act = {
      '+': () => this.zoom(0.8), '=': () => this.zoom(0.8), '-': () => this.zoom(1.25),
      '0': () => this.reset(), Escape: () => this.reset(),
      ArrowLeft: () => this.move(-0.1, 0), ArrowRight: () => this.move(0.1, 0),
      ArrowUp: () => this.move(0, -0.1), ArrowDown: () => this.move(0, 0.1),
    }[event.key];
    if (act && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      act();
    }
  });
  const buttons = { in: () => this.zoom(0.7), out: () => this.zoom(1.4), reset: () => this.reset() };
  for (const button of figure.querySelectorAll('[data-zoom]')) {
    button.addEventListener('click', buttons[button.dataset.zoom]);
  }
  for (const button of figure.querySelectorAll('[data-save]')) {
    button.addEventListener('click', () => saveChart(this, button.dataset.save));
  }
  new ResizeObserver(() => {
    const [width, height] = [container.clientWidth, container.clientHeight];
    if (width && height) this.plot.setSize({ width, height });
  }).observe(container);
};
