"""Servers for the HTTP tests.

`fake` is tandem_http_fake: the real HTTP side over an engine that says what prompts tell it to.
`tandem` is the program itself with a model, for what only real generation can show.

Environment: TANDEM_BIN (build/release/tandem), TANDEM_HTTP_FAKE (build/release/tandem_http_fake),
TANDEM_MODEL (models/tandem-tiny), TANDEM_TEST_PATIENCE (1; times that a bound of time is stretched, for builds that
are slow on purpose).
"""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import threading
import time

import httpx
import openai
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

FOX = "The quick brown fox jumps over the lazy dog."  # what tandem_http_fake says unless a script tells it otherwise


def within(seconds):
    """A bound of time for a release build, stretched for slower ones."""
    return seconds * float(os.environ.get("TANDEM_TEST_PATIENCE", "1"))


class Server:
    """A process that serves on a port of its own choice."""

    def __init__(self, command):
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        self.lines = []
        self.base = None
        self._ready = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()
        if not self._ready.wait(within(120)) or self.base is None:
            self.process.kill()
            raise RuntimeError("the server did not start:\n" + "".join(self.lines))
        self.port = int(self.base.rsplit(":", 1)[1])
        self.http = httpx.Client(base_url=self.base, timeout=within(120))
        self.client = openai.OpenAI(base_url=self.base + "/v1", api_key="none", max_retries=0, timeout=within(120))

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line)
            if found := re.search(r"listening on (http://\S+:\d+)", line):
                self.base = self.base or found.group(1)
                self._ready.set()
        self._ready.set()

    def post(self, path, body, **kwargs):
        return self.http.post(path, json=body, **kwargs)

    def chat(self, content, **fields):
        return self.post("/v1/chat/completions", {"messages": [{"role": "user", "content": content}], **fields})

    def complete(self, prompt, **fields):
        return self.post("/v1/completions", {"prompt": prompt, **fields})

    def events(self, path, body):
        """The data of each event of a stream, parsed; "[DONE]" as it is."""
        found = []
        with self.http.stream("POST", path, json={**body, "stream": True}) as response:
            assert response.status_code == 200, response.read()
            assert response.headers["content-type"].startswith("text/event-stream")
            # By line feeds only: iter_lines() would also cut at U+2028, which JSON may hold.
            for line in response.read().decode().split("\n"):
                if line.startswith("data: "):
                    data = line[6:]
                    found.append(data if data == "[DONE]" else json.loads(data))
                else:
                    assert line == "", line
        return found

    def chat_events(self, content, **fields):
        return self.events("/v1/chat/completions", {"messages": [{"role": "user", "content": content}], **fields})

    def prompt_of(self, **body):
        """The text that a chat body is rendered to."""
        response = self.post("/tokenize", body)
        assert response.status_code == 200, response.text
        return self.post("/detokenize", {"tokens": response.json()["tokens"]}).json()["prompt"]

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=within(20))

    def metric(self, name):
        total = 0.0
        for line in self.http.get("/metrics").text.splitlines():
            if line.startswith(name + "{") or line.startswith(name + " "):
                total += float(line.rsplit(" ", 1)[1])
        return total

    def wait_for(self, name, value, seconds=30):
        """Until a metric has a value."""
        end = time.monotonic() + within(seconds)
        while (now := self.metric(name)) != value:
            assert time.monotonic() < end, f"{name} is {now}, not {value}"
            time.sleep(0.01)

    def check_idle(self):
        self.wait_for("vllm:num_requests_running", 0)
        self.wait_for("vllm:num_requests_waiting", 0)
        self.wait_for("tandem:http_open_answers", 0)
        assert self.http.get("/health").status_code == 200
        assert self.chat("still there?", max_tokens=2).status_code == 200

    def end(self):
        self.http.close()
        self.client.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(within(15))
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise
        return self.process.returncode


def path_from(variable, default):
    return pathlib.Path(os.environ.get(variable, ROOT / default))


def start_fake(**options):
    program = path_from("TANDEM_HTTP_FAKE", "build/release/tandem_http_fake")
    return Server([program] + [f"{name}={value}" for name, value in options.items()])


@pytest.fixture(scope="session")
def fake():
    server = start_fake()
    yield server
    assert server.end() == 0, "".join(server.lines)


@pytest.fixture
def start():
    """Starts fakes with options of the test's own; they end with the test."""
    servers = []

    def starter(**options):
        servers.append(start_fake(**options))
        return servers[-1]

    yield starter
    for server in servers:
        if server.process.poll() is None:
            server.process.send_signal(signal.SIGTERM)  # and end() sends the second: no draining
            time.sleep(0.1)
        server.end()


def start_tandem(*flags):
    program = path_from("TANDEM_BIN", "build/release/tandem")
    model = path_from("TANDEM_MODEL", "models/tandem-tiny")
    return Server([program, "serve", model, "--port", "0", "--served-model-name", "tiny", *flags])


@pytest.fixture(scope="session")
def tandem():
    server = start_tandem()
    yield server
    assert server.end() == 0, "".join(server.lines)


@pytest.fixture(scope="module")
def tandem_processed():
    """With logprobs of what the sampler saw, and operators whose bits do not depend on the neighbours."""
    server = start_tandem("--logprobs-mode", "processed", "--ops", "reference")
    yield server
    assert server.end() == 0, "".join(server.lines)


def script(**what):
    """Tells the fake engine what to do; put it into a message or prompt."""
    return "@@" + json.dumps(what) + "@@"


def user(text):
    return {"role": "user", "content": text}
