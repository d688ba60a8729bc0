#!/usr/bin/env python3
"""The pages of `bantam report` in headless Chromium: check_run_page.py BANTAM [--shots DIR] [RUN…]

Trains two small runs (or uses those that are named), writes the pages of one and of both, and opens each 1280 and 390 pixels wide, light and dark. No
error may reach the console and nothing may be fetched; no page may be wider than its window; every chart needs a text alternative and keyboard
focus, every picture an alternative text, every button a name, no id may come twice. Arrow keys must move the charts' cursor; axes have
labels at their ends; lists of samples show a few until a button is pressed. Where the package axe-playwright-python is there, axe-core's rules must
hold, too. Skipped where there is no Playwright or no Chromium ("no Chromium: skipped").
"""
import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

from browser import arguments_of, chromium, complaints, verdict

CONFIG = """
seed: 7
device: cpu
data:
  format: generated
  train_samples: 960
  test_samples: 100
  pipeline: [shuffle: {}, normalize: {scale: 0.0039}, batch: {size: 16}]
model:
  name: <script>alert(1)</script>
  input: [32, 32, 3]
  layers: [conv2d: {filters: 8, kernel: 3, stride: 2}, batch_norm: {activation: relu}, global_average_pool, dense: {units: 10}]
train: {epochs: 3, log_every: 1, metrics: [accuracy, top_k], optimizer: {sgd: {learning_rate: 0.05}}}
"""

# What an accessibility checker would ask: returns a list of complaints.
AUDIT = """() => {
  const wrong = [], name = e => e.getAttribute('aria-label') || (e.getAttribute('aria-labelledby') || '').split(' ').map(i => (document.getElementById(i) || {}).textContent || '').join('') || e.textContent.trim();
  for (const svg of document.querySelectorAll('svg')) {
    if (svg.tabIndex < 0) wrong.push('a chart without keyboard focus');
    if ((svg.getAttribute('aria-label') || '').length < 20) wrong.push('a chart without a text alternative');
    if (!['img', 'slider'].includes(svg.getAttribute('role'))) wrong.push('a chart without a role');
    if (/NaN|undefined|Infinity/.test(svg.outerHTML)) wrong.push('a chart with NaN: ' + svg.getAttribute('aria-label'));
  }
  for (const img of document.images) {
    if ((img.alt || '').length < 5) wrong.push('a picture without an alternative text');
    if (!img.complete || img.naturalWidth === 0) wrong.push('a picture that is none');
  }
  for (const e of document.querySelectorAll('button, [role=region], [role=group], section')) if (!name(e)) wrong.push('no name: ' + e.outerHTML.slice(0, 80));
  const ids = [...document.querySelectorAll('[id]')].map(e => e.id);
  if (new Set(ids).size !== ids.length) wrong.push('an id that comes twice');
  for (const e of document.querySelectorAll('[aria-describedby], [aria-labelledby]'))
    for (const id of ((e.getAttribute('aria-describedby') || '') + ' ' + (e.getAttribute('aria-labelledby') || '')).trim().split(/ +/))
      if (!document.getElementById(id)) wrong.push('a reference to nothing: ' + id);
  if (/undefined|NaN|\\[object/.test(document.body.innerText)) wrong.push('text with undefined, NaN or [object: ' + document.body.innerText.match(/.{0,40}(undefined|NaN|\\[object).{0,40}/)[0]);
  if (document.documentElement.scrollWidth > innerWidth) wrong.push('wider than its window: ' + document.documentElement.scrollWidth);
  if (document.querySelectorAll('#charts svg').length < 4) wrong.push('fewer than four charts');
  return wrong;
}"""


