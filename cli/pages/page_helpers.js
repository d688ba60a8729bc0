// What the pages share: words for numbers, elements, colours.
"use strict";
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

function color(name) { return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim(); }
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}
// `name` is a colour of the style sheet.
function swatch(name) { return element("span", {class: "swatch", style: `background: var(--${name})`}); }
