#!/usr/bin/env python3
"""The page of `bantam profile step` in headless Chromium: check_step_page.py BANTAM [--shots DIR] [PAGE…]

Profiles a small network (or opens the pages that are named) 1280 and 390 pixels wide, light and dark. No error may reach the console and nothing may
be fetched; the page may not be wider than its window; charts need a text alternative and keyboard focus, buttons a name. The flame chart's parts must
add up, its keys must move and widen, the timeline's keys must move. Skipped where there is no Playwright or no Chromium ("no Chromium: skipped").
"""
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

CONFIG = """
device: cpu
model:
  name: <script>alert(1)</script>
  input: [32, 32, 3]
  layers: [conv2d: {filters: 8, kernel: 3, stride: 2}, batch_norm: {activation: relu}, block: {name: middle, body: [conv2d: {filters: 8, kernel: 3}, relu]}, global_average_pool, dense: {units: 10}]
"""

# Returns a list of complaints.
AUDIT = """() => {
  const wrong = [], name = e => e.getAttribute('aria-label') || e.textContent.trim();
  const chart = document.getElementById('line'), flame = document.getElementById('flame');
  if (chart.tabIndex < 0 || chart.getAttribute('aria-label').length < 20) wrong.push('the timeline has no focus or no text');
  if (flame.querySelectorAll('[tabindex="0"]').length !== 1) wrong.push('not one part of the flame chart has the focus');
  for (const button of document.querySelectorAll('button')) if (!name(button)) wrong.push('a button without a name');
  const parts = [...flame.querySelectorAll('[aria-level="2"]')].reduce((sum, part) => sum + parseFloat(part.style.width), 0);
  if (parts < 99 || parts > 100.01) wrong.push('phases and gaps are ' + parts + ' % of a step');
  const ids = [...document.querySelectorAll('[id]')].map(e => e.id);
  if (new Set(ids).size !== ids.length) wrong.push('an id that comes twice');
  if (/undefined|NaN|\\[object/.test(document.body.innerText)) wrong.push('text with undefined, NaN or [object');
  if (document.documentElement.scrollWidth > innerWidth) wrong.push('wider than its window: ' + document.documentElement.scrollWidth);
  for (const table of ['operations', 'kernels', 'changes']) if (!document.querySelector('#' + table + ' tbody tr')) wrong.push('no rows: ' + table);
  return wrong;
}"""


def keyboard(page):
    """Down goes into a part, enter widens it, escape shows all again; arrows move along the timeline."""
    wrong, now = [], page.locator("#flame-now")
    page.locator("#flame [tabindex='0']").focus()
    whole, count = now.inner_text(), page.locator("#flame button").count()
    page.keyboard.press("ArrowDown")
    part = now.inner_text()
    if part == whole:
        wrong.append("down does not go into a part")
    page.keyboard.press("Enter")
    if page.locator("#flame button[aria-level='2']").first.evaluate("e => e.style.width") != "100%":
        wrong.append("enter does not widen a part")
    page.keyboard.press("Escape")
    if now.inner_text() != whole or page.locator("#flame button").count() != count:
        wrong.append("escape does not show all again")
    line = page.locator("#line")
    line.focus()
    seen = set()
    for key in ("Home", "ArrowRight", "End"):
        page.keyboard.press(key)
        seen.add(line.get_attribute("aria-valuetext"))
    if len(seen) != 3 or None in seen:
        wrong.append(f"keys do not move along the timeline: {seen}")
    for button in ("#closer", "#wider", "#whole"):
        page.click(button)
    return wrong


def check(browser, file, width, theme, shots):
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=theme)
    wrong = []
    page.on("console", lambda message: wrong.append("console: " + message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    page.on("request", lambda request: None if request.url.startswith(("file:", "data:")) else wrong.append("fetches " + request.url))
    page.goto(file.resolve().as_uri())
    page.wait_for_timeout(200)
    wrong += page.evaluate(AUDIT)
    if shots:
        page.screenshot(path=str(Path(shots) / f"{file.stem}-{width}-{theme}.png"), full_page=True)
    wrong += keyboard(page) + page.evaluate(AUDIT)
    page.close()
    return [f"{file.name}, {width} pixels, {theme}: {one}" for one in wrong]


def main(arguments):
    bantam = str(Path(arguments.pop(0)).resolve())
    shots = None
    if arguments[:1] == ["--shots"]:
        shots = arguments[1]
        del arguments[:2]
    chromium = next((path for path in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if path), None)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        sync_playwright = None
    if sync_playwright is None or chromium is None:
        print("no Chromium: skipped" if sync_playwright else "no Chromium: skipped (Playwright is missing)")
        return 0
    wrong = []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        pages = [Path(page) for page in arguments]
        if not pages:
            (Path(folder) / "tiny.yaml").write_text(CONFIG)
            pages = [Path(folder) / "step.html"]
            subprocess.run([bantam, "profile", "step", "tiny.yaml", "--steps", "2-4", "--threads", "2", "--out", "step.html"],
                           cwd=folder, check=True, stdout=subprocess.DEVNULL)
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for page in pages:
            if page.stat().st_size > 3_000_000:
                wrong.append(f"{page.name} has {page.stat().st_size} bytes")
            for width in (1280, 390):
                for theme in ("light", "dark"):
                    wrong += check(browser, page, width, theme, shots)
        browser.close()
    print("\n".join(wrong) or "the pages are sound")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
