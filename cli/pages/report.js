// The page: titles, the legend, the pointer, and what happens when something changes.
function showTitle() {
  const about = data.about;
  document.getElementById("title").textContent = `Memory of ${about.model}, ${views[0].name.toLowerCase()}`;
  document.getElementById("subtitle").textContent =
    `on ${about.target || about.device}, batch ${about.batch}, ${about.precision}, recompute ${about.recompute}` +
    (about.accumulate > 1 ? `, ${about.accumulate} micro-batches an update` : "") + `; ${exact(ticks)} calls traced`;
}

// Bytes by category at the cursor, else at the peak of what is shown.
function showLegend() {
  const at = cursor === null ? peakInView() : cursor;
  document.getElementById("legend").replaceChildren(...categories.map((name, c) =>
    element("div", {role: "listitem"}, swatch(name), name + " ", element("small", {}, bytes(totals[c][at])))));
}

function showMoment() {
  const at = cursor === null ? peakInView() : cursor;
  const reserved = reservedAt(at);
  const isPeak = inUse[at] === inUse[data.peak_tick];
  const words = `${cursor === null ? (isPeak ? "At the peak, call " : "Most here, call ") : "Call "}${exact(at)}: ${stepAt(at)}, ${phaseAt(at)}, ` +
    `${duration(data.events.us[at])} after the start. In use ${bytes(inUse[at])} (${exact(inUse[at])} bytes) of ` +
    `${bytes(reserved)} reserved (dashed line).`;
  document.getElementById("timeline-now").textContent = words;
  const timeline = document.getElementById("timeline"), alive = aliveAt(at);
  const value = {"aria-valuemin": view.lower, "aria-valuemax": view.upper - 1, "aria-valuenow": at,
                 "aria-valuetext": words + " Largest: " + alive.slice(0, 3).map(aliveWords).join(", ")};
  for (const [name, text] of Object.entries(value)) timeline.setAttribute(name, text);
  showAlive(alive);
  showLegend();
}

// What is in use after a call by layer and category, largest first.
function aliveAt(at) {
  const groups = new Map();
  for (let i = 0; i < intervals; ++i) {
    if (life.lower[i] > at || at >= life.upper[i]) continue;
    const key = life.owner[i] * categories.length + life.category[i];
    const group = groups.get(key) || {owner: ownerOf(i), category: categories[life.category[i]], size: 0, count: 0};
    group.size += life.bytes[i];
    ++group.count;
    groups.set(key, group);
  }
  return [...groups.values()].sort((a, b) => b.size - a.size);
}
function aliveWords(group) { return `${group.owner} ${group.category} ${bytes(group.size)}`; }

const shownAlive = 9;
function showAlive(alive) {
  const lines = alive.slice(0, alive.length > shownAlive + 1 ? shownAlive : alive.length).map(group =>
    element("li", {}, swatch(group.category),
      element("span", {class: "path"}, group.owner, element("small", {}, " " + group.category + (group.count > 1 ? `\u00a0×\u00a0${group.count}` : ""))),
      element("span", {class: "size"}, bytes(group.size))));
  const rest = alive.slice(lines.length);
  if (rest.length > 0)
    lines.push(element("li", {}, element("span", {class: "path"}, `and ${exact(rest.length)} more`),
      element("span", {class: "size"}, bytes(rest.reduce((sum, group) => sum + group.size, 0)))));
  document.getElementById("alive").replaceChildren(...lines);
}

function showPicked() {
  const out = document.getElementById("map-now");
  if (picked < 0) {
    out.textContent = "Point at or tap an allocation for its layer, size and life, or go there by the arrow keys.";
    return;
  }
  const end = life.upper[picked] >= ticks ? "the end" : "call " + exact(life.upper[picked]);
  const made = data.events.us[life.lower[picked]], gone = data.events.us[Math.min(life.upper[picked], ticks - 1)];
  out.replaceChildren(swatch(categories[life.category[picked]]), element("b", {}, ownerOf(picked)),
    ` ${categories[life.category[picked]]}, ${bytes(life.bytes[picked])} (${exact(life.bytes[picked])} bytes, ` +
    `${exact(life.requested[picked])} requested), made in ${data.phase_names[life.phase[picked]]}, ` +
    `${stepAt(life.lower[picked])}; alive from call ${exact(life.lower[picked])} to ${end} (${duration(gone - made)}), ` +
    `at offset ${exact(life.offset[picked])}.`);
}

