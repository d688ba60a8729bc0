// Figures, tables and the curve of batch sizes.
function showTiles() {
  const report = data.report, peak = report.peak_bytes, difference = peak - data.planned_peak_bytes;
  const planned = difference === 0 ? "as planned, to the byte" : `planned ${bytes(data.planned_peak_bytes)} (${difference > 0 ? "+" : ""}${exact(difference)} B)`;
  document.getElementById("tiles").append(
    tile(bytes(peak), "in use at the peak", planned),
    tile(bytes(report.peak_held_bytes), "reserved from the device at most", percent(peak, report.peak_held_bytes) + " of it used at the peak"),
    tile(bytes(report.in_use_bytes), "in use after the last step", exact(report.live_allocations) + " allocations"),
    tile(bytes(report.held_bytes - report.in_use_bytes), "idle after the last step", "kept for the next one; trim() would release " + bytes(report.trimmable_bytes)),
    tile(bytes(report.rounding_bytes), "padding in what is in use", percent(report.rounding_bytes, report.in_use_bytes) + ", sizes rounded up to 256 bytes"),
    tile((100 * report.fragmentation).toFixed(1) + " %", "fragmentation after the last step", "largest free block " + bytes(report.largest_free_bytes)));
}

// A layer's name, which may break after a slash.
function pathCell(path) {
  const cell = document.createDocumentFragment();
  path.split(/(?<=[/_])/).forEach(part => cell.append(part, element("wbr")));
  return cell;
}

function categoryCell(name) {
  const cell = document.createDocumentFragment();
  cell.append(swatch(name), name);
  return cell;
}

function showPeak() {
  const at = data.peak_tick, alive = [];
  for (let i = 0; i < intervals; ++i) if (life.lower[i] <= at && at < life.upper[i]) alive.push(i);
  const maker = alive.find(i => life.lower[i] === at);
  document.getElementById("peak-words").textContent =
    `${bytes(inUse[at])} (${exact(inUse[at])} bytes) in ${exact(alive.length)} allocations, first reached in ${phaseAt(at)} of ` +
    `${ownerOf(maker)}, ${stepAt(at)}, with ${bytes(life.bytes[maker])} of ${categories[life.category[maker]]}.`;
  const bar = document.getElementById("peak-bar");
  const parts = categories.map((name, c) => ({name, size: totals[c][at]})).filter(part => part.size > 0);
  for (const part of parts)
    bar.append(element("div", {style: `background: var(--${part.name}); flex: ${part.size} 0 0`, title: `${part.name} ${bytes(part.size)}`}));
  const words = parts.map(part => `${part.name} ${bytes(part.size)}, ${percent(part.size, inUse[at])}`).join("; ");
  bar.setAttribute("aria-label", words);
  document.getElementById("peak-parts").textContent = words + ".";
  sortableTable(document.getElementById("peak-table"), [
    {title: "Layer", text: true, kind: "name", value: ownerOf, cell: i => pathCell(ownerOf(i))},
    {title: "Category", text: true, kind: "category", value: i => categories[life.category[i]], cell: i => categoryCell(categories[life.category[i]])},
    {title: "Size", value: i => life.bytes[i], cell: i => bytes(life.bytes[i])},
    {title: "Share", value: i => life.bytes[i], cell: i => percent(life.bytes[i], inUse[at])},
    {title: "Bytes", wide: true, value: i => life.bytes[i], cell: i => exact(life.bytes[i])},
    {title: "Requested", wide: true, value: i => life.requested[i], cell: i => exact(life.requested[i])},
    {title: "Made in", text: true, wide: true, value: i => data.phase_names[life.phase[i]], cell: i => data.phase_names[life.phase[i]]},
    {title: "Calls alive", wide: true, value: i => life.upper[i] - life.lower[i],
     cell: i => life.upper[i] >= ticks ? "to the end" : exact(life.upper[i] - life.lower[i])},
  ], alive, 2);
}

function showAccounts() {
  const report = data.report, rows = [];
  const line = (level, name, size, note) => rows.push(element("tr", {class: "level" + level},
    element("td", {}, name, element("small", {}, note)), element("td", {}, bytes(size), element("small", {}, exact(size)))));
  for (const part of report.overhead) line(0, part.name, part.bytes, "not the allocator's");
  line(0, "Reserved from the device", report.held_bytes, "in use, set aside or cached");
  line(1, "In use", report.in_use_bytes, exact(report.live_allocations) + " live allocations");
  line(2, "Requested", report.requested_bytes, "what was asked for");
  line(2, "Rounding", report.rounding_bytes, "up to multiples of 256 bytes");
  if (report.set_aside_bytes > 0) line(1, "Set aside", report.set_aside_bytes, "for planned steps, idle now");
  line(1, "Cached", report.cached_bytes, "free, kept for what comes next");
  line(2, "Largest free", report.largest_free_bytes, `fragmentation ${(100 * report.fragmentation).toFixed(1)} %`);
  line(1, "trim() would release", report.trimmable_bytes, "of what is reserved, where nothing live is in the way");
  if (report.limit_bytes > 0) line(0, "Limit", report.limit_bytes, "what is reserved never passes it");
  if (data.device_bytes > 0) line(0, "The device's memory", data.device_bytes, "all of it");
  document.getElementById("accounts").append(element("table", {class: "accounts"}, element("tbody", {}, ...rows)));
}

