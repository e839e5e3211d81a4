"""A real browser for tests: Chromium, driven by its DevTools protocol over two pipes.

It needs no package: messages are JSON ended by a zero byte, to file descriptor 3 and from 4.
"""

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
    "--window-size=1400,900",
    "about:blank",
)


def find() -> str:
    """The path of a browser; the test is skipped where there is none. CKL_BROWSER names one."""
    for name in (os.environ.get("CKL_BROWSER"), *NAMES):
        if name and (path := shutil.which(name)):
            return path
    pytest.skip(f"there is no browser here: none of {', '.join(NAMES)}, and no CKL_BROWSER")


class Browser:
    """One page of a browser."""

    def __init__(self, profile: Path):
        self.downloads = profile / "downloads"
        self.downloads.mkdir(parents=True)
        self.events: list[dict[str, Any]] = []
        self._number, self._rest, self._session = 0, b"", ""
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        self._process = subprocess.Popen(
            [
                "bash",
                "-c",
                f'exec "$@" 3<&{to_browser} 4>&{from_browser}',
                "bash",
                find(),
                f"--user-data-dir={profile}",
                *_FLAGS,
            ],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(to_browser)
        os.close(from_browser)
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        self.send("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(self.downloads))

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.send("Browser.close")
        with contextlib.suppress(Exception):
            self._process.wait(20)
        self._process.kill()
        os.close(self._out)
        os.close(self._in)

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Calls a method of the protocol and returns its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session and not method.startswith(("Target.", "Browser.")):
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def _next(self, seconds: float = 60) -> dict[str, Any]:
        until = time.monotonic() + seconds
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], max(0, until - time.monotonic()))
            assert ready, "the browser does not answer"
            block = os.read(self._in, 1 << 20)
            assert block, "the browser has ended"
            self._rest += block
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def open(self, path: Path) -> None:
        """Opens a file and waits until it is loaded."""
        self.send("Page.navigate", url=path.resolve().as_uri())
        self.wait("document.readyState === 'complete' && location.protocol === 'file:'")

    def run(self, code: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.send(
            "Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, code: str, seconds: float = 20) -> None:
        """Waits until an expression is true."""
        until = time.monotonic() + seconds
        while not self.run(code):
            assert time.monotonic() < until, f"never true: {code}"
            time.sleep(0.05)

    def key(self, key: str, text: str = "", modifiers: int = 0) -> None:
        """Presses and releases a key; `modifiers` 2 is Ctrl."""
        text = text or (key if len(key) == 1 and not modifiers else "")
        for kind in ("keyDown", "keyUp"):
            more = {"text": text} if text and kind == "keyDown" else {}
            self.send("Input.dispatchKeyEvent", type=kind, key=key, modifiers=modifiers, **more)

    def click(self, selector: str) -> None:
        """Clicks with the mouse in the middle of an element."""
        x, y = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); "
            "e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect(); "
            "return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def choose_file(self, selector: str, path: Path) -> None:
        """Gives a file to an `<input type="file">`."""
        root = self.send("DOM.getDocument")["root"]["nodeId"]
        node = self.send("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.send("DOM.setFileInputFiles", files=[str(path)], nodeId=node)

    def screenshot(self, path: Path) -> None:
        data = self.send("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(data))

    def errors(self) -> list[str]:
        """What the console complained of, and exceptions."""
        self.run("0")
        found = []
        for event in self.events:
            params = event.get("params", {})
            if event.get("method") == "Runtime.exceptionThrown":
                found.append(str(params["exceptionDetails"]))
            if event.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
                found.append(params["entry"]["text"])
        return found

    def requests(self) -> list[str]:
        """Addresses that the page asked for, but for itself and what is inside it."""
        self.run("0")
        urls = [
            e["params"]["request"]["url"]
            for e in self.events
            if e.get("method") == "Network.requestWillBeSent"
        ]
        return [url for url in urls if not url.startswith(("file:", "blob:", "data:", "about:"))]
