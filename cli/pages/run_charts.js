// Drawing of charts as SVG, and the cursor that they share.
const frame = {left: 58, right: 10, top: 8, bottom: 24};

// Where a few values are much larger than all others: an end that the others fill.
function withoutSpikes(values, most) {
  const sorted = values.slice().sort((a, b) => a - b), usual = sorted[Math.floor(0.95 * (sorted.length - 1))];
  return sorted.length >= 20 && usual > 0 && most > 3 * usual ? 1.5 * usual : most;
}
// Values with a line of the grid and a label, the first and the last of which are the axis' ends.
function gridOf(chart, least, most, log) {
  if (log) {
    const [low, high] = [logEnd(least, -1), logEnd(most, 1)];
    return [...new Set([low, ...logTicks(low, high), high])];
  }
  const unit = chart.base === "peak_bytes" ? 1024 ** Math.floor(Math.log2(most) / 10) : 1;
  const inner = ticksOf(least, most, 4, unit), step = inner.length > 1 ? inner[1] - inner[0] : most - least;
  const first = Math.floor(least / step + 1e-9), last = Math.ceil(most / step - 1e-9);
  return Array.from({length: last - first + 1}, (_, i) => (first + i) * step);
}
function scaleOf(chart, width, height) {
  const xs = chart.lines.flatMap(line => [line.x[0], line.x[line.x.length - 1]]).filter(Number.isFinite);
  const low = seen.axis === "time" || chart.lines.length === 0 ? 0 : Math.min(...xs, 0), high = Math.max(...xs, low + 1e-9);
  const values = chart.lines.flatMap(line => line.y), positive = values.filter(v => v > 0);
  const log = seen.log && ["loss", "gradient_norm", "learning_rate"].includes(chart.base) && positive.length > 0;
  let least = Math.min(...(log ? positive : values)), most = Math.max(...values);
  if (["peak_bytes", "images_per_s", "data_wait_share"].includes(chart.base)) { least = 0; most *= 1.08; }
  if (chart.base === "data_wait_share") most = Math.max(most, 0.01);
  const cut = ["gradient_norm", "images_per_s"].includes(chart.base) && !log ? withoutSpikes(values, most) : most, spike = cut < most ? most : null;
  most = cut;
  if (least >= most) { const wide = Math.abs(least) / 2 || 1; least -= log ? wide / 2 : wide; most += wide; }
  const grid = gridOf(chart, least, most, log);
  [least, most] = [grid[0], grid[grid.length - 1]];
  const to = log ? Math.log : v => v;
  const inner = {width: width - frame.left - frame.right, height: height - frame.top - frame.bottom};
  return {low, high, least, most, log, grid, spike,
          x: v => frame.left + inner.width * (v - low) / (high - low),
          y: v => frame.top + inner.height * (to(most) - to(Math.min(most, Math.max(v, log ? least : v)))) / (to(most) - to(least)),
          at: px => low + (high - low) * Math.min(1, Math.max(0, (px - frame.left) / inner.width))};
}

function tickText(base, v) {
  if (base === "peak_bytes") return bytes(v).replace(/\.0+(?=\D)/, "");
  return base === "data_wait_share" ? `${+(100 * v).toPrecision(3)} %` : valueText(base, v);
}
function axesOf(chart, scale, width, height) {
  const parts = [], floor = height - frame.bottom;
  for (const v of scale.grid)
    parts.push(`<line class="grid" x1="${frame.left}" x2="${width - frame.right}" y1="${scale.y(v)}" y2="${scale.y(v)}"/>` +
               `<text x="${frame.left - 6}" y="${scale.y(v) + 4}" text-anchor="end">${tickText(chart.base, v)}</text>`);
  const wanted = Math.max(2, Math.floor(width / 110)), room = 60;
  const inner = seen.axis === "time" ? timeTicks(scale.high, wanted) : ticksOf(scale.low, scale.high, wanted);
  for (const v of [scale.low, ...inner.filter(v => scale.x(v) > scale.x(scale.low) + room && scale.x(v) < scale.x(scale.high) - room), scale.high])
    parts.push(`<text x="${scale.x(v)}" y="${floor + 16}" text-anchor="${v === scale.high ? "end" : v === scale.low ? "start" : "middle"}">${placeText(v)}</text>`);
  if (scale.spike !== null) parts.push(`<text x="${width - frame.right}" y="${frame.top + 12}" text-anchor="end">cut off: up to ${tickText(chart.base, scale.spike)}</text>`);
  return parts.join("");
}

function pathOf(xs, ys, scale) {
  return xs.map((x, i) => `${i ? "L" : "M"}${scale.x(x).toFixed(1)},${scale.y(ys[i]).toFixed(1)}`).join("");
}
function drawnLine(line, scale) {
  const style = `fill="none" stroke="${line.color}" stroke-linejoin="round"`, dash = line.validation ? ' stroke-dasharray="7 4"' : "";
  if (line.y.length === 1) return `<circle cx="${scale.x(line.x[0])}" cy="${scale.y(line.y[0])}" r="3.5" fill="${line.color}"/>`;
  const dots = line.validation && line.y.length <= 40
    ? line.x.map((x, i) => `<circle cx="${scale.x(x).toFixed(1)}" cy="${scale.y(line.y[i]).toFixed(1)}" r="2.5" fill="${line.color}"/>`).join("") : "";
  if (!seen.smooth || !isNoisy(line)) return `<path d="${pathOf(line.x, line.y, scale)}" ${style} stroke-width="2"${dash}/>${dots}`;
  return `<path d="${pathOf(line.x, line.y, scale)}" ${style} opacity="0.28"/><path d="${pathOf(line.x, smoothed(line.y.map(v => Math.min(v, scale.most))), scale)}" ${style} stroke-width="2"/>`;
}