function showHolders() {
  const whole = data.report.in_use_bytes;
  sortableTable(document.getElementById("holders-table"), [
    {title: "Layer", text: true, kind: "name", value: h => h.layer, cell: h => pathCell(h.layer || "(no name)")},
    {title: "Category", text: true, kind: "category", value: h => h.category, cell: h => categoryCell(h.category)},
    {title: "Size", value: h => h.bytes, cell: h => bytes(h.bytes)},
    {title: "Share", value: h => h.bytes, cell: h => percent(h.bytes, whole)},
    {title: "Bytes", wide: true, value: h => h.bytes, cell: h => exact(h.bytes)},
    {title: "Allocations", wide: true, value: h => h.allocations, cell: h => exact(h.allocations)},
  ], data.report.holders.slice(), 2);
}

// Bars of planned peaks, as wide as the page allows; a limit that is near enough is a line across them.
function showCurve() {
  const points = data.curve, most = Math.max(...points.map(p => p.peak_bytes)), where = document.getElementById("curve");
  const bounds = [{name: "limit", size: data.limit_bytes}, {name: "the device's memory", size: data.device_bytes}].filter(b => b.size > 0);
  const near = bounds.filter(b => b.size <= 1.6 * most);
  const top = Math.max(most, ...near.map(b => b.size)) * 1.1;
  const width = Math.max(240, where.clientWidth), height = 300, floor = height - 34, slot = (width - 8) / points.length;
  const y = n => floor - n / top * (floor - 16);
  const svg = [];
  points.forEach((point, i) => {
    const left = 4 + i * slot + slot * 0.15, here = point.batch === data.about.batch ? " class=\"here\"" : "";
    svg.push(`<g tabindex="0" role="img" data-point="${i}" aria-label="${curveWords(point)}">`);
    let below = 0;
    point.by_category.forEach((size, c) => {
      svg.push(`<rect x="${left}" width="${slot * 0.7}" y="${y(below + size)}" height="${y(below) - y(below + size)}" fill="var(--${categories[c]})"/>`);
      below += size;
    });
    svg.push(`<text${here} x="${left + slot * 0.35}" y="${y(below) - 5}" text-anchor="middle">${compact(below)}</text>`);
    svg.push(`<text${here} x="${left + slot * 0.35}" y="${floor + 15}" text-anchor="middle">${point.batch}</text></g>`);
  });
  svg.push(`<text x="${width / 2}" y="${height - 3}" text-anchor="middle">batch size</text>`);
  for (const bound of near)
    svg.push(`<line x1="0" x2="${width}" y1="${y(bound.size)}" y2="${y(bound.size)}" stroke="var(--mark)" stroke-width="1.5" stroke-dasharray="6 4"/>` +
             `<text x="4" y="${y(bound.size) - 4}" style="fill: var(--mark)">${bound.name} ${bytes(bound.size)}</text>`);
  where.innerHTML = `<svg viewBox="0 0 ${width} ${height}" role="group" aria-label="Planned peaks by batch size">${svg.join("")}</svg>`;
  for (const bar of where.querySelectorAll("g[tabindex]"))
    for (const event of ["pointerenter", "pointerdown", "focus"])
      bar.addEventListener(event, () => showPoint(points[Number(bar.dataset.point)]));
  const first = points[0], last = points[points.length - 1];
  const sample = points.length > 1 ? `, about ${bytes((last.peak_bytes - first.peak_bytes) / (last.batch - first.batch))} a sample` : "";
  const far = bounds.filter(b => !near.includes(b)).map(b => `${b.name} (${bytes(b.size)})`).join(" and ");
  document.getElementById("curve-words").textContent =
    `Planned peaks, stacked by category${sample}.` + (far ? ` Far above: ${far}.` : "");
  showPoint(points.find(p => p.batch === data.about.batch) || points[0]);
}

function curveWords(point) {
  return `batch ${point.batch}: ${bytes(point.peak_bytes)}: ` + point.by_category.map((size, c) => ({size, name: categories[c]}))
    .filter(part => part.size > 0).map(part => `${part.name} ${bytes(part.size)}`).join(", ");
}
function showPoint(point) { document.getElementById("curve-now").textContent = curveWords(point).replace(/^b/, "B") + "."; }
