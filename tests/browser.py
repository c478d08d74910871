"""A headless Chromium, driven over HTTP by chromedriver: no package is needed, only the two programs."""

import base64
import contextlib
import functools
import json
import shutil
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


class Browser:
    """One window. `look` opens a page; `requests` and `complaints` are those since the last look."""

    def __init__(self, port: int, session: str) -> None:
        self._address = f"http://127.0.0.1:{port}/session/{session}"

    def look(self, url: str) -> None:
        """Open a page and wait until it is loaded."""
        for kind in ("performance", "browser"):
            self._log(kind)
        self._post("/url", url=url)

    def requests(self) -> list[str]:
        """Return the addresses that were asked for."""
        events = [json.loads(entry["message"])["message"] for entry in self._log("performance")]
        sent = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
        return [params["request"]["url"] for params in sent]

    def complaints(self) -> list[str]:
        """Return what the console says."""
        return [entry["message"] for entry in self._log("browser")]

    def ask(self, script: str) -> Any:
        """Return what a line of JavaScript returns."""
        return self._post("/execute/sync", script=f"return {script}", args=[])

    def wait(self, script: str, seconds: float = 20.0) -> Any:
        """Return the first answer of a line of JavaScript that is neither empty nor 0."""
        end = time.monotonic() + seconds
        while not (answer := self.ask(script)) and time.monotonic() < end:
            time.sleep(0.1)
        return answer

    def resize(self, width: int, height: int = 800) -> None:
        """Show pages as on a screen of this size."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._command("Emulation.setDeviceMetricsOverride", size)

    def darken(self, *, dark: bool) -> None:
        """Prefer dark pages, or light ones."""
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._command("Emulation.setEmulatedMedia", {"features": [feature]})

    def photograph(self, path: Path) -> None:
        """Write what the window shows as a PNG file."""
        path.write_bytes(base64.b64decode(self._send("GET", "/screenshot")))

    def _command(self, name: str, parameters: dict[str, Any]) -> None:
        self._post("/goog/cdp/execute", cmd=name, params=parameters)

    def _log(self, kind: str) -> list[dict[str, Any]]:
        return self._post("/se/log", type=kind)

    def _post(self, path: str, **values: Any) -> Any:
        return self._send("POST", path, values)

    def _send(self, method: str, path: str, values: dict[str, Any] | None = None) -> Any:
        return send(method, self._address + path, values)


def send(method: str, url: str, values: dict[str, Any] | None = None) -> Any:
    """Return the value that chromedriver answers with."""
    data = None if values is None else json.dumps(values).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["value"]


@contextlib.contextmanager
def open_browser() -> Iterator[Browser]:
    """Start Chromium with an empty profile; skip the test where it is not installed."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip("needs chromium and chromedriver")
    with contextlib.ExitStack() as stack:
        profile = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        started = subprocess.Popen([driver, "--port=0"], stdout=subprocess.PIPE, text=True)
        process = stack.enter_context(started)
        stack.callback(process.terminate)
        line = next(line for line in process.stdout if "started successfully" in line)
        port = int(line.rpartition("port ")[2].strip(" .\n"))
        wanted = {
            "goog:chromeOptions": {"binary": chromium, "args": [*FLAGS, f"--user-data-dir={profile}"]},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        session = send("POST", f"http://127.0.0.1:{port}/session", {"capabilities": {"alwaysMatch": wanted}})
        browser = Browser(port, session["sessionId"])
        stack.callback(browser._send, "DELETE", "")
        yield browser


@contextlib.contextmanager
def serve(folder: Path) -> Iterator[str]:
    """Serve a folder on this machine alone, and yield its address."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *words: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
