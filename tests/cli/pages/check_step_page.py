#!/usr/bin/env python3
"""The page of `bantam profile step` in headless Chromium: check_step_page.py BANTAM [--shots DIR] [PAGE…]

Profiles a small network (or opens the pages that are named) 1280 and 390 pixels wide, light and dark. No error may reach the console and nothing may
be fetched; the page may not be wider than its window; charts need a text alternative and keyboard focus, buttons a name. The flame chart's parts must
add up, its keys must move and widen, the timeline's keys must move. Skipped where there is no Playwright or no Chromium ("no Chromium: skipped").
"""
import subprocess
import sys
import tempfile
from pathlib import Path

from browser import arguments_of, chromium, complaints, verdict

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


def audit(page):
    return page.evaluate(AUDIT)


def main(arguments):
    bantam, shots, named = arguments_of(arguments)
    wrong = []
    with chromium() as browser, tempfile.TemporaryDirectory() as folder:
        if browser is None:
            return 0
        pages = [Path(page) for page in named]
        if not pages:
            (Path(folder) / "tiny.yaml").write_text(CONFIG)
            pages = [Path(folder) / "step.html"]
            subprocess.run([bantam, "profile", "step", "tiny.yaml", "--steps", "2-4", "--threads", "2", "--out", "step.html"],
                           cwd=folder, check=True, stdout=subprocess.DEVNULL)
        for page in pages:
            wrong += complaints(browser, page, shots, audit, lambda page: keyboard(page) + audit(page))
    return verdict(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
