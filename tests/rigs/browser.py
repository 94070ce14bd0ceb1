"""Headless Chromium, spoken to over a pipe with its own protocol (DevTools)."""

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self

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
_WITH_PIPES = """
import os, sys
# Neither is to be overwritten by the other.
given = [os.dup(os.dup(int(each))) for each in sys.argv[1:3]]
for descriptor, place in zip(given, (3, 4)):
    os.dup2(descriptor, place)
os.execvp(sys.argv[3], sys.argv[3:])
"""


class Tab:
    """One tab of a browser of its own."""

    def __init__(self, program: str, profile: Path) -> None:
        their_in, self._out = os.pipe()
        self._in, their_out = os.pipe()
        flags = (*FLAGS, "--hide-scrollbars", "--remote-debugging-pipe")
        # The browser reads its file 3 and writes its file 4.
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-c", _WITH_PIPES, str(their_in), str(their_out)),
                *(program, *flags, f"--user-data-dir={profile}", "about:blank"),
            ],
            pass_fds=(their_in, their_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(their_in)
        os.close(their_out)
        self._numbers = count(1)
        self._left = b""
        self._session = ""

    def __enter__(self) -> Self:
        """Open the tab."""
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        found = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = found["sessionId"]
        self._call("Page.enable")
        # The page's own policy forbids every script, that of the test too.
        self._call("Page.setBypassCSP", enabled=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        """End the browser."""
        self._process.terminate()
        self._process.wait(30)
        os.close(self._in)
        os.close(self._out)

    def show(self, url: str, *, width: int, dark: bool = False) -> None:
        """Open a page in a window of this many columns, and wait until it is there."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        self._call("Page.navigate", url=url)
        while self._read().get("method") != "Page.loadEventFired":
            pass

    def evaluate(self, expression: str) -> Any:  # noqa: ANN401 - whatever the page has
        """Return the value of an expression in the page, awaited."""
        answer = self._call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def picture(self, *, width: int, height: int) -> bytes:
        """Return the upper left part of the page as PNG."""
        part = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        answer = self._call("Page.captureScreenshot", format="png", clip=part)
        return base64.b64decode(answer["data"])

    def _call(self, method: str, **params: object) -> dict[str, Any]:
        number = next(self._numbers)
        message: dict[str, object] = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        packet = json.dumps(message).encode() + b"\0"
        while packet:
            packet = packet[os.write(self._out, packet) :]
        while True:
            answer = self._read()
            if answer.get("id") == number:
                break
        if "error" in answer:
            raise AssertionError(answer["error"])
        result: dict[str, Any] = answer["result"]
        return result

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            chunk = os.read(self._in, 1 << 20)
            if not chunk:
                raise AssertionError("the browser ended")
            self._left += chunk
        packet, _, self._left = self._left.partition(b"\0")
        message: dict[str, Any] = json.loads(packet)
        return message


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    """Return a tab of a browser that all tests of a module use."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    if program is None:
        pytest.skip("SKIPPED: no chromium on PATH; install it to test the status pages")
    with Tab(program, tmp_path_factory.mktemp("profile")) as made:
        yield made
