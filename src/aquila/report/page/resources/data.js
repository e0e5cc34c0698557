const byId = (id) => document.getElementById(id);
const page = JSON.parse(byId('data').textContent);

/** Unpacks the numbers into columns, in the order of packed_data.py. */
async function unpackNumbers() {
  const bytes = Uint8Array.from(atob(page.numbers), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate'));
  const buffer = await new Response(stream).arrayBuffer();
  let offset = 0;
  const takeArray = (ArrayType, count) => {
    const end = offset + count * ArrayType.BYTES_PER_ELEMENT;
    const array = new ArrayType(buffer.slice(offset, end)); // a copy: offsets may be unaligned
    offset = end;
    return array;
  };
  for (const run of page.runs) {
    run.shown = run.featured;
    run.columns = {};
    const charts = page.charts.map((chart) => chart.column);
    const names = ['round', ...page.costs.map((cost) => cost.key), ...charts];
    if (run.seeds) names.push(...charts.flatMap((name) => [`${name}:low`, `${name}:high`]));
    for (const name of names) run.columns[name] = takeArray(Float32Array, run.points);
    run.levels = takeArray(Uint8Array, run.map_devices * run.map_rounds);
    run.deviceBytes = takeArray(Float32Array, run.map_devices);
  }
}
