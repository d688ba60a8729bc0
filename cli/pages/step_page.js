// The page of a step's profile: a flame chart, one step over time, tables.
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const profile = data.profile;
const phases = ["input", "forward", "backward", "recompute", "rebuild", "update"];

function $(id) { return document.getElementById(id); }
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}
function color(name) { return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim(); }
function duration(us) {
  return us < 1e3 ? us.toFixed(1) + " µs" : us < 1e6 ? (us / 1e3).toFixed(us < 1e4 ? 2 : 1) + " ms" : (us / 1e6).toFixed(2) + " s";
}
// Of times that are compared: all in the unit of the longest.
function durations(longest) {
  const [unit, name, digits] = longest < 1e3 ? [1, " µs", 1] : longest < 1e6 ? [1e3, " ms", 3] : [1e6, " s", 3];
  return us => (us / unit).toFixed(digits) + name;
}
function share(us) { return (100 * us / profile.step_us).toFixed(1) + " %"; }
function operationName(name) { return name || "(no operation)"; }
function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; n >= 1023.5 && unit < 4; ++unit) n /= 1024;
  return n.toFixed(unit === 0 || n >= 99.95 ? 0 : n < 9.995 ? 2 : 1) + " " + units[unit];
}

// The tree: step, phase, parts of the operation's path, kernel.
function node(name, kind) { return {name, kind, us: 0, children: new Map()}; }
function child(parent, key, name, kind) {
  if (!parent.children.has(key)) parent.children.set(key, node(name, kind));
  return parent.children.get(key);
}
function tree() {
  const root = node("one step", "step");
  for (const kernel of profile.kernels) {
    const path = [child(root, kernel.phase, kernel.phase, kernel.phase)];
    for (const part of operationName(kernel.operation).split("/"))
      path.push(child(path[path.length - 1], "o" + part, part, kernel.phase));
    const name = kernel.device_kernel || kernel.kernel || "(copies)";
    path.push(child(path[path.length - 1], "k" + name, name, kernel.phase));
    for (const place of path) place.us += kernel.us;
  }
  const gaps = child(root, "gap", "gaps", "gap");
  for (const gap of profile.gaps) {
    child(gaps, "k" + gap.after + "/" + gap.before, gapName(gap), "gap").us += gap.us;
    gaps.us += gap.us;
  }
  if (gaps.us === 0) root.children.delete("gap");
  root.us = profile.step_us;
  settle(root, null, 0);
  return root;
}
function gapName(gap) {
  return `after ${gap.after || "the step before"}, before ${gap.before || "the next step"}`;
}
function settle(place, parent, depth) {
  place.parent = parent;
  place.depth = depth;
  const rank = part => phases.indexOf(part.name);
  place.children = [...place.children.values()];
  if (depth === 0) place.children.sort((a, b) => (rank(a) + 7) % 7 - (rank(b) + 7) % 7);
  for (const part of place.children) settle(part, place, depth + 1);
}

