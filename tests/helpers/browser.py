"""A real browser for the tests of pages: headless Chromium, driven through chromedriver."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def data_of(page: Path) -> dict[str, Any]:
    """Return the data that the scripts of a review page work on; no browser is needed."""
    found = re.search(r'id="data">(.*?)</script>', page.read_text(), re.S)
    assert found
    return json.loads(found[1])


@contextmanager
def chromium(profile: Path) -> Iterator[Any]:
    """Skips the test, with the reason, where there is no Chromium."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if not browser or not driver:
        pytest.skip("no Chromium with its chromedriver found (Debian: chromium, chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        opened.get("about:blank")  # some versions begin with the page of a new tab, which goes on loading
        yield opened
    finally:
        opened.quit()


def set_width(browser: Any, width: int, height: int = 900) -> None:
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def opened(browser: Any, page: Path, width: int = 1280, height: int = 900) -> Any:
    set_width(browser, width, height)
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(page.as_uri())
    return browser


def no_complaint(browser: Any) -> bool:
    return [entry for entry in browser.get_log("browser") if entry["level"] != "DEBUG"] == []


def requests(browser: Any) -> list[str]:
    """Return the requests since the page was opened, except for data in the page itself."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    return [url for url in urls if not url.startswith(("data:", "blob:"))]


_AT_REST = """
const [element, done] = arguments;
let before = "";
const look = () => {
  const {x, y, width, height} = element.getBoundingClientRect();
  const now = [x, y, width, height].join();
  if (now === before) done(); else { before = now; requestAnimationFrame(() => requestAnimationFrame(look)); }
};
look();
"""


def click(browser: Any, element: Any) -> None:
    """Click when the page has come to rest: on a slow machine, it may still be laid out."""
    browser.execute_script("arguments[0].scrollIntoView({block: 'nearest'})", element)
    browser.execute_async_script(_AT_REST, element)
    element.click()


def eventually(found: Callable[[], Any], expected: Any) -> None:
    """Wait until a browser on a busy machine shows the effect of a click."""
    # WebDriver reports no change of a page; it can only be asked again.
    deadline = time.monotonic() + 60
    while (value := found()) != expected and time.monotonic() < deadline:
        time.sleep(0.05)
    assert value == expected
