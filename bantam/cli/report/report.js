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
  const held = data.events.held[at];
  const isPeak = inUse[at] === inUse[data.peak_tick];
  const words = `${cursor === null ? (isPeak ? "At the peak, call " : "Most here, call ") : "Call "}${exact(at)}: ${stepAt(at)}, ${phaseAt(at)}, ` +
    `${duration(data.events.us[at])} after the start. In use ${bytes(inUse[at])} (${exact(inUse[at])} bytes), ` +
    `held ${bytes(held)} (dashed line), cached ${bytes(held - inUse[at])}.`;
  document.getElementById("timeline-now").textContent = words;
  showLegend();
}

function showPicked() {
  const out = document.getElementById("map-now");
  if (picked < 0) {
    out.textContent = "Point at or tap an allocation for its layer, size and life.";
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
  showMoment();
  showPicked();
  redraw();
}

function leave(event) {
  if (event.pointerType !== "mouse") return;  // what was tapped stays
  cursor = null;
  picked = -1;
  showMoment();
  showPicked();
  redraw();
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
  canvas.addEventListener("pointerleave", leave);
}
document.getElementById("timeline").setAttribute("aria-label",
  `Bytes in use over ${exact(ticks)} calls, stacked by category; the peak is ${bytes(inUse[data.peak_tick])}.`);
document.getElementById("map").setAttribute("aria-label",
  `${exact(intervals)} allocations by address over time, in ${bytes(rowBytes)} of addresses.`);
redraw();
addEventListener("resize", redraw);
addEventListener("themechange", redraw);
