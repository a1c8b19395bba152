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


# What a shell is to its job: the session's leader, which puts the program into the foreground and outlives its stops.
SHELL = """
import os, signal, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
pid = os.fork()
if pid == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpgrp())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.argv[2], sys.argv[2:])
os.write(int(sys.argv[1]), str(pid).encode())
os.close(int(sys.argv[1]))
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


class Terminal:
    def __init__(self, *arguments, columns=100, rows=40, environment={}, under_a_shell=False):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.slave = slave  # kept open, to look at its modes

        def as_a_shell_starts_it():
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # a test run under nohup hands its own on

        self.before = termios.tcgetattr(slave)
        command = [TANDEM, "chat", *arguments]
        read, write = os.pipe()
        if under_a_shell:
            command = [sys.executable, "-c", SHELL, str(write), *command]
        self.process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True, pass_fds=[write] * under_a_shell,
                                        preexec_fn=as_a_shell_starts_it, env={**os.environ, "TERM": "xterm", **environment})
        os.close(write)
        self.pid = int(os.read(read, 20)) if under_a_shell else self.process.pid
        os.close(read)
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
        """Until the editor waits for a key: Ctrl-C is one then."""
        end = time.monotonic() + 60
        while termios.tcgetattr(self.slave)[3] & termios.ISIG:
            assert time.monotonic() < end, self.text()[-1500:]
            self.read(0.02)
        while self.read(0.05):
            pass
        return self

    def resize(self, columns, rows=40):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))  # the kernel sends SIGWINCH

    def wait_until_stopped(self):
        end = time.monotonic() + 60
        while pathlib.Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "T":
            assert time.monotonic() < end, self.text()[-1500:]
            self.read(0.02)
        while self.read(0.05):
            pass

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
            if self.pid != self.process.pid:
                os.kill(self.pid, signal.SIGKILL)
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
