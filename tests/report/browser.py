"""A headless Chromium through ChromeDriver's own protocol (W3C WebDriver), nothing in between."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from processes import LONG_S

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
MISSING = None if CHROMIUM and DRIVER else "no Chromium with ChromeDriver on this machine"
"""Why no test in a browser can run."""
FLAGS = (
    "--disable-dev-shm-usage",  # which is small in containers
    "--hide-scrollbars",  # as on phones and on paper
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


class Browser:
    """One window."""

    def __init__(self, base: str) -> None:
        self._base = base

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self._base + path, data, {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=LONG_S) as reply:
                return json.load(reply)["value"]
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{path}: {error.read().decode()[:2000]}") from None

    def devtools(self, command: str, **parameters: Any) -> Any:
        """One command of the Chrome DevTools Protocol."""
        return self.call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def resize(self, width: int, media: str = "", **features: str) -> None:
        """A window of that width [CSS pixels], a medium and its features (`prefers_...`)."""
        self.devtools(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        named = [{"name": k.replace("_", "-"), "value": v} for k, v in features.items()]
        self.devtools("Emulation.setEmulatedMedia", media=media, features=named)

    def element(self, css: str) -> str:
        """The path of the first element."""
        found = self.call("POST", "/element", {"using": "css selector", "value": css})
        return f"/element/{next(iter(found.values()))}"

    def click(self, css: str) -> None:
        """With the pointer; what is hidden or covered cannot be clicked."""
        self.call("POST", f"{self.element(css)}/click", {})

    def type(self, css: str, text: str) -> None:
        """With the keyboard, in place of what was there."""
        field = self.element(css)
        self.call("POST", f"{field}/clear", {})
        self.call("POST", f"{field}/value", {"text": text})

    def pages_printed(self) -> int:
        """How many pages of A4 the page in the window makes."""
        printed = self.devtools(
            "Page.printToPDF", preferCSSPageSize=True, paperWidth=8.27, paperHeight=11.69
        )
        return len(re.findall(rb"/Type\s*/Page\b", base64.b64decode(printed["data"])))

    def open(self, page: Path) -> None:
        self.call("POST", "/url", {"url": page.resolve().as_uri()})

    def run(self, script: str, *arguments: Any) -> Any:
        return self.call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def wait_for(self, script: str) -> Any:
        """What a script returns, once that is something."""
        until = time.monotonic() + LONG_S
        while not (found := self.run(script)):
            assert time.monotonic() < until, f"nothing came of {script}"
            time.sleep(0.02)
        return found

    def messages(self) -> list[str]:
        entries = self.call("POST", "/se/log", {"type": "browser"})
        return [entry["message"] for entry in entries]

    def requests(self, page: Path) -> list[str]:
        """What was asked for on behalf of this page; the browser's own pages ask for things too."""
        entries = self.call("POST", "/se/log", {"type": "performance"})
        events = [json.loads(entry["message"])["message"] for entry in entries]
        return [
            event["params"]["request"]["url"]
            for event in events
            if event["method"] == "Network.requestWillBeSent"
            and event["params"]["documentURL"] == page.resolve().as_uri()
        ]


@contextmanager
def browser(folder: Path, *flags: str, scripts: bool = True) -> Iterator[Browser]:
    """A window of its own with an empty profile in `folder`."""
    assert DRIVER is not None
    log = folder / "driver.log"
    with log.open("w") as stream:
        driver = subprocess.Popen([DRIVER, "--port=0"], stdout=stream, stderr=stream)
    try:
        port = _port(log)
        options: dict[str, Any] = {
            "binary": CHROMIUM,
            "args": [*FLAGS, *flags, f"--user-data-dir={folder / 'profile'}"],
        }
        if not scripts:
            options["prefs"] = {"profile.managed_default_content_settings.javascript": 2}
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        root = Browser(f"http://127.0.0.1:{port}/session")
        session = root.call("POST", "", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
        window = Browser(f"http://127.0.0.1:{port}/session/{session}")
        try:
            yield window
        finally:
            window.call("DELETE", "")
    finally:
        driver.terminate()
        driver.wait()


def _port(log: Path) -> int:
    for _ in range(int(LONG_S * 10)):
        for line in log.read_text().splitlines():
            if "started successfully on port" in line:
                return int(line.rstrip(".").rpartition(" ")[2])
        time.sleep(0.1)
    raise AssertionError(f"ChromeDriver did not start: {log.read_text()}")
