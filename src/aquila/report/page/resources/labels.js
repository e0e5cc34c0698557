const LABEL_FONT = '600 12px system-ui, sans-serif';
const LABEL_HEIGHT = 15;
const MAX_LABELS = 10;

/**
 * Places the names of lines next to their ends, where they cover few points and no other name.
 * `lines` has {run, points}; points and `frame` {left, top, right, bottom} are in pixels.
 */
function placeLabels(lines, frame, widthOf) {
  const points = lines.flatMap((line) => line.points);
  const placed = [];
  for (const line of lines) {
    const within = line.points.filter(([x, y]) =>
      x >= frame.left && x <= frame.right && y >= frame.top && y <= frame.bottom);
    if (!within.length || placed.length >= MAX_LABELS) continue;
    const [x, y] = within[within.length - 1];
    const width = widthOf(line.run.label);
    let best;
    for (const left of [x + 6, x - width / 2, x - width - 6]) {
      for (const down of [-7, -21, 7, -36, 21, -51, 36, 51, 66]) {
        const box = { left, top: y + down, right: left + width, bottom: y + down + LABEL_HEIGHT };
        const fits = box.left >= frame.left && box.right <= frame.right + 10
          && box.top >= frame.top - 6 && box.bottom <= frame.bottom;
        if (!fits || placed.some((other) => overlap(box, other.box))) continue;
        const covered = points.filter(([a, b]) =>
          a > box.left && a < box.right && b > box.top && b < box.bottom).length;
        const cost = covered + Math.abs(down + 7) / 20 + (left < x ? 0.5 : 0);
        if (!best || cost < best.cost) best = { cost, box };
      }
    }
    if (best) placed.push({ run: line.run, box: best.box });
  }
  return placed;
}

function overlap(a, b) {
  return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
}

/** Draws the names of the shown lines onto the canvas of a chart. */
function drawLabels(chart, u) {
  const { ctx, bbox } = u;
  const ratio = devicePixelRatio || 1;
  const shown = page.runs.map((run, n) => ({ run, n })).filter(({ run }) => run.shown);
  const lines = shown
    .sort((a, b) => b.run.featured - a.run.featured || b.run.is_aquila - a.run.is_aquila)
    .map(({ run, n }) => ({ run, points: chart.pixels(u, n).map(([x, y]) => [x / ratio, y / ratio]) }));
  const frame = { left: bbox.left / ratio, top: bbox.top / ratio,
    right: (bbox.left + bbox.width) / ratio, bottom: (bbox.top + bbox.height) / ratio };
  ctx.save();
  ctx.scale(ratio, ratio);
  ctx.font = LABEL_FONT;
  ctx.textBaseline = 'middle';
  ctx.textAlign = 'left';
  ctx.lineJoin = 'round';
  ctx.lineWidth = 4;
  ctx.strokeStyle = cssVariable('--paper');
  for (const { run, box } of placeLabels(lines, frame, (text) => ctx.measureText(text).width)) {
    const middle = (box.top + box.bottom) / 2;
    ctx.strokeText(run.label, box.left, middle);
    ctx.fillStyle = runColour(run);
    ctx.fillText(run.label, box.left, middle);
  }
  ctx.restore();
}
