// The two canvases that share a horizontal axis: bytes over time, and the address map.
const lookAt = data.steps.filter(step => step.number >= data.first_step);
const selected = {lower: lookAt[0].lower, upper: lookAt[lookAt.length - 1].upper};
const aroundPeak = {lower: Math.max(0, data.peak_tick - 60), upper: Math.min(ticks, data.peak_tick + 60)};
const views = [
  {name: data.first_step === data.last_step ? `Step ${data.first_step}` : `Steps ${data.first_step}–${data.last_step}`, ...selected},
  {name: "Whole run", lower: 0, upper: ticks},
  {name: "Around the peak", ...aroundPeak},
];
let view = views[0];
let byTime = false;
let cursor = null;   // a call, or null
let picked = -1;     // an interval of the map, or -1
const margin = {left: 62, right: 10, top: 20, bottom: 36};

// Calls to places along the axis and back.
function place(tick) { return byTime ? data.events.us[Math.min(tick, ticks - 1)] : tick; }
function axis(width) {
  const begin = place(view.lower), span = Math.max(place(view.upper) - begin, 1e-9);
  const scale = (width - margin.left - margin.right) / span;
  return {
    x: tick => margin.left + (place(tick) - begin) * scale,
    tick: x => {
      const wanted = begin + (x - margin.left) / scale;
      let low = view.lower, high = view.upper - 1;
      while (low < high) {
        const middle = (low + high + 1) >> 1;
        if (place(middle) <= wanted) low = middle; else high = middle - 1;
      }
      return low;
    },
  };
}

function prepare(canvas) {
  const box = canvas.getBoundingClientRect(), ratio = devicePixelRatio || 1;
  canvas.width = Math.round(box.width * ratio);
  canvas.height = Math.round(box.height * ratio);
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.font = "12px system-ui, 'DejaVu Sans', sans-serif";
  return {pen, width: box.width, height: box.height, ratio};
}

// A scale of bytes with round binary marks.
function byteMarks(most) {
  let step = Math.pow(2, Math.ceil(Math.log2(Math.max(most, 1) / 5)));
  const marks = [];
  for (let at = 0; at <= most; at += step) marks.push(at);
  return marks;
}

function drawFrame({pen, width, height}, most, y) {
  pen.fillStyle = color("soft");
  pen.strokeStyle = color("line");
  pen.lineWidth = 1;
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  for (const mark of byteMarks(most)) {
    const at = Math.round(y(mark)) + 0.5;
    pen.beginPath(); pen.moveTo(margin.left, at); pen.lineTo(width - margin.right, at); pen.stroke();
    pen.fillText(bytes(mark), margin.left - 6, at);
  }
}

// Steps as lines over the whole height, phases as a strip with names below.
function drawSteps({pen, width, height}, x) {
  const bottom = height - margin.bottom, end = width - margin.right;
  pen.textBaseline = "middle";
  for (let i = 0; i < data.phases.length; ++i) {
    const from = Math.max(data.phases[i].tick, view.lower);
    const to = Math.min(i + 1 < data.phases.length ? data.phases[i + 1].tick : ticks, view.upper);
    if (to <= from) continue;
    const left = x(from), right = to >= view.upper ? end : x(to);
    pen.fillStyle = color("free");
    pen.fillRect(left + 0.5, bottom + 3, Math.max(right - left - 1, 0.5), 15);
    pen.fillStyle = color("soft");
    pen.textAlign = "center";
    if (pen.measureText(data.phases[i].name).width + 4 < right - left)
      pen.fillText(data.phases[i].name, (left + right) / 2, bottom + 11);
  }
  pen.strokeStyle = color("soft");
  pen.fillStyle = color("soft");
  pen.textAlign = "left";
  let free = -1e9;
  for (const step of data.steps) {
    if (step.lower < view.lower || step.lower >= view.upper) continue;
    const at = x(step.lower);
    pen.setLineDash([2, 3]);
    pen.beginPath(); pen.moveTo(at, margin.top); pen.lineTo(at, bottom + 18); pen.stroke();
    pen.setLineDash([]);
    if (at > free && at < end - 30) {
      pen.fillText("step " + step.number, at, bottom + 27);
      free = at + pen.measureText("step 00").width + 8;
    }
  }
  pen.textAlign = "right";
  if (end - 90 > free) pen.fillText(byTime ? "host time →" : "calls →", end, bottom + 27);
}

