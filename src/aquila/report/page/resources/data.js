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
    run.shown = true;
    run.columns = {};
    for (const name of ['round', ...page.costs.map((cost) => cost.key), ...page.charts.map((chart) => chart.column)]) {
      run.columns[name] = takeArray(Float32Array, run.points);
    }
    run.levels = takeArray(Uint8Array, run.map_devices * run.map_rounds);
    run.deviceBytes = takeArray(Float32Array, run.map_devices);
  }
}

const MIB = 2 ** 20;

function cssVariable(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function formatNumber(value, digits = 4) {
  if (value >= 1000) return Math.round(value).toLocaleString('en');
  return String(Number(value.toPrecision(digits)));
}

function formatPercent(value) {
  return `${Number((value * 100).toPrecision(4))}%`;
}

function formatRatio(ratio) {
  if (ratio < 1) return String(Number(ratio.toPrecision(2)));
  return ratio < 10 ? ratio.toFixed(1) : Math.round(ratio).toLocaleString('en');
}
