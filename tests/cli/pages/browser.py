"""Pages in headless Chromium, for the checks of pages beside this file."""
import shutil
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def chromium():
    """A browser; None, after saying so, where there is no Playwright or no Chromium."""
    program = next((path for path in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if path), None)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        sync_playwright = None
    if sync_playwright is None or program is None:
        print("no Chromium: skipped" if sync_playwright else "no Chromium: skipped (Playwright is missing)")
        yield None
        return
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


def arguments_of(arguments):
    """BANTAM [--shots DIR] [NAME…]: the program's path, DIR or None, the names."""
    bantam, rest, shots = str(Path(arguments[0]).resolve()), arguments[1:], None
    if rest[:1] == ["--shots"]:
        shots, rest = rest[1], rest[2:]
    return bantam, shots, rest


def complaints(browser, file, shots, at_rest, in_use):
    """What is wrong with a page of any width and theme: on the console, fetched, or found by at_rest(page) and, after the shot, in_use(page)."""
    found = [f"{file.name} has {file.stat().st_size} bytes"] if file.stat().st_size > 3_000_000 else []
    for width in (1280, 390):
        for theme in ("light", "dark"):
            page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=theme)
            wrong = []
            page.on("console", lambda message: wrong.append("console: " + message.text) if message.type in ("error", "warning") else None)
            page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
            page.on("request", lambda request: None if request.url.startswith(("file:", "data:")) else wrong.append("fetches " + request.url))
            page.goto(file.resolve().as_uri())
            page.wait_for_timeout(200)
            wrong += at_rest(page)
            if shots:
                page.screenshot(path=str(Path(shots) / f"{file.stem}-{width}-{theme}.png"), full_page=True)
            wrong += in_use(page)
            page.close()
            found += [f"{file.name}, {width} pixels, {theme}: {one}" for one in wrong]
    return found


def verdict(wrong):
    print("\n".join(wrong) or "the pages are sound")
    return 1 if wrong else 0