def make_runs(bantam, folder):
    (folder / "tiny.yaml").write_text(CONFIG)
    for name, rate in (("one", "0.05"), ("two", "0.2")):
        subprocess.run([bantam, "train", "tiny.yaml", "--run-dir", name, "--progress", "none", "--threads", "1", f"train.optimizer.sgd.learning_rate={rate}"],
                       cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return [str(folder / "one"), str(folder / "two")]


def keyboard(page):
    """Arrow keys move the cursor of every chart; escape lets go."""
    chart = page.locator("#charts svg").first
    chart.focus()
    resting = chart.get_attribute("aria-valuetext")
    page.keyboard.press("Home")
    page.wait_for_timeout(100)
    first = chart.get_attribute("aria-valuetext")
    page.keyboard.press("ArrowRight")
    page.wait_for_timeout(100)
    second = chart.get_attribute("aria-valuetext")
    if len({resting, first, second}) != 3:
        return [f"arrow keys do not move the cursor: {resting!r}, {first!r}, {second!r}"]
    page.keyboard.press("Escape")
    page.wait_for_timeout(100)
    return [] if chart.get_attribute("aria-valuetext") == resting else ["escape does not let go of the cursor"]


def buttons(page):
    """Each choice can be made, and is then marked."""
    wrong = []
    for button in page.locator("#axes button, #scales button, #chosen-run button").all():
        if not button.is_visible():
            continue
        before = button.get_attribute("aria-pressed")
        button.click()
        group = button.locator("xpath=..").get_attribute("id")
        after = button.get_attribute("aria-pressed")
        if after != ("true" if group != "scales" else {"true": "false", "false": "true"}[before]):
            wrong.append(f"button {button.inner_text()} is {after}")
    return wrong + audit(page)


# Both axes of a chart are labelled at their ends.
ENDS = """() => {
  const wrong = [];
  for (const svg of document.querySelectorAll('#charts svg')) {
    const box = svg.viewBox.baseVal, texts = [...svg.querySelectorAll('text')], name = svg.getAttribute('aria-label').slice(0, 20);
    const at = (x, y) => texts.some(t => Math.abs(t.getAttribute('x') - x) < 12 && Math.abs(t.getAttribute('y') - y) < 14);
    if (!at(58, box.height - 8) || !at(box.width - 10, box.height - 8)) wrong.push(name + ': no labels at the ends of the horizontal axis');
    if (!at(52, 12) || !at(52, box.height - 20)) wrong.push(name + ': no labels at the ends of the vertical axis');
  }
  return wrong;
}"""


def lists(page):
    """A few samples, then all of them, then a few again."""
    wrong = []
    for name in ("worst", "random"):
        button, figures = page.locator(f"#{name}-more"), page.locator(f"#{name} figure")
        few = figures.count()
        if not 0 < few <= 12:
            wrong.append(f"{few} samples of {name} at first")
        if not button.is_visible():
            continue
        button.click()
        if figures.count() <= few:
            wrong.append(f"the button shows {figures.count()} samples of {name}")
        button.click()
        if figures.count() != few:
            wrong.append(f"the button hides no samples of {name}")
    return wrong


def audit(page):
    page.wait_for_function("[...document.images].every(image => image.complete)")
    return page.evaluate(AUDIT)


def axe_rules(page):
    """What axe-core complains about; nothing where it is not installed."""
    package = importlib.util.find_spec("axe_playwright_python")
    if package is None:
        return []
    page.evaluate((Path(package.origin).parent / "axe.min.js").read_text())
    return [f"axe: {rule['help']}: {rule['nodes'][0]['html'][:100]}" for rule in page.evaluate("axe.run()")["violations"]]


def main(arguments):
    bantam, shots, runs = arguments_of(arguments)
    wrong = []
    with chromium() as browser, tempfile.TemporaryDirectory() as folder:
        if browser is None:
            return 0
        runs = runs or make_runs(bantam, Path(folder))
        for name, which in (("one.html", runs[:1]), ("several.html", runs)):
            page = Path(folder) / name
            subprocess.run([bantam, "report", *which, "--out", str(page), "--progress", "none"], check=True, stdout=subprocess.DEVNULL)
            wrong += complaints(browser, page, shots, lambda page: audit(page) + axe_rules(page), lambda page: lists(page) + page.evaluate(ENDS) + keyboard(page) + buttons(page) + page.evaluate(ENDS))
    return verdict(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
