"""Pages in headless Chromium by its own protocol (--remote-debugging-pipe), with Python's library alone."""
import json
import os
import select
import shutil
import subprocess
import tempfile
import time


def chromium_program():
    """Its path; None where there is none."""
    return next((path for path in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if path), None)


class Browser:
    def __init__(self, program, *flags):
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_read, self.to = os.pipe()
        self.answers, to_write = os.pipe()

        def place():  # Chromium reads descriptor 3 and writes 4
            read, write = os.dup(to_read), os.dup(to_write)
            os.dup2(read, 3)
            os.dup2(write, 4)

        self.process = subprocess.Popen([program, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", f"--user-data-dir={self.folder.name}", *flags],
                                        preexec_fn=place, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self.number, self.rest, self.events = 0, b"", []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        os.close(self.to)
        os.close(self.answers)
        self.folder.cleanup()

    def receive(self, seconds):
        """The next message; None where none comes."""
        while b"\0" not in self.rest:
            if not select.select([self.answers], [], [], seconds)[0]:
                return None
            part = os.read(self.answers, 1 << 16)
            if not part:
                raise RuntimeError("Chromium has ended")
            self.rest += part
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, session=None, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters} | ({"sessionId": session} if session else {})
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive(60)
            if answer is None:
                raise RuntimeError(f"Chromium does not answer {method}")
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def open(self, url):
        return Page(self, url)


class Page:
    """A tab that has loaded its address."""

    def __init__(self, browser, url):
        self.browser = browser
        self.target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            browser.call(domain + ".enable", self.session)
        browser.call("Page.navigate", self.session, url=url)
        self.wait_for("document.readyState === 'complete' && location.href !== 'about:blank'")

    def evaluate(self, script):
        """The value of an expression, or of the promise that it is."""
        result = self.browser.call("Runtime.evaluate", self.session, expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{script}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait_for(self, script, seconds=20):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                if self.evaluate(script):
                    return True
            except RuntimeError as error:  # the page is being replaced
                if "Chromium" in str(error):
                    raise
            time.sleep(0.05)
        return False

    def complaints(self):
        """The errors and warnings of the page's console so far."""
        found = []
        while (message := self.browser.receive(0.1)) is not None:
            self.browser.events.append(message)
        for event in self.browser.events:
            if event.get("sessionId") != self.session:
                continue
            values = event["params"]
            if event["method"] == "Log.entryAdded" and values["entry"]["level"] in ("error", "warning"):
                found.append(f"{values['entry']['text']} ({values['entry'].get('url', '')})")
            if event["method"] == "Runtime.exceptionThrown":
                found.append(str(values["exceptionDetails"]))
        return found

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)
