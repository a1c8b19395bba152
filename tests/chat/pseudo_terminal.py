"""`tandem chat` at a pseudo-terminal."""

import fcntl
import json
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cases"))
from servers import path_from  # noqa: E402

TANDEM = str(path_from("TANDEM_BIN", "build/release/tandem"))


class Terminal:
    def __init__(self, *arguments, columns=100, rows=40):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.slave = slave  # kept open, to look at its modes

        def as_a_shell_starts_it():
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # a test run under nohup hands its own on

        self.process = subprocess.Popen([TANDEM, "chat", *arguments], stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                                        preexec_fn=as_a_shell_starts_it, env={**os.environ, "TERM": "xterm"})
        self.raw = ""

    def read(self, seconds):
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        try:
            piece = os.read(self.master, 65536)
        except OSError:
            return False
        self.raw += piece.decode(errors="replace")
        return True

    def text(self, since=0):
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.raw[since:]).replace("\r", "")

    def expect(self, words, since=0, seconds=60):
        end = time.monotonic() + seconds
        while words not in self.text(since):
            assert time.monotonic() < end and (self.process.poll() is None or self.read(0.2)), (words, self.text(since)[-1500:])
            self.read(0.2)
        return self

    def prompt(self):
        """Until the editor waits for a key: the terminal is raw then."""
        end = time.monotonic() + 60
        while termios.tcgetattr(self.slave)[3] & termios.ICANON:
            assert time.monotonic() < end, self.text()[-1500:]
            self.read(0.02)
        while self.read(0.05):
            pass
        return self

    def keys(self, text):
        os.write(self.master, text if isinstance(text, bytes) else text.encode())

    def say(self, text, answer):
        """A line and its answer; what came since."""
        self.prompt()
        since = len(self.raw)
        self.keys(text + "\r")
        self.expect(answer, since)
        return since

    def quit(self):
        self.prompt().keys("/quit\r")
        end = time.monotonic() + 20
        while self.process.poll() is None and time.monotonic() < end:
            self.read(0.1)
        assert self.process.wait(5) == 0, self.text()[-1500:]
        assert termios.tcgetattr(self.slave)[3] & termios.ECHO  # as it was
        self.close()

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for end in (self.master, self.slave):
            if end >= 0:
                os.close(end)
        self.master = self.slave = -1


def sent(terminal, tmp_path):
    """The conversation as the program has it."""
    file = tmp_path / "chat.json"
    terminal.say(f"/save {file}", "saved to")
    return json.loads(file.read_text())
