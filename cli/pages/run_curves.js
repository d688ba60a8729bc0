// Curves of all runs, a chart a quantity: what they are of, where they lie, and what they say at the cursor.
const axisNames = {updates: "updates", epochs: "epochs", time: "time"};
const seen = {axis: "updates", smooth: true, log: false, at: null, run: 0};  // what the reader has chosen
const runColor = i => `var(--run${i % 8})`;

// "validation_accuracy" belongs to the chart of "accuracy".
const baseOf = name => name.replace(/^validation_/, "");
const titles = {loss: "Loss", accuracy: "Accuracy", learning_rate: "Learning rate", gradient_norm: "Gradient norm",
                loss_scale: "Loss scale", images_per_s: "Throughput, images a second", peak_bytes: "Memory at the peak",
                data_wait_share: "Share of time waiting for data"};
const last = ["learning_rate", "gradient_norm", "loss_scale", "images_per_s", "peak_bytes", "data_wait_share"];
const titleOf = base => titles[base] || base.replace(/_/g, " ").replace(/^./, c => c.toUpperCase());
function valueText(base, value) {
  if (base === "peak_bytes") return bytes(value);
  if (base === "data_wait_share") return shareText(value);
  const size = Math.abs(value);
  return size === 0 ? "0" : size >= 1e5 || size < 1e-4 ? value.toExponential(2) : size >= 100 ? exact(value) : String(+value.toPrecision(4));
}

// Charts in the order: loss, metrics, then how it went. A scale that never changes says nothing.
function chartsOf(runs) {
  const bases = [];
  for (const run of runs) for (const curve of run.curves) if (!bases.includes(baseOf(curve.name))) bases.push(baseOf(curve.name));
  const changes = base => base !== "loss_scale" || runs.some(run => run.curves.some(c => c.name === base && new Set(c.y).size > 1));
  const place = base => base === "loss" ? -2 : base === "accuracy" ? -1 : last.indexOf(base) < 0 ? 0 : 1 + last.indexOf(base);
  return bases.filter(changes).sort((a, b) => place(a) - place(b)).map(base => ({base, lines: linesOf(runs, base)}));
}

// One run's two curves have two colours; of several, each run has one.
const colorOf = (runs, r, validation) => runColor(runs.length === 1 && validation ? 1 : r);
function linesOf(runs, base) {
  const lines = [];
  runs.forEach((run, r) => run.curves.filter(c => baseOf(c.name) === base).forEach(curve => {
    const validation = curve.name !== base;
    lines.push({run: r, validation, base, color: colorOf(runs, r, validation), curve, x: placesOf(run, curve), y: curve.y,
                name: (runs.length > 1 ? run.name + " " : "") + (validation ? "validation" : runs.length > 1 ? "" : "training")});
  }));
  if (lines.length === 1 && runs.length === 1 && !lines[0].validation) lines[0].name = "";  // there is nothing to tell it from
  return lines;
}

function placesOf(run, curve) {
  if (seen.axis === "time") return curve.t;
  const epoch = run.updates_per_epoch || 1;
  return seen.axis === "epochs" ? curve.x.map(x => x / epoch) : curve.x;
}

// The mean of about a thirtieth of the curve around each point, of fewer near its ends.
function smoothed(y) {
  const sums = [0], half = Math.floor(y.length / 60);
  for (const value of y) sums.push(sums[sums.length - 1] + value);
  return y.map((_, i) => {
    const from = Math.max(0, i - half), to = Math.min(y.length, i + half + 1);
    return (sums[to] - sums[from]) / (to - from);
  });
}
const isNoisy = line => !line.validation && line.y.length > 60 && !["learning_rate", "peak_bytes", "data_wait_share"].includes(line.base);

const shareText = v => v === null || !Number.isFinite(v) ? "–" : (100 * v).toFixed(1) + "\u00a0%";

// As the program writes durations: "350ms", "8.3s", "42s", "1m 23s", "2h 05m", "3d 04h".
function longTime(s) {
  if (s < 0.9995) return Math.round(s * 1000) + "ms";
  if (s < 9.95) return s.toFixed(1) + "s";
  const whole = Math.round(s), two = n => String(n).padStart(2, "0");
  if (whole < 60) return whole + "s";
  if (whole < 3600) return `${Math.floor(whole / 60)}m ${two(whole % 60)}s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)}h ${two(Math.floor(whole / 60) % 60)}m`;
  return `${Math.floor(whole / 86400)}d ${two(Math.floor(whole / 3600) % 24)}h`;
}

// Rounded values between two ends; of sizes in whole units of 1024.
function ticksOf(low, high, wanted, unit = 1) {
  if (unit !== 1) return ticksOf(low / unit, high / unit, wanted).map(v => v * unit);
  const raw = (high - low) / wanted, power = 10 ** Math.floor(Math.log10(raw || 1));
  const step = [1, 2, 2.5, 5, 10].map(m => m * power).find(s => s >= raw) || power;
  const out = [];
  for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + step * 1e-9; v += step) out.push(Math.abs(v) < step * 1e-9 ? 0 : v);
  return out;
}
function logTicks(low, high) {
  const out = [];
  for (let p = Math.floor(Math.log10(low)); p <= Math.ceil(Math.log10(high)); ++p)
    for (const m of high / low > 50 ? [1] : [1, 2, 5]) if (m * 10 ** p >= low && m * 10 ** p <= high) out.push(m * 10 ** p);
  return out;
}
// The nearest 1, 2 or 5 times a power of ten that is not above (below: by = 1) the value.
function logEnd(value, by) {
  const steps = [1, 2, 5].flatMap(m => [-1, 0, 1].map(p => m * 10 ** (Math.floor(Math.log10(value)) + p))).sort((a, b) => a - b);
  return by < 0 ? steps.filter(step => step <= value * (1 + 1e-9)).pop() : steps.find(step => step >= value * (1 - 1e-9));
}
const timeSteps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400];
function timeTicks(high, wanted) {
  const step = timeSteps.find(s => high / s <= wanted);
  return high < 5 || !step ? ticksOf(0, high, wanted) : Array.from({length: Math.floor(high / step) + 1}, (_, i) => i * step);
}

function placeText(x) {
  if (seen.axis === "time") return x === 0 ? "0s" : longTime(x);
  return seen.axis === "epochs" ? String(+x.toFixed(2)) : exact(x);
}

// What a screen reader is told of a chart: each line's first, last, least and largest value.
function wordsOf(chart) {
  const say = v => valueText(chart.base, v);
  const parts = chart.lines.filter(line => line.y.length > 0).map(line =>
    `${line.name || titleOf(chart.base)}: from ${say(line.y[0])} to ${say(line.y[line.y.length - 1])}, ` +
    `least ${say(Math.min(...line.y))}, largest ${say(Math.max(...line.y))}`);
  return `${titleOf(chart.base)} over ${axisNames[seen.axis]}. ${parts.join("; ")}.`;
}

function nearestIndex(xs, at) {
  let low = 0, high = xs.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] <= at) low = middle; else high = middle;
  }
  return Math.abs(xs[high] - at) < Math.abs(xs[low] - at) ? high : low;
}
function readoutOf(chart, at) {
  if (at === null) return "";
  const parts = chart.lines.filter(line => line.y.length > 0).map(line => `${line.name} ${valueText(chart.base, line.y[nearestIndex(line.x, at)])}`.trim());
  const unit = {updates: "Update ", epochs: "Epoch ", time: "After "}[seen.axis];
  return `${unit}${placeText(at)}: ${parts.join(", ")}`;
}
