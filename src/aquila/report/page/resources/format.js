const SPACE = '\u00a0';
const BYTE_UNITS = page.costs[0].units;

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

/** Returns a value with three digits and its unit, as units.py does. */
function formatQuantity(value, units) {
  const rounded = (unit) => Number((value / unit[1]).toPrecision(3));
  const [name, size] = units.findLast((unit) => Math.abs(rounded(unit)) >= 1) ?? units[0];
  const number = rounded([name, size]);
  if (number >= 100) return `${Math.round(number).toLocaleString('en')}${SPACE}${name}`;
  const whole = (size === 1 && Number.isInteger(number)) || number < 1;
  return `${whole ? number : number.toPrecision(3)}${SPACE}${name}`;
}

function formatBytes(value) {
  return formatQuantity(value, BYTE_UNITS);
}

/** Returns a round number of bytes without trailing zeros, for the tick of an axis. */
function formatByteTick(value) {
  const [name, size] = BYTE_UNITS.findLast((unit) => value >= unit[1]) ?? BYTE_UNITS[0];
  return `${formatNumber(value / size)}${SPACE}${name}`;
}

/** Returns the function that formats ticks of an axis that shows a cost. */
function costTicks(cost) {
  return cost.units === BYTE_UNITS || cost.key === 'both' ? formatByteTick
    : (value) => formatNumber(value / cost.axis_size);
}