const root = tree();
let shown = root, current = root;
const rowHeight = 25;
function words(place) {
  const path = [];
  for (let at = place; at.parent; at = at.parent) path.unshift(at.name);
  return `${path.length === 0 ? place.name : path.join(" › ")}: ${duration(place.us)}, ${share(place.us)} of a step`;
}
function deepest(place) { return Math.max(place.depth, ...place.children.map(deepest)); }
// A label that is not readable is left out: one that is cut needs room for its first letters.
function put(place, left, width, focus) {
  const pixels = width / 100 * $("flame").clientWidth, labelled = pixels > Math.min(72, 14 + 7 * place.name.length);
  const button = element("button", {role: "treeitem", "aria-level": place.depth + 1, "aria-label": words(place),
    title: words(place), tabindex: place === focus ? 0 : -1, class: labelled ? "" : "narrow"}, labelled ? place.name : "");
  button.style.cssText = `left:${left}%;width:${width}%;top:${place.depth * rowHeight}px;` +
    `background:color-mix(in srgb, var(--${place.kind}) ${place.depth % 2 ? 38 : 28}%, var(--card))`;
  button.addEventListener("click", () => widen(place));
  button.addEventListener("focus", () => tell(place));
  button.addEventListener("pointerenter", () => tell(place));
  place.button = button;
  $("flame").append(button);
}
function lay(place, left, width, focus) {
  if (width < 0.08) return;
  put(place, left, width, focus);
  let at = left;
  for (const part of place.children) {
    const wide = width * part.us / Math.max(place.us, 1e-12);
    lay(part, at, wide, focus);
    at += wide;
  }
}
function forget(place) { place.button = null; place.children.forEach(forget); }
function drawFlame() {
  $("flame").textContent = "";
  forget(root);
  for (let above = shown.parent; above; above = above.parent) put(above, 0, 100, current);
  lay(shown, 0, 100, current);
  $("flame").style.height = (deepest(shown) + 1) * rowHeight + "px";
}
function tell(place) { $("flame-now").textContent = words(place); }
function widen(place) {
  shown = current = place;
  drawFlame();
  place.button.focus();
}
function move(to) {
  if (!to || !to.button) return;
  current.button.tabIndex = -1;
  current = to;
  to.button.tabIndex = 0;
  to.button.focus();
}
function beside(place, by) {
  const row = [];
  (function collect(at) { if (at.depth === place.depth) row.push(at); else at.children.forEach(collect); })(root);
  for (let i = row.indexOf(place) + by; i >= 0 && i < row.length; i += by) if (row[i].button) return row[i];
  return null;
}
$("flame").addEventListener("keydown", event => {
  const to = {ArrowUp: () => current.parent, ArrowLeft: () => beside(current, -1), ArrowRight: () => beside(current, 1),
    ArrowDown: () => [...current.children].filter(part => part.button).sort((a, b) => b.us - a.us)[0]}[event.key];
  if (event.key === "Escape") widen(root);
  else if (to) move(to());
  else return;
  event.preventDefault();
});

// One step over time: rows of kernels and, on the CPU, of threads.
const slices = data.slices, count = slices.begin.length;
const lanes = 1 + profile.threads.length;
let from = 0, until = data.slices_us, picked = -1;
function sliceWords(i) {
  const operation = operationName(data.operations[slices.operation[i]]);
  const what = slices.gap[i] ? "gap before " + operation : `${data.kernels[slices.kernel[i]]} of ${operation}, ${phases[slices.phase[i]]}`;
  return `${what}: ${duration(slices.end[i] - slices.begin[i])}, from ${duration(slices.begin[i])} on`;
}
function drawLine() {
  const canvas = $("line"), box = canvas.getBoundingClientRect(), ratio = devicePixelRatio || 1;
  canvas.width = Math.round(box.width * ratio);
  canvas.height = Math.round(box.height * ratio);
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.font = "12px system-ui, 'DejaVu Sans', sans-serif";
  const top = 4, bottom = 20, height = (box.height - top - bottom) / lanes;
  const x = us => (us - from) / (until - from) * box.width;
  const paint = Object.fromEntries([...phases, "gap"].map(name => [name, color(name === "input" ? "input" : resolve(name))]));
  for (let i = 0; i < count; ++i) {
    if (slices.end[i] < from || slices.begin[i] > until) continue;
    pen.fillStyle = slices.gap[i] ? paint.gap : paint[phases[slices.phase[i]]];
    const left = x(slices.begin[i]), wide = x(slices.end[i]) - left;
    pen.fillRect(left, top, Math.max(wide - (wide > 3 ? 0.7 : 0), 0.4), height - 4);
    if (i === picked) { pen.strokeStyle = color("ink"); pen.lineWidth = 2; pen.strokeRect(left, top, Math.max(wide, 2), height - 4); }
  }
  for (const span of data.spans) {
    if (span.end < from || span.begin > until) continue;
    pen.fillStyle = span.waits ? color("gap") : color("other");
    pen.fillRect(x(span.begin), top + (1 + span.thread) * height, Math.max(x(span.end) - x(span.begin), 0.4), height - 6);
  }
  drawAxis(pen, box, x);
}
function resolve(name) {
  return {forward: "parameter", backward: "gradient", update: "optimizer", recompute: "workspace", rebuild: "activation", gap: "mark"}[name];
}
function drawAxis(pen, box, x) {
  pen.fillStyle = color("soft");
  pen.textBaseline = "bottom";
  const time = durations(until), parts = box.width < 500 ? 2 : 4;
  for (let i = 0; i <= parts; ++i) {
    const us = from + (until - from) * i / parts;
    pen.textAlign = i === 0 ? "left" : i === parts ? "right" : "center";
    pen.fillText(time(us), x(us), box.height - 2);
  }
}
function pick(i) {
  if (count === 0) return;
  picked = Math.max(0, Math.min(count - 1, i));
  const span = until - from;
  if (slices.begin[picked] < from || slices.end[picked] > until) {
    from = Math.max(0, Math.min(slices.begin[picked] - span / 4, data.slices_us - span));
    until = from + span;
  }
  const line = $("line");
  line.setAttribute("aria-valuenow", picked + 1);
  line.setAttribute("aria-valuetext", sliceWords(picked));
  $("line-now").textContent = sliceWords(picked);
  drawLine();
}
function scale(by) {
  const at = picked >= 0 ? slices.begin[picked] : (from + until) / 2;
  const span = Math.min(data.slices_us, Math.max((until - from) * by, 1));
  from = Math.max(0, Math.min(at - span / 2, data.slices_us - span));
  until = from + span;
  drawLine();
}
function pointed(event) {
  const box = $("line").getBoundingClientRect();
  const us = from + (event.clientX - box.left) / box.width * (until - from);
  let i = 0;
  while (i + 1 < count && slices.begin[i + 1] <= us) ++i;
  pick(i);
}
$("line").addEventListener("pointermove", pointed);
$("line").addEventListener("pointerdown", pointed);
$("line").addEventListener("keydown", event => {
  const by = {ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20, Home: -count, End: count}[event.key];
  if (by) pick(picked + by);
  else if (event.key === "+") scale(0.5);
  else if (event.key === "-") scale(2);
  else return;
  event.preventDefault();
});
$("closer").addEventListener("click", () => scale(0.4));
$("wider").addEventListener("click", () => scale(2.5));
$("whole").addEventListener("click", () => { from = 0; until = data.slices_us; drawLine(); });

