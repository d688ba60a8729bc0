#!/usr/bin/env python3
"""The page of `train --serve` in headless Chromium, and pages of other sites that try to read it: check_served_page.py BANTAM

The page shows its charts, follows the run and reports its end, without an error on the console (its Content-Security-Policy is none too strict); a script that
is put into it does not run. A page of another site, of another port, or under a name that points at this machine reads nothing: neither by fetch, with
and without CORS, nor as a script, a style sheet, a picture or a frame; a link to the page opens it. Skipped where there is no Chromium ("no Chromium: skipped").
"""
import http.server
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from devtools import Browser, chromium_program

CONFIG = """
seed: 7
device: cpu
data:
  format: generated
  train_samples: 320
  test_samples: 40
  pipeline: [shuffle: {}, normalize: {scale: 0.0039}, batch: {size: 16}]
model:
  name: <script>window.injected = 1</script>
  input: [32, 32, 3]
  layers: [conv2d: {filters: 8, kernel: 3, stride: 2}, batch_norm: {activation: relu}, global_average_pool, dense: {units: 10}]
train: {epochs: 100000, log_every: 1, metrics: [accuracy], optimizer: {sgd: {learning_rate: 0.05}}}
"""
FOREIGN = "stranger.example"  # which Chromium is told to find on this machine

FETCH = "fetch('%s', {mode: '%s'}).then(answer => answer.type === 'opaque' ? 'opaque' : 'read ' + answer.status, error => 'refused')"
ELEMENT = """new Promise(done => { const e = document.createElement('%s'); e.onload = () => done('loaded'); e.onerror = () => done('refused');
  e.rel = 'stylesheet'; e['%s'] = '%s'; document.head.append(e); })"""
FRAME = """new Promise(done => { const e = document.createElement('iframe'); e.src = '%s'; document.body.append(e);
  e.onload = () => { try { done(e.contentDocument ? 'read' : 'refused'); } catch { done('refused'); } }; })"""
STATUS = "performance.getEntriesByType('navigation')[0].responseStatus"


class Stranger(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>a stranger</title><link rel=icon href='data:,'><p>")

    def log_message(self, *_):
        pass


def begin_run(bantam, folder):
    (folder / "tiny.yaml").write_text(CONFIG)
    errors = folder / "errors"
    with errors.open("w") as err:
        run = subprocess.Popen([bantam, "train", "tiny.yaml", "--run-dir", "r", "--progress", "plain", "--threads", "1", "--serve", "0"], cwd=folder, stdout=subprocess.DEVNULL, stderr=err)
    end = time.monotonic() + 60
    while time.monotonic() < end and run.poll() is None:
        told = re.search(r"http://127\.0\.0\.1:(\d+)/", errors.read_text())
        if told and (folder / "r/metrics.jsonl").exists():
            return run, int(told[1])
        time.sleep(0.05)
    raise SystemExit(f"the run does not begin: {errors.read_text()}")


def own_page(browser, port):
    wrong = []
    for host in ("127.0.0.1", "localhost"):
        page = browser.open(f"http://{host}:{port}/")
        if not page.wait_for("document.querySelectorAll('#charts svg').length >= 2"):
            wrong.append(f"{host}: there are no charts: {page.evaluate('document.body.innerText.slice(0, 300)')}")
        if page.evaluate(STATUS) != 200:
            wrong.append(f"{host}: status {page.evaluate(STATUS)}")
        before = page.evaluate("data.version")
        if not page.wait_for(f"data.version !== '{before}'"):
            wrong.append(f"{host}: the page does not follow the run")
        if page.evaluate("fetch('data.json?seen=').then(answer => answer.json()).then(news => news.live)") is not True:
            wrong.append(f"{host}: the page does not get its data")
        wrong += [f"{host}: console: {one}" for one in page.complaints()]
        page.evaluate("{ const e = document.createElement('script'); e.textContent = 'window.injected = 1'; document.head.append(e); }")
        page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=\"data:,\" onerror=\"window.injected = 1\">')")
        time.sleep(0.2)
        if page.evaluate("window.injected") is not None:
            wrong.append(f"{host}: a script that was put into the page ran")
        page.close()
    return wrong


def strangers(browser, port, other):
    """What a page of another origin reads of the run."""
    wrong = []
    for site in (f"http://{FOREIGN}:{other}/", f"http://localhost:{other}/", f"http://127.0.0.1:{other}/"):
        for host in ("127.0.0.1", "localhost"):
            for path in ("", "data.json"):
                url = f"http://{host}:{port}/{path}"
                page = browser.open(site)
                attempts = {"fetch": FETCH % (url, "cors"), "fetch without CORS": FETCH % (url, "no-cors"), "script": ELEMENT % ("script", "src", url),
                            "style sheet": ELEMENT % ("link", "href", url), "picture": ELEMENT % ("img", "src", url), "frame": FRAME % url}
                for name, attempt in attempts.items():
                    if (came := page.evaluate(attempt)) != "refused":
                        wrong.append(f"{site} has {url} by {name}: {came}")
                page.close()
    page = browser.open(f"http://{FOREIGN}:{other}/")
    page.evaluate(f"void (location.href = 'http://localhost:{port}/')")
    if not page.wait_for("document.querySelectorAll('#charts svg').length >= 2"):
        wrong.append("a link of another site does not open the page")
    page.close()
    for path in ("", "data.json"):  # a name that points at this machine
        page = browser.open(f"http://{FOREIGN}:{port}/{path}")
        if page.evaluate(STATUS) != 403:
            wrong.append(f"http://{FOREIGN}:{port}/{path} has status {page.evaluate(STATUS)}")
        page.close()
    return wrong


def end(browser, port, run):
    page = browser.open(f"http://127.0.0.1:{port}/")
    begin = time.monotonic()
    run.send_signal(signal.SIGTERM)
    code, seconds = run.wait(), time.monotonic() - begin
    wrong = [] if code == 75 and seconds < 5 else [f"the run ended after {seconds:.1f} s with {code} while a browser had its page"]
    if not page.wait_for("document.getElementById('state').textContent.includes('server has ended')"):
        wrong.append("the page does not say that the run's server has ended")
    page.close()
    return wrong


def main(arguments):
    bantam, program = str(Path(arguments[0]).resolve()), chromium_program()
    if program is None:
        print("no Chromium: skipped")
        return 0
    stranger = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stranger)
    threading.Thread(target=stranger.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder, Browser(program, f"--host-resolver-rules=MAP {FOREIGN} 127.0.0.1") as browser:
        run, port = begin_run(bantam, Path(folder))
        try:
            wrong = own_page(browser, port) + strangers(browser, port, stranger.server_address[1]) + end(browser, port, run)
        finally:
            run.kill()
            run.wait()
    print("\n".join(wrong) or "the page is sound, and other sites read nothing")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
