// Histograms of weights and gradients, a figure a tensor.
const smallNumber = v => v === 0 ? "0" : Math.abs(v) >= 1e4 || Math.abs(v) < 1e-3 ? v.toExponential(1) : String(+v.toPrecision(3));

// Edges of equal width are written as their ends.
function edgesOf(one) {
  if (one.edges.length > 2 || one.counts.length === 1) return one.edges;
  const [low, high] = one.edges, bins = one.counts.length;
  return one.counts.map((_, i) => low + (high - low) * i / bins).concat([high]);
}
// Counts over widths, so that bins of any width have the area of their values.
function outlineOf(one, x, y) {
  const edges = edgesOf(one), heights = one.counts.map((c, i) => c / Math.max(edges[i + 1] - edges[i], 1e-300)), most = Math.max(...heights);
  let path = `M${x(edges[0]).toFixed(1)},${y(0).toFixed(1)}`;
  heights.forEach((h, i) => { path += `V${y(h / most).toFixed(1)}H${x(edges[i + 1]).toFixed(1)}`; });
  return path + `V${y(0).toFixed(1)}Z`;
}

// The newest filled; those before as outlines, fainter the older.
function histogramSvg(list, kind, color, name) {
  const drawn = list.filter(one => one.counts.length > 0), now = drawn[drawn.length - 1];
  if (!now) return element("p", {}, `${kind}: no finite values`);
  const low = Math.min(...drawn.map(one => one.edges[0])), high = Math.max(...drawn.map(one => one.edges[one.edges.length - 1]));
  const width = 200, floor = 62, x = v => 2 + (width - 4) * (high > low ? (v - low) / (high - low) : 0.5), y = h => floor - (floor - 4) * h;
  const parts = drawn.map((one, i) => {
    const path = outlineOf(one, x, y), newest = one === now;
    return newest ? `<path d="${path}" fill="${color}" fill-opacity="0.35" stroke="${color}" stroke-width="1"/>`
                  : `<path d="${path}" fill="none" stroke="${color}" opacity="${(0.15 + 0.45 * i / drawn.length).toFixed(2)}"/>`;
  });
  const zero = low < 0 && high > 0 ? `<line class="grid" x1="${x(0)}" x2="${x(0)}" y1="2" y2="${floor}"/>` : "";
  const words = `${kind} of ${name}${now.update ? " at update " + exact(now.update) : ""}: from ${smallNumber(low)} to ${smallNumber(high)}, mean ${smallNumber(now.mean)}, std ${smallNumber(now.std)}`;
  const figure = element("div", {});
  figure.innerHTML = `<svg viewBox="0 0 ${width} 64" role="img" tabindex="0" preserveAspectRatio="none">${zero}${parts.join("")}</svg>`;
  figure.firstChild.setAttribute("aria-label", words);
  const before = drawn.length > 1 ? `, ${drawn.length - 1} earlier in outline` : "";
  figure.append(element("div", {class: "ends"}, element("span", {}, smallNumber(low)), element("span", {}, smallNumber(high))),
    element("p", {}, `${kind}${now.update ? ` at update ${exact(now.update)}${before}` : ""}: mean ${smallNumber(now.mean)}, std ${smallNumber(now.std)}`));
  return figure;
}

const layersShown = {all: false};
function showLayers(run) {
  const where = document.getElementById("layers"), words = document.getElementById("layers-words"), tensors = run.tensors, shown = 12;
  where.replaceChildren();
  if (tensors.length === 0) { words.textContent = run.no_weights; return; }
  words.textContent = (run.weights_file ? `Weights of ${run.weights_file}. ` : "") + (run.has_gradients ? "Each curve has its own height and ends."
    : "This run recorded no histograms of gradients (log: {histograms: 100} in its configuration does).");
  const list = element("div", {class: "layers"});
  for (const tensor of tensors.slice(0, layersShown.all ? tensors.length : shown))
    list.append(element("figure", {}, element("figcaption", {}, tensor.name), element("div", {class: "both"},
      ...(tensor.weight.length > 0 ? [histogramSvg(tensor.weight, "Weights", "var(--run0)", tensor.name)] : []),
      ...(tensor.gradient.length > 0 ? [histogramSvg(tensor.gradient, "Gradients", "var(--run1)", tensor.name)] : []))));
  where.append(list);
  if (tensors.length <= shown) return;
  const more = element("button", {type: "button", class: "more"}, layersShown.all ? "Show fewer" : `Show all ${exact(tensors.length)} tensors`);
  more.onclick = () => { layersShown.all = !layersShown.all; showLayers(run); document.querySelector("#layers .more").focus(); };
  where.append(more);
}