function drawCursor({pen, height}, x) {
  if (cursor === null || cursor < view.lower || cursor >= view.upper) return;
  const at = x(cursor);
  pen.strokeStyle = color("ink");
  pen.lineWidth = 1;
  pen.beginPath(); pen.moveTo(at, margin.top); pen.lineTo(at, height - margin.bottom); pen.stroke();
}

// One column a device pixel: the stack of the call with most bytes among those that fall on it, so no peak is lost.
function drawStack({pen, width, ratio}, horizontal, y) {
  const floor = y(0), thin = 1 / ratio;
  const paints = categories.map(color);
  for (let left = margin.left; left < width - margin.right; left += thin) {
    const first = horizontal.tick(left), last = Math.max(first + 1, horizontal.tick(left + thin));
    let at = first;
    for (let t = first; t < last; ++t) if (inUse[t] > inUse[at]) at = t;
    let below = 0, from = floor;
    for (let c = 0; c < categories.length; ++c) {
      if (totals[c][at] === 0) continue;
      below += totals[c][at];
      const to = y(below);
      pen.fillStyle = paints[c];
      pen.fillRect(left, to, thin + 0.02, from - to);
      from = to;
    }
  }
}

// Bytes reserved from the device after call `t`.
function reservedAt(t) {
  return data.events.held[t];
}

function drawReserved({pen, width}, horizontal, y) {
  pen.strokeStyle = color("ink");
  pen.lineWidth = 1.5;
  pen.setLineDash([6, 4]);
  pen.beginPath();
  for (let left = margin.left; left < width - margin.right; ++left) {
    const at = y(reservedAt(horizontal.tick(left)));
    if (left === margin.left) pen.moveTo(left, at); else pen.lineTo(left, at);
  }
  pen.stroke();
  pen.setLineDash([]);
  const last = reservedAt(view.upper - 1);
  pen.fillStyle = color("ink");
  pen.textAlign = "right";
  pen.textBaseline = "bottom";
  const label = "reserved " + bytes(last);
  pen.fillText(label, width - margin.right, y(last) - 2);
  return {left: width - margin.right - pen.measureText(label).width, middle: y(last) - 9};
}

// The call of most bytes among those shown, the first of equals.
function peakInView() {
  let at = view.lower;
  for (let t = view.lower; t < view.upper; ++t) if (inUse[t] > inUse[at]) at = t;
  return at;
}

// `reserved`: where that label stands. The peak's goes below it where the two would meet.
function drawPeak({pen, width}, x, y, reserved) {
  const peak = peakInView(), at = x(peak), top = y(inUse[peak]);
  pen.strokeStyle = pen.fillStyle = color("mark");
  pen.lineWidth = 1.5;
  pen.beginPath(); pen.moveTo(at, y(0)); pen.lineTo(at, top); pen.stroke();
  pen.beginPath(); pen.arc(at, top, 4, 0, 7); pen.fill();
  const label = (inUse[peak] === inUse[data.peak_tick] ? "peak " : "most here ") + bytes(inUse[peak]);
  pen.font = "600 12px system-ui, 'DejaVu Sans', sans-serif";
  const room = pen.measureText(label).width + 10, lineHeight = 15;
  pen.textAlign = at + room > width - margin.right ? "right" : "left";
  pen.textBaseline = "middle";
  const right = pen.textAlign === "left" ? at + room : at - 8;
  const meets = right > reserved.left && Math.abs(top - 9 - reserved.middle) < lineHeight;
  pen.fillText(label, at + (pen.textAlign === "left" ? 8 : -8), meets ? reserved.middle + lineHeight + 2 : top - 9);
  pen.font = "12px system-ui, 'DejaVu Sans', sans-serif";
}