// Tables: columns of {title, text, cell}; the longest rows first, the rest after a button.
function table(into, columns, rows, most = 15) {
  if (rows.length === 0) return;
  const body = element("tbody");
  const add = row => body.append(element("tr", {}, ...columns.map(column =>
    element("td", {class: column.kind || ""}, column.cell(row)))));
  rows.slice(0, most).forEach(add);
  const head = element("tr", {}, ...columns.map(column => element("th", {scope: "col", class: column.kind || ""}, column.title)));
  $(into).append(element("div", {class: "scroll"}, element("table", {}, element("thead", {}, head), body)));
  if (rows.length <= most) return;
  const more = element("button", {class: "more"}, `Show all ${rows.length}`);
  more.addEventListener("click", () => { rows.slice(most).forEach(add); more.remove(); });
  $(into).append(more);
}
function bar(row, most) {
  const made = element("span", {class: "bar", role: "img", "aria-label": share(row.us)});
  made.style.width = 100 * row.us / most + "%";
  if (row.phase) made.style.background = `var(--${row.phase})`;
  return made;
}
// And which rate sets it, as the program's tables say.
function floor(row) {
  if (row.floor_us === undefined || row.us === 0 || row.floor_us === 0) return "";
  const rates = profile.rates, moved = row.bytes * rates.flops_per_s >= row.flops * rates.copy_bytes_per_s;
  return `${(100 * row.floor_us / row.us).toFixed(0)} % ${moved ? "bytes" : "flops"}`;
}
const timeColumns = (most, time = durations(most)) => [
  {title: "time", cell: row => time(row.us)},
  {title: "of a step", cell: row => share(row.us)},
  {title: "", kind: "bars wide", cell: row => bar(row, most)},
  {title: "floor", cell: floor},
];
function signed(value) { return value === undefined ? "" : (value >= 1 ? "+" : "−") + Math.abs(100 * (value - 1)).toFixed(1) + " %"; }

function kernelCell(row) {
  const cell = document.createDocumentFragment();
  cell.append(row.device_kernel || row.kernel || "(copies)", element("small", {}, `${operationName(row.operation)}, ${row.phase}`));
  return cell;
}

