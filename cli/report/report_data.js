// What the charts and tables read: the trace as typed arrays, bytes by category after each call, and words for numbers.
"use strict";
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

function exact(n) { return Math.round(n).toLocaleString("en-US"); }
// As the program writes sizes: the next unit from 1023.5 on, and what lies halfway goes to the even digit, as
// 17.25 MiB does to 17.2; toFixed() rounds it up.
function toDigits(value, digits) {
  const scaled = value * 10 ** digits, below = Math.floor(scaled);
  return ((scaled - below === 0.5 ? below + below % 2 : Math.round(scaled)) / 10 ** digits).toFixed(digits);
}
function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0, value = Math.abs(n);
  while (value >= 1023.5 && unit < 4) { value /= 1024; ++unit; }
  const digits = unit === 0 ? 0 : value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return (n < 0 ? "-" : "") + toDigits(value, digits) + " " + units[unit];
}
function compact(n) { return bytes(n).replace(/ (.).*/, (_, unit) => unit === "B" ? "" : unit); }
function percent(part, whole) { return whole === 0 ? "0 %" : (100 * part / whole).toFixed(1) + " %"; }
function duration(us) {
  return us < 1e3 ? us.toFixed(1) + " µs" : us < 1e6 ? (us / 1e3).toFixed(us < 1e4 ? 2 : 1) + " ms" : (us / 1e6).toFixed(2) + " s";
}
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

function color(name) { return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim(); }
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}
function swatch(category) { return element("span", {class: "swatch", style: `background: var(--${category})`}); }