function drawChart(chart) {
  const svg = chart.svg, width = Math.max(240, svg.clientWidth), height = svg.clientHeight || 210;
  const scale = chart.scale = scaleOf(chart, width, height);
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const at = seen.at;
  const cursor = at === null || at < scale.low || at > scale.high ? "" :
    `<line class="cursor" x1="${scale.x(at)}" x2="${scale.x(at)}" y1="${frame.top}" y2="${height - frame.bottom}"/>` +
    chart.lines.filter(line => line.y.length > 0).map(line => {
      const i = nearestIndex(line.x, at);
      return `<circle cx="${scale.x(line.x[i])}" cy="${scale.y(line.y[i])}" r="3.5" fill="${line.color}"/>`;
    }).join("");
  svg.innerHTML = axesOf(chart, scale, width, height) + chart.lines.map(line => drawnLine(line, scale)).join("") + cursor;
  const say = readoutOf(chart, at);
  chart.readout.textContent = say || lastWords(chart);
  const states = {"aria-label": wordsOf(chart), "aria-valuemin": scale.low, "aria-valuemax": scale.high,
                  "aria-valuenow": at === null ? scale.high : at, "aria-valuetext": say || lastWords(chart)};
  for (const [name, value] of Object.entries(states)) svg.setAttribute(name, value);
}
function lastWords(chart) {
  const parts = chart.lines.filter(line => line.y.length > 0).map(line => `${line.name} ${valueText(chart.base, line.y[line.y.length - 1])}`.trim());
  return parts.length > 0 ? `Last: ${parts.join(", ")}` : "";
}

function moveCursor(chart, event) {
  const xs = [...new Set(chart.lines.flatMap(line => line.x))].sort((a, b) => a - b);
  if (xs.length === 0 || event.ctrlKey || event.altKey || event.metaKey) return;
  const here = seen.at === null ? xs.length - 1 : nearestIndex(xs, seen.at), far = Math.max(1, Math.round(xs.length / 10));
  const targets = {ArrowLeft: here - 1, ArrowRight: here + 1, ArrowDown: here - 1, ArrowUp: here + 1, PageUp: here + far,
                   PageDown: here - far, Home: 0, End: xs.length - 1};
  if (event.key === "Escape") seen.at = null;
  else if (event.key in targets) seen.at = xs[Math.min(xs.length - 1, Math.max(0, targets[event.key]))];
  else return;
  event.preventDefault();
  redraw();
}
function pointAt(chart, event) {
  seen.at = chart.scale.at(event.clientX - chart.svg.getBoundingClientRect().left);
  redraw();
}

let charts = [], drawing = 0;
function redraw() {  // at most once a frame, however fast the pointer moves
  if (drawing !== 0) return;
  drawing = requestAnimationFrame(() => {
    drawing = 0;
    charts.forEach(drawChart);
  });
}

// Charts keep their elements, and with them the focus, while their curves grow.
function showCharts(runs) {
  const where = document.getElementById("charts"), before = new Map(charts.map(chart => [chart.base, chart]));
  charts = chartsOf(runs).map(chart => {
    const old = before.get(chart.base);
    if (old) return Object.assign(old, {lines: chart.lines});
    chart.svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    for (const [name, value] of Object.entries({role: "slider", tabindex: "0", "aria-describedby": "curve-keys"})) chart.svg.setAttribute(name, value);
    chart.readout = element("p", {class: "readout"});
    chart.figure = element("figure", {}, element("h3", {}, titleOf(chart.base)), chart.svg, chart.readout);
    chart.svg.addEventListener("keydown", event => moveCursor(chart, event));
    for (const name of ["pointermove", "pointerdown"]) chart.svg.addEventListener(name, event => pointAt(chart, event));
    chart.svg.addEventListener("pointerleave", event => { if (event.pointerType === "mouse") { seen.at = null; redraw(); } });
    return chart;
  });
  where.replaceChildren(...charts.map(chart => chart.figure));
  if (charts.length === 0) where.append(element("p", {}, "Nothing is logged yet."));
  charts.forEach(drawChart);
}

function showLegend(runs) {
  const item = (color, dashed, name) => element("div", {role: "listitem"}, element("span", {class: "line" + (dashed ? " dashed" : ""), style: `border-color: ${color}`}), name);
  const items = runs.length > 1 ? runs.map((run, r) => item(runColor(r), false, run.name)) : [item(runColor(0), false, "training")];
  if (runs.some(run => run.curves.some(c => c.name.startsWith("validation_")))) items.push(item(runs.length > 1 ? "var(--soft)" : runColor(1), true, "validation"));
  document.getElementById("curve-legend").replaceChildren(...items);
}
