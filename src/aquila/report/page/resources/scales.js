/** Returns whether float64 can still resolve positions within a range. */
function canZoomTo(low, high, log) {
  const size = Math.max(Math.abs(low), Math.abs(high));
  return high - low > 1e-9 * size && size < 1e15 && (!log || low > 1e-15);
}

function widen(low, high, fraction, log) {
  if (log) {
    const factor = (high / low) ** fraction;
    return [low / factor, high * factor];
  }
  const margin = (high - low) * fraction;
  return [low - margin, high + margin];
}

/** Returns round multiples of a unit within a range; uPlot puts no ticks on narrow log scales. */
function ticks(lowest, highest, log, wanted, unitSize = 1) {
  if (unitSize !== 1) {
    return ticks(lowest / unitSize, highest / unitSize, log, wanted).map((tick) => tick * unitSize);
  }
  const [low, high] = [lowest, highest];
  const count = Math.max(wanted, 2);
  if (log && high / low > 8) {
    const decades = Math.log10(high / low);
    const multipliers = decades * 3 <= count ? [1, 2, 5] : [1];
    const every = Math.max(1, Math.ceil(decades / count));
    const found = [];
    for (let n = Math.floor(Math.log10(low)); n <= Math.log10(high); n++) {
      if (n % every === 0) for (const multiplier of multipliers) found.push(Number(`${multiplier}e${n}`));
    }
    return found.filter((tick) => tick >= low && tick <= high);
  }
  const unit = 10 ** Math.floor(Math.log10((high - low) / count));
  const step = unit * [1, 2, 5, 10].find((multiplier) => (high - low) / (unit * multiplier) <= count);
  const found = [];
  for (let n = Math.ceil(low / step); n * step <= high; n++) {
    found.push(Number((n * step).toPrecision(12)));
  }
  return found;
}

/** Returns the trailing moving average over a number of values. */
function smooth(values, window) {
  if (window === 1) return values;
  let sum = 0;
  return values.map((value, n) => {
    sum += value - (n >= window ? values[n - window] : 0);
    return sum / Math.min(n + 1, window);
  });
}
