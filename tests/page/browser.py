"""Headless Chromium, driven over its debugging pipe: messages of JSON, each ended by a zero byte, on the file
descriptors 3 and 4 of the browser. No library beyond Python's own."""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time


def find():
    return os.environ.get("TANDEM_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Browser:
    def __init__(self, profile):
        to_read, to_write = os.pipe()
        from_read, from_write = os.pipe()
        # Away from 3 and 4, which the child needs.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 20) for end in (to_read, from_write)]
        for end in (to_read, from_write):
            os.close(end)

        def place():
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        self.process = subprocess.Popen(
            [find(), "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-background-networking", "--disable-extensions", "--disable-component-update", "--hide-scrollbars", "--force-color-profile=srgb",
             f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(3, 4), preexec_fn=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for end in ends:
            os.close(end)
        self.out, self.incoming = to_write, from_read
        self.buffer, self.last, self.events = b"", 0, []

    def call(self, method, session=None, **params):
        self.last += 1
        number = self.last
        message = {"id": number, "method": method, "params": params, **({"sessionId": session} if session else {})}
        os.write(self.out, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + 60
        while True:
            while b"\0" in self.buffer:
                one, self.buffer = self.buffer.split(b"\0", 1)
                got = json.loads(one)
                if got.get("id") == number:
                    assert "error" not in got, (method, got)
                    return got["result"]
                if "method" in got:
                    self.events.append(got)
            assert select.select([self.incoming], [], [], max(0, end - time.monotonic()))[0], f"Chromium does not answer {method}"
            piece = os.read(self.incoming, 1 << 20)
            assert piece, "Chromium has ended"
            self.buffer += piece

    def open(self, url, **size):
        return Tab(self, url, **size)

    def end(self):
        try:
            self.call("Browser.close")
        except (AssertionError, OSError):
            self.process.kill()
        self.process.wait(20)
        os.close(self.out)
        os.close(self.incoming)


KEYS = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowUp": 38, "ArrowLeft": 37, "ArrowRight": 39}


class Tab:
    def __init__(self, browser, url, width=1200, height=800, dark=False, touch=False, beside=None):
        self.browser = browser
        # Storage of its own, or that of the tab beside it.
        self.context = beside.context if beside else browser.call("Target.createBrowserContext")["browserContextId"]
        target = browser.call("Target.createTarget", url="about:blank", browserContextId=self.context)["targetId"]
        self.target = target
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=touch)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.go(url)

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def go(self, url):
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && document.title === 'Tandem' && document.getElementById('name').textContent !== ''")

    def js(self, code):
        """The value of an expression; promises are awaited."""
        got = self.call("Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in got, (code, got["exceptionDetails"])
        return got["result"].get("value")

    def until(self, code, seconds=20):
        end = time.monotonic() + seconds
        while not (value := self.js(code)):
            assert time.monotonic() < end, f"never true: {code}\n" + str(self.js("document.body?.innerText"))[-600:]
            time.sleep(0.02)
        return value

    def type(self, text):
        self.call("Input.insertText", text=text)

    def press(self, key, shift=False):
        fields = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key], "modifiers": 8 if shift else 0}
        self.call("Input.dispatchKeyEvent", type="keyDown", **fields, **({"text": "\r"} if key == "Enter" else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **fields)

    def click(self, selector, place=0):
        found = f"document.querySelectorAll({json.dumps(selector)})[{place}]"
        self.until(f"!!{found}")
        self.js(f"({found}.scrollIntoView({{block: 'nearest'}}), {found}.click())")

    def send(self, text):
        """Types a message, sends it, and waits for the whole answer."""
        before = self.js("document.querySelectorAll('.turn.assistant').length")
        self.js("document.getElementById('input').focus()")
        self.type(text)
        self.press("Enter")
        self.until(f"document.querySelectorAll('.turn.assistant').length > {before} && document.getElementById('send').textContent === 'Send'")

    def problems(self):
        """What the page itself complained about: exceptions, and refusals of its policy."""
        found = [e["params"] for e in self.browser.events if e.get("sessionId") == self.session and
                 (e["method"] == "Runtime.exceptionThrown" or
                  (e["method"] == "Log.entryAdded" and e["params"]["entry"]["source"] in ("security", "javascript")))]
        return found

    def screenshot(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(data))

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)
