// Before anything is drawn: the theme that the reader's system asks for, or ?theme=dark, ?theme=light.
(function () {
  const asked = new URLSearchParams(location.search).get("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => { document.documentElement.dataset.theme = asked || (dark.matches ? "dark" : "light"); };
  apply();
  dark.addEventListener("change", () => { apply(); dispatchEvent(new Event("themechange")); });
})();
