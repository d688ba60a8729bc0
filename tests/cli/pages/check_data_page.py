#!/usr/bin/env python3
"""The page of `bantam data --out` in headless Chromium: check_data_page.py BANTAM [--shots DIR] [PAGE…]

Writes the page of a small set (or opens those that are named) 1280 and 390 pixels wide, light and dark. No error may reach the console and nothing may
be fetched; the page may not be wider than its window; pictures need an alternative text; the samples are of more than one class. Skipped where there
is no Playwright or no Chromium ("no Chromium: skipped").
"""
import subprocess
import sys
import tempfile
from pathlib import Path

from browser import arguments_of, chromium, complaints, verdict

CONFIG = """
device: cpu
data: {format: generated, train_samples: 200, test_samples: 40, pipeline: [random_crop: {padding: 4}, normalize: {scale: 1/255}, batch: {size: 16}]}
model:
  name: <script>alert(1)</script>
  input: [32, 32, 3]
  layers: [flatten, dense: {units: 10}]
"""

AUDIT = """() => {
  const wrong = [];
  for (const img of document.images) {
    if ((img.alt || '').length < 5) wrong.push('a picture without an alternative text');
    if (!img.complete || img.naturalWidth === 0) wrong.push('a picture that is none');
  }
  for (const e of document.querySelectorAll('section')) if (!e.getAttribute('aria-label') && !document.getElementById(e.getAttribute('aria-labelledby'))) wrong.push('a section without a name');
  if (document.querySelectorAll('.sample').length < 2) wrong.push('no samples');
  const targets = new Set([...document.querySelectorAll('.views figure:last-child span')].map(e => e.textContent));
  if (targets.size < 2) wrong.push('samples of one class');
  const bars = [...document.querySelectorAll('.bars i')].map(e => e.getBoundingClientRect().width);
  if (Math.max(...bars) < 20) wrong.push('no bar of classes');
  if (/undefined|NaN/.test(document.body.innerText)) wrong.push('text with undefined or NaN');
  if (document.documentElement.scrollWidth > innerWidth) wrong.push('wider than its window: ' + document.documentElement.scrollWidth);
  return wrong;
}"""


def audit(page):
    page.wait_for_function("[...document.images].every(image => image.complete)")
    return page.evaluate(AUDIT)


def unfolded(page):
    page.evaluate("document.querySelectorAll('details').forEach(e => { e.open = true; })")
    return audit(page)


def main(arguments):
    bantam, shots, named = arguments_of(arguments)
    wrong = []
    with chromium() as browser, tempfile.TemporaryDirectory() as folder:
        if browser is None:
            return 0
        pages = [Path(page) for page in named]
        if not pages:
            (Path(folder) / "tiny.yaml").write_text(CONFIG)
            pages = [Path(folder) / "data.html"]
            subprocess.run([bantam, "data", "tiny.yaml", "--out", "data.html"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        for page in pages:
            wrong += complaints(browser, page, shots, audit, unfolded)
    return verdict(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