function drawTables() {
  const operations = profile.operations.filter(row => row.us > 0).sort((a, b) => b.us - a.us);
  const longest = operations.length ? operations[0].us : 1;
  table("operations", [{title: "operation", kind: "text name", cell: row => operationName(row.name)},
    {title: "runs", kind: "text name wide", cell: row => row.runs}, ...timeColumns(longest)], operations);
  table("kernels", [{title: "kernel", kind: "text name", cell: kernelCell},
    ...timeColumns(profile.kernels.length ? profile.kernels[0].us : 1)], profile.kernels);
  const gapTime = durations(Math.max(0, ...profile.gaps.map(row => row.us)));
  table("gaps", [{title: "gap", kind: "text name", cell: gapName}, {title: "time", cell: row => gapTime(row.us)},
    {title: "of a step", cell: row => share(row.us)}], profile.gaps, 8);
  table("threads", [{title: "thread", kind: "text", cell: row => row.thread === 0 ? "main" : "worker " + row.thread},
    {title: "at work", cell: row => (100 * row.busy_share).toFixed(1) + " %"}], profile.threads);
  table("changes", [{title: "change", kind: "text name", cell: row => row.change},
    {title: "a sample, predicted", cell: row => signed(row.predicted_share)},
    ...(profile.changes.some(row => row.measured_share !== undefined) ? [{title: "measured", cell: row => signed(row.measured_share)}] : []),
    {title: "peak memory", cell: row => bytes(row.peak_bytes) + (row.fits ? "" : ", too much")}], profile.changes);
}

function tile(value, text) { return element("div", {class: "tile"}, element("b", {}, value), element("span", {}, text)); }
function drawWords() {
  $("subtitle").textContent = `${profile.precision}, batch ${profile.batch}, recompute ${profile.recompute}, ${profile.first_step === profile.last_step ? "step " + profile.first_step : `steps ${profile.first_step} to ${profile.last_step}`}`;
  const tiles = [tile(duration(profile.step_us), "a step, recorded"), tile(duration(profile.unprofiled_us), "a step, not recorded"),
    tile(share(profile.gap_us), "of it no kernel runs")];
  if (profile.floor_us !== undefined && profile.floor_us <= profile.step_us) tiles.push(tile(share(profile.floor_us), "of it would do at full speed"));
  $("tiles").append(...tiles);
  for (const name of [...phases, "gap"].filter(phase => root.children.some(part => part.kind === phase)))
    $("legend").append(element("div", {role: "listitem"}, element("span", {class: "swatch", style: `background: var(--${name})`}), name === "gap" ? "gaps" : name));
  const rows = profile.threads.map(row => row.thread === 0 ? "where the main thread waits for others" : `where worker ${row.thread} works`);
  $("line-words").textContent = `Step ${data.slices_step}, of median length. Point, tap, or use the arrow keys.` +
    (rows.length ? ` Rows from the top: kernels; ${rows.join("; ")}.` : "");
  $("change-words").textContent = "Time of a sample with each change alone, beside the step as it is. Predictions are made by a cost model that is fitted to an H200" + (profile.changes.some(row => row.measured_share !== undefined) ? "." : "; --try measures them.");
  $("floor-words").textContent = profile.rates === undefined ? "" :
    "Floor: the least time in which the device moves the bytes or does the floating-point operations (flops) of the row, whichever needs longer, as a share of its time. Above 100 %: a cache had the data. The device's speed was measured in this call.";
  $("gap-words").textContent = profile.device.startsWith("cuda") ? "Time in which the GPU ran nothing, by the operations before and after." :
    "A kernel's time includes what the host does after it; what is before the first one is a gap.";
  $("method").textContent = `Times by ${data.method}. Made by bantam profile step.`;
  let longest = 0;
  for (let i = 0; i < count; ++i)
    if (slices.end[i] - slices.begin[i] > slices.end[longest] - slices.begin[longest]) longest = i;
  $("line-now").textContent = "Longest: " + sliceWords(longest);
  $("line").setAttribute("aria-valuetext", $("line-now").textContent);
  $("line").setAttribute("aria-valuenow", longest + 1);
  $("line").setAttribute("aria-valuemin", 1);
  $("line").setAttribute("aria-valuemax", count);
}

drawWords();
drawTables();
drawFlame();
tell(root);
drawLine();
addEventListener("resize", () => {
  drawLine();
  const focused = $("flame").contains(document.activeElement);
  drawFlame();
  if (focused && current.button) current.button.focus();
});
addEventListener("themechange", drawLine);
