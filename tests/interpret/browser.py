"""A real Chromium for tests, driven through its debugging pipe: JSON messages that end with a zero byte, no library."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-dev-shm-usage", "--allow-file-access-from-files", "--remote-debugging-pipe",
)  # fmt: skip
KEYS = {" ": "Space", "ArrowLeft": "ArrowLeft", "ArrowRight": "ArrowRight", "Home": "Home", "End": "End", "Tab": "Tab"}


class Browser:
    """One page of a fresh Chromium. What it requested and complained of is kept in ``requests`` and ``errors``."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="chromium-")
        hears, self.out = os.pipe()
        self.inp, says = os.pipe()
        # Chromium reads from descriptor 3 and writes to 4; the shell moves ours there.
        command = f'exec "$0" "$@" 3<&{hears} 4>&{says}'
        self.process = subprocess.Popen(
            ["bash", "-c", command, CHROMIUM, *FLAGS, f"--user-data-dir={self.folder}", "about:blank"],
            pass_fds=(hears, says), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(hears)
        os.close(says)
        self.buffer, self.number, self.session = b"", 0, None
        self.errors, self.requests = [], []
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target for target in targets if target["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            heard = self._hear()
            if heard.get("id") == self.number:
                if "error" in heard:
                    raise RuntimeError(f"{method}: {heard['error']}")
                return heard["result"]

    def _hear(self, limit=600):
        while b"\0" not in self.buffer:
            if not select.select([self.inp], [], [], limit)[0]:
                raise TimeoutError("Chromium says nothing")
            part = os.read(self.inp, 1 << 20)
            if not part:
                raise RuntimeError("Chromium ended")
            self.buffer += part
        text, self.buffer = self.buffer.split(b"\0", 1)
        heard = json.loads(text)
        self._note(heard.get("method"), heard.get("params", {}))
        return heard

    def _note(self, method, params):
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.errors.append(str(params["exceptionDetails"].get("exception", params)))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.errors.append(str([arg.get("value") for arg in params["args"]]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(params["entry"]["text"])

    def window(self, width, height, *, theme="dark", reduced=False):
        features = [{"name": "prefers-color-scheme", "value": theme}]
        features += [{"name": "prefers-reduced-motion", "value": "reduce"}] if reduced else []
        self.call("Emulation.setEmulatedMedia", features=features)
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def open(self, path, suffix="", *, wait=True):
        """Opens a file; returns the seconds until the page says that it is ready."""
        self.errors.clear()
        self.requests.clear()
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=f"file://{path}{suffix}")
        end = time.monotonic() + 600
        while wait and time.monotonic() < end:
            if self.run("window.memx?.ready === true || document.querySelector('.error') !== null"):
                return self.run("(window.memx.opened ?? NaN) / 1000")
            time.sleep(0.02)
        return None

    def run(self, script):
        """The value of a JavaScript expression (promises are waited for)."""
        told = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in told:
            raise RuntimeError(told["exceptionDetails"]["exception"].get("description"))
        return told["result"].get("value")

    def press(self, key, *, shift=False):
        told = {"key": key, "modifiers": 8 if shift else 0, "code": KEYS.get(key, "")}
        if key == "Tab":
            told["windowsVirtualKeyCode"] = 9
        if key in ("Enter", " "):
            told["windowsVirtualKeyCode"] = {"Enter": 13, " ": 32}[key]
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **told)
        self.call("Input.dispatchKeyEvent", type="keyUp", **told)
        self.settle()

    def click(self, x, y):
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)
        self.settle()

    def settle(self):
        """Waits until what was asked for is drawn."""
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def screenshot(self, path, *, whole=False):
        told = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        with open(path, "wb") as file:
            file.write(base64.b64decode(told["data"]))

    def close(self):
        self.session = None
        try:
            self.call("Browser.close")
        except (RuntimeError, TimeoutError, OSError):
            self.process.kill()
        self.process.wait(60)
        os.close(self.out)
        os.close(self.inp)
        shutil.rmtree(self.folder, ignore_errors=True)