function intervalAt(tick, offset) {
  for (let i = 0; i < intervals; ++i)
    if (life.lower[i] <= tick && tick < life.upper[i] && life.offset[i] <= offset && offset < life.offset[i] + life.bytes[i]) return i;
  return -1;
}

function pointAt(event) {
  const box = event.currentTarget.getBoundingClientRect();
  const x = Math.min(Math.max(event.clientX - box.left, margin.left), box.width - margin.right);
  cursor = axis(box.width).tick(x);
  if (event.currentTarget.id === "map")
    picked = intervalAt(cursor, mapScale(box.height).offset(event.clientY - box.top));
  showAll();
}

function hideDetails(event) {
  if (event.pointerType !== "mouse") return;  // what was tapped stays
  cursor = null;
  picked = -1;
  showAll();
}

function showAll() {
  showMoment();
  showPicked();
  redraw();
}

// Where a key moves the cursor of both charts: a call, null to clear it, undefined for other keys.
function movedCursor(event) {
  const at = cursor === null ? peakInView() : cursor, far = Math.max(1, Math.round((view.upper - view.lower) / 10));
  const targets = {ArrowLeft: at - (event.shiftKey ? far : 1), ArrowRight: at + (event.shiftKey ? far : 1),
                   PageUp: at + far, PageDown: at - far, Home: view.lower, End: view.upper - 1, p: peakInView(), P: peakInView()};
  if (event.key === "Escape") return null;
  if (event.ctrlKey || event.altKey || event.metaKey || !(event.key in targets)) return undefined;
  return Math.min(Math.max(targets[event.key], view.lower), view.upper - 1);
}

// The allocation above or below the picked one at the cursor, of those alive then; the lowest at first.
function pickNext(up) {
  if (cursor === null) cursor = peakInView();
  const alive = [];
  for (let i = 0; i < intervals; ++i) if (life.lower[i] <= cursor && cursor < life.upper[i]) alive.push(i);
  alive.sort((a, b) => life.offset[a] - life.offset[b]);
  const here = alive.indexOf(picked);
  if (alive.length > 0) picked = alive[here < 0 ? 0 : Math.min(Math.max(here + (up ? 1 : -1), 0), alive.length - 1)];
}

function steer(event) {
  const onMap = event.currentTarget.id === "map", vertical = event.key === "ArrowUp" || event.key === "ArrowDown";
  if (onMap && vertical) {
    pickNext(event.key === "ArrowUp");
  } else {
    const moved = movedCursor(vertical ? {key: event.key === "ArrowUp" ? "ArrowRight" : "ArrowLeft"} : event);
    if (moved === undefined) return;
    const middle = picked < 0 ? -1 : life.offset[picked] + life.bytes[picked] / 2;
    cursor = moved;
    picked = moved === null || middle < 0 ? -1 : intervalAt(moved, middle);
  }
  event.preventDefault();
  showAll();
}

function choices(where, options, isOn, choose) {
  const buttons = options.map(option => element("button", {type: "button"}, option.name));
  const update = () => buttons.forEach((button, i) => button.setAttribute("aria-pressed", isOn(options[i])));
  buttons.forEach((button, i) => button.onclick = () => { choose(options[i]); update(); showMoment(); redraw(); });
  document.getElementById(where).append(...buttons);
  update();
}

showTitle();
showTiles();
choices("views", views, option => option === view, option => { view = option; });
choices("axes", [{name: "Calls", time: false}, {name: "Host time", time: true}], option => option.time === byTime,
        option => { byTime = option.time; });
showMoment();
showPicked();
showPeak();
showAccounts();
showCurve();
showHolders();
for (const id of ["timeline", "map"]) {
  const canvas = document.getElementById(id);
  canvas.addEventListener("pointermove", pointAt);
  canvas.addEventListener("pointerdown", pointAt);
  canvas.addEventListener("pointerleave", hideDetails);
  canvas.addEventListener("keydown", steer);
}
document.getElementById("timeline").setAttribute("aria-label",
  `Bytes in use over ${exact(ticks)} calls, stacked by category; the peak is ${bytes(inUse[data.peak_tick])}.`);
document.getElementById("map").setAttribute("aria-label",
  `${exact(intervals)} allocations by address over time, in ${bytes(rowBytes)} of addresses.`);
redraw();
addEventListener("resize", () => { redraw(); showCurve(); });
addEventListener("themechange", redraw);
