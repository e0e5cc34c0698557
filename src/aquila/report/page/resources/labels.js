const LABEL_FONT = '600 12px system-ui, sans-serif';
const LABEL_HEIGHT = 15;
const MAX_LABELS = 10;
const SPACING = 4; // pixels between two points that count as covered by a label
const LEADER = 12; // a label further away than this gets a line to its end
const DOWN = [0, -1, 1, -2, 2, -3, 3, -4, 4, -5, 5, -6, 6].map((n) => n * LABEL_HEIGHT);
const GAP = 6;
const REACH = 120; // pixels to the side of an end, for labels above the frame
const ASIDE = [0, 24, 56, 96, 140];

/**
 * Places the names of lines near their ends, where they cover no other name and little of a line.
 * `lines` has {run, points}; points and `frame` {left, top, right, bottom, headroom} are in pixels.
 * Names may be up to `headroom` above the frame. Returns {run, box, leader}, where a leader is the
 * line from the end to a box that is not next to it.
 */
function placeLabels(lines, frame, widthOf) {
  const points = lines.flatMap((line) => alongLine(line.points));
  const ends = lines.map((line) => ({ run: line.run, end: line.points.findLast(([x, y]) =>
    x >= frame.left && x <= frame.right && y >= frame.top && y <= frame.bottom) }))
    .filter(({ end }) => end).slice(0, MAX_LABELS);
  if (frame.headroom) ends.sort((a, b) => b.end[0] - a.end[0]); // leaders then rarely cross
  const placed = [];
  for (const { run, end } of ends) {
    const width = widthOf(run.label);
    const best = cheapest(boxesAbove(end, width, frame), end, points, placed)
      ?? cheapest(boxesNear(end, width, frame), end, points, placed);
    if (best) placed.push({ run, ...best });
  }
  return placed;
}

/** Returns the box that is nearest to an end and covers least, without a clash with others. */
function cheapest(boxes, end, points, placed) {
  let best;
  for (const box of boxes) {
    const leader = leaderTo(box, end);
    const clash = placed.some((other) => overlap(box, other.box)
      || (other.leader && crosses(other.leader, box)) || (leader && crosses(leader, other.box)));
    if (clash) continue;
    const covered = points.filter(([a, b]) =>
      a > box.left && a < box.right && b > box.top && b < box.bottom).length;
    const crossed = placed.filter((other) => leader && other.leader && intersect(leader, other.leader));
    const cost = SPACING * covered + distance(box, end) + (box.left < end[0] ? 6 : 0)
      + 40 * crossed.length;
    if (!best || cost < best.cost) best = { cost, box, leader };
  }
  return best;
}

/** Returns the places of a label in the rows above the frame. */
function boxesAbove([x], width, frame) {
  const found = [];
  for (let top = frame.top - LABEL_HEIGHT - 3; top >= frame.top - 6 - frame.headroom; top -= LABEL_HEIGHT + 1) {
    for (let left = x - width - REACH; left <= x + REACH; left += 8) {
      const right = left + width;
      if (left >= frame.left - 30 && right <= frame.right + 10) found.push({ left, top, right, bottom: top + LABEL_HEIGHT });
    }
  }
  return found;
}

/** Returns points of a line at most SPACING pixels apart. */
function alongLine(points) {
  return points.flatMap(([x, y], n) => {
    if (!n) return [[x, y]];
    const [a, b] = points[n - 1];
    const steps = Math.ceil(Math.hypot(x - a, y - b) / SPACING) || 1;
    return Array.from({ length: Math.min(steps, 400) }, (_, k) =>
      [a + ((x - a) * (k + 1)) / steps, b + ((y - b) * (k + 1)) / steps]);
  });
}

/** Returns the places of a label of this width around an end that are within the frame. */
function boxesNear([x, y], width, frame) {
  const lefts = [x - width / 2, ...ASIDE.flatMap((far) => [x + 6 + far, x - 6 - far - width])];
  return lefts.flatMap((left) => DOWN.map((down) => {
    const top = y + down - LABEL_HEIGHT / 2;
    return { left, top, right: left + width, bottom: top + LABEL_HEIGHT };
  })).filter((box) => box.left >= frame.left && box.right <= frame.right + 10
    && box.top >= frame.top - 6 - frame.headroom && box.bottom <= frame.bottom);
}

/** Returns the point of a box next to an end. */
function nearest(box, [x, y]) {
  return [Math.min(Math.max(x, box.left), box.right), Math.min(Math.max(y, box.top), box.bottom)];
}

function distance(box, end) {
  const [x, y] = nearest(box, end);
  return Math.hypot(x - end[0], y - end[1]);
}

function leaderTo(box, end) {
  return distance(box, end) > LEADER ? [end, nearest(box, end)] : undefined;
}

/** Returns whether a line goes through a box. */
function crosses([from, to], box) {
  return alongLine([from, to]).some(([x, y]) =>
    x > box.left - 2 && x < box.right + 2 && y > box.top && y < box.bottom);
}

/** Returns whether two lines cross each other. */
function intersect([a, b], [c, d]) {
  const side = (p, q, r) => Math.sign((q[0] - p[0]) * (r[1] - p[1]) - (q[1] - p[1]) * (r[0] - p[0]));
  return side(a, b, c) !== side(a, b, d) && side(c, d, a) !== side(c, d, b);
}

function overlap(a, b) {
  return a.left < b.right + GAP && b.left < a.right + GAP && a.top < b.bottom && b.top < a.bottom;
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
    right: (bbox.left + bbox.width) / ratio, bottom: (bbox.top + bbox.height) / ratio,
    headroom: chart.headroom };
  ctx.save();
  ctx.scale(ratio, ratio);
  ctx.font = LABEL_FONT;
  ctx.textBaseline = 'middle';
  ctx.textAlign = 'left';
  ctx.lineJoin = 'round';
  for (const { run, box, leader } of placeLabels(lines, frame, (text) => ctx.measureText(text).width)) {
    const middle = (box.top + box.bottom) / 2;
    if (leader) drawLeader(ctx, leader, runColour(run));
    ctx.lineWidth = 4;
    ctx.strokeStyle = cssVariable('--paper');
    ctx.strokeText(run.label, box.left, middle);
    ctx.fillStyle = runColour(run);
    ctx.fillText(run.label, box.left, middle);
  }
  ctx.restore();
}

function drawLeader(ctx, points, colour) {
  ctx.beginPath();
  ctx.setLineDash([]);
  points.forEach(([x, y]) => ctx.lineTo(x, y));
  ctx.lineWidth = 1;
  ctx.strokeStyle = colour;
  ctx.globalAlpha = 0.55;
  ctx.stroke();
  ctx.globalAlpha = 1;
}
