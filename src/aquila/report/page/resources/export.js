/** Saves text as a file. */
function saveFile(name, text, type) {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function csvLine(cells) {
  return cells.map((cell) => {
    const text = String(cell);
    return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }).join(',');
}

function fileName(title, ending) {
  return `${title.toLowerCase().replace(/[^a-z0-9]+/g, '_').replace(/^_|_$/g, '')}.${ending}`;
}

function saveChart(chart, kind) {
  if (kind === 'csv') saveFile(fileName(chart.spec.title, 'csv'), chartCsv(chart), 'text/csv');
  else saveFile(fileName(chart.spec.title, 'svg'), chartSvg(chart), 'image/svg+xml');
}

/** Returns one line per shown run and point: the data of a figure as it is drawn. */
function chartCsv(chart) {
  const lines = [csvLine(['run', chart.cost ? chart.cost.title : 'round', chart.spec.title])];
  page.runs.forEach((run, n) => {
    if (!run.shown) return;
    const [xs, ys] = chart.lines[n];
    xs.forEach((x, i) => lines.push(csvLine([run.label, x, ys[i]])));
  });
  return `${lines.join('\n')}\n`;
}

/** Returns a figure as it is shown, as a vector graphic. */
function chartSvg(chart) {
  const u = chart.plot;
  const ratio = devicePixelRatio || 1;
  const box = Object.fromEntries(Object.entries(u.bbox).map(([key, value]) => [key, value / ratio]));
  const escape = (text) => text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
  const at = (number) => Math.round(number * 10) / 10;
  const text = (content, x, y, more = '') => `<text x="${at(x)}" y="${at(y)}" ${more}>${escape(content)}</text>`;
  const muted = cssVariable('--muted');
  const parts = [`<rect width="100%" height="100%" fill="${cssVariable('--paper')}"/>`];
  u.axes.forEach((axis, side) => {
    const scale = side ? 'y' : 'x';
    const [low, high] = [u.scales[scale].min, u.scales[scale].max];
    const splits = axis.splits(u, side, low, high);
    axis.values(u, splits).forEach((label, n) => {
      const where = u.valToPos(splits[n], scale, true) / ratio;
      const line = side ? `M${box.left} ${at(where)}h${box.width}` : `M${at(where)} ${box.top}v${box.height}`;
      parts.push(`<path d="${line}" stroke="${cssVariable('--rule')}"/>`);
      parts.push(side ? text(label, box.left - 6, where + 4, `text-anchor="end" fill="${muted}"`)
        : text(label, where, box.top + box.height + 16, `text-anchor="middle" fill="${muted}"`));
    });
  });
  const lines = [];
  page.runs.forEach((run, n) => {
    if (!run.shown) return;
    const pixels = (line) => chart.pixels(u, n, line).map(([x, y]) => [x / ratio, y / ratio]);
    const path = (points) => points.map(([x, y]) => `${at(x)},${at(y)}`).join(' ');
    const colour = runColour(run);
    if (chart.bands[n]) {
      const [low, high] = chart.bands[n].map(pixels);
      parts.push(`<polygon points="${path([...low, ...high.reverse()])}" fill="${colour}" fill-opacity=".18" clip-path="url(#c)"/>`);
    }
    const points = pixels(chart.lines[n]);
    lines.push({ run, points });
    parts.push(`<polyline points="${path(points)}" fill="none" stroke="${colour}" stroke-width="${run.is_aquila ? 2.6 : 1.6}" stroke-dasharray="${DASHES[run.dash].join(' ')}" clip-path="url(#c)"/>`);
  });
  const frame = { left: box.left, top: box.top, right: box.left + box.width, bottom: box.top + box.height,
    headroom: Math.max(0, chart.headroom - 18) }; // the title takes the rest
  for (const { run, box: place, leader } of placeLabels(lines, frame, (name) => 6.9 * name.length)) {
    if (leader) parts.push(`<path d="M${leader.map((p) => p.map(at).join(' ')).join('L')}" stroke="${runColour(run)}" stroke-opacity=".55"/>`);
    parts.push(text(run.label, place.left, place.bottom - 4, `fill="${runColour(run)}" font-weight="600"`));
  }
  const title = chart.figure.querySelector('h3').textContent;
  parts.push(text(title, box.left, 18, `fill="${cssVariable('--ink')}" font-size="14" font-weight="600"`));
  parts.push(text(chart.cost ? chart.cost.label : 'round', frame.right, frame.bottom + 34, `text-anchor="end" fill="${muted}"`));
  const clip = `<clipPath id="c"><rect x="${box.left}" y="${box.top}" width="${box.width}" height="${box.height}"/></clipPath>`;
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${u.width} ${u.height}" width="${u.width}" height="${u.height}" font-family="system-ui, sans-serif" font-size="12">${clip}${parts.join('')}</svg>\n`;
}

function tableRows(table) {
  const rows = [table.tHead.rows[0], ...table.tBodies[0].rows].filter((row) => !row.hidden);
  return rows.map((row) => [...row.cells]);
}

/** Returns a table with plain numbers: bytes, seconds and fractions. */
function tableCsv(table) {
  return `${tableRows(table).map((cells) =>
    csvLine(cells.map((cell) => cell.dataset.value ?? cell.textContent.trim()))).join('\n')}\n`;
}

function tableMarkdown(table) {
  const [head, ...body] = tableRows(table).map((cells) =>
    `| ${cells.map((cell) => cell.textContent.trim().replaceAll('|', '\\|')).join(' | ')} |`);
  const rule = `|${[...table.tHead.rows[0].cells].map((_, n) => (n ? '---:' : '---')).join('|')}|`;
  return `${[head, rule, ...body].join('\n')}\n`;
}

/** Copies text, and says so on the button. Pages opened as files may lack a clipboard. */
async function copyText(button, text) {
  let copied = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.createElement('textarea');
    area.value = text;
    document.body.append(area);
    area.select();
    copied = document.execCommand('copy');
    area.remove();
  }
  const before = button.textContent;
  button.textContent = copied ? 'copied' : 'not copied';
  setTimeout(() => { button.textContent = before; }, 1500);
}
