// What the charts and tables read: the trace as typed arrays, bytes by category after each call.
const data = JSON.parse(document.getElementById("data").textContent);
const categories = data.categories;
const ticks = data.events.us.length;
const life = data.intervals;
const intervals = life.lower.length;
for (let i = 0; i < intervals; ++i) if (life.upper[i] < 0) life.upper[i] = ticks;

// totals[c][t]: bytes of category c in use after call t; inUse[t]: their sum.
const totals = categories.map(() => new Float64Array(ticks + 1));
const inUse = new Float64Array(ticks);
for (let i = 0; i < intervals; ++i) {
  totals[life.category[i]][life.lower[i]] += life.bytes[i];
  totals[life.category[i]][life.upper[i]] -= life.bytes[i];
}
for (const line of totals)
  for (let t = 0, sum = 0; t < ticks; ++t) inUse[t] += line[t] = sum += line[t];

const rangeFirst = data.ranges.map(() => ticks);  // the call that used a range of addresses first
function rangeOf(offset) {
  let low = 0, high = data.ranges.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (data.ranges[middle].offset <= offset) low = middle; else high = middle - 1;
  }
  return low;
}
for (let i = 0; i < intervals; ++i) {
  const range = rangeOf(life.offset[i]);
  rangeFirst[range] = Math.min(rangeFirst[range], life.lower[i]);
}
const rowBytes = data.ranges.reduce((sum, range) => sum + range.bytes, 0);

function stepAt(tick) {
  for (const step of data.steps) if (tick >= step.lower && tick < step.upper) return "step " + step.number;
  return "before the first step";
}
function phaseAt(tick) {
  let name = "";
  for (const phase of data.phases) { if (phase.tick > tick) break; name = phase.name; }
  return name;
}
function ownerOf(i) { return data.owners[life.owner[i]] || "(no name)"; }