function drawTimeline() {
  const sheet = prepare(document.getElementById("timeline"));
  let most = 1;
  for (let t = view.lower; t < view.upper; ++t) most = Math.max(most, reservedAt(t));
  const y = n => sheet.height - margin.bottom - n / most * (sheet.height - margin.top - margin.bottom);
  const horizontal = axis(sheet.width);
  drawFrame(sheet, most, y);
  drawStack(sheet, horizontal, y);
  const reserved = drawReserved(sheet, horizontal, y);
  drawSteps(sheet, horizontal.x);
  drawPeak(sheet, horizontal.x, y, reserved);
  drawCursor(sheet, horizontal.x);
}

function hatch(pen) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 8;
  const brush = tile.getContext("2d");
  brush.fillStyle = color("free");
  brush.fillRect(0, 0, 8, 8);
  brush.strokeStyle = color("hatch");
  for (const shift of [-8, 0, 8]) { brush.beginPath(); brush.moveTo(shift, 8); brush.lineTo(shift + 8, 0); brush.stroke(); }
  return pen.createPattern(tile, "repeat");
}

function mapScale(height) {
  const scale = (height - margin.top - margin.bottom) / Math.max(rowBytes, 1);
  return {y: offset => height - margin.bottom - offset * scale, offset: y => (height - margin.bottom - y) / scale};
}

function drawMap() {
  const sheet = prepare(document.getElementById("map"));
  const {pen} = sheet, horizontal = axis(sheet.width), {y} = mapScale(sheet.height);
  const end = sheet.width - margin.right;
  drawFrame(sheet, rowBytes, y);
  pen.fillStyle = hatch(pen);
  data.ranges.forEach((range, i) => {
    if (rangeFirst[i] >= view.upper) return;
    const left = horizontal.x(Math.max(rangeFirst[i], view.lower));
    pen.fillRect(left, y(range.offset + range.bytes), end - left, y(range.offset) - y(range.offset + range.bytes));
  });
  const paints = categories.map(color), gap = color("card");
  for (let i = 0; i < intervals; ++i) {
    if (life.upper[i] <= view.lower || life.lower[i] >= view.upper) continue;
    const left = horizontal.x(Math.max(life.lower[i], view.lower));
    const right = life.upper[i] >= view.upper ? end : horizontal.x(life.upper[i]);
    const top = y(life.offset[i] + life.bytes[i]), height = y(life.offset[i]) - top;
    pen.fillStyle = paints[life.category[i]];
    pen.fillRect(left, top, Math.max(right - left, 0.5), Math.max(height, 0.5));
    if (height < 4 || right - left < 4) continue;
    pen.strokeStyle = gap;
    pen.lineWidth = 0.75;
    pen.strokeRect(left, top, right - left, height);
  }
  pen.strokeStyle = color("soft");
  pen.lineWidth = 0.75;
  for (const range of data.ranges.slice(1)) {  // where one region ends and another begins
    pen.beginPath(); pen.moveTo(margin.left, y(range.offset)); pen.lineTo(end, y(range.offset)); pen.stroke();
  }
  drawPicked(pen, horizontal.x, y, end);
  drawSteps(sheet, horizontal.x);
  drawCursor(sheet, horizontal.x);
}

function drawPicked(pen, x, y, end) {
  if (picked < 0 || life.upper[picked] <= view.lower || life.lower[picked] >= view.upper) return;
  const left = x(Math.max(life.lower[picked], view.lower));
  const right = life.upper[picked] >= view.upper ? end : x(life.upper[picked]);
  const top = y(life.offset[picked] + life.bytes[picked]);
  pen.strokeStyle = color("ink");
  pen.lineWidth = 2;
  pen.strokeRect(left, top, Math.max(right - left, 1), Math.max(y(life.offset[picked]) - top, 1));
}

// At most once a frame, however fast the pointer moves.
let drawing = 0;
function redraw() {
  if (drawing !== 0) return;
  drawing = requestAnimationFrame(() => {
    drawing = 0;
    drawTimeline();
    drawMap();
  });
}
