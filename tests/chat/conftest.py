"""Starts `tandem chat` and servers for it, and ends them with the test."""

import http.server
import json
import threading

import pytest
from pseudo_terminal import Terminal
from servers import fake  # noqa: F401


@pytest.fixture
def chat(fake):
    opened = []

    def start(*arguments, **more):
        opened.append(Terminal(*(arguments or ("--url", fake.base)), **more))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


class ScriptedServer:
    """Answers POSTs with `reply(handler)`, a function of the test; `bodies` has what was asked."""

    def __init__(self):
        self.reply, self.bodies, self.model = None, [], "scripted"
        scripted = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                self.whole(200, {"data": [{"id": scripted.model}]})

            def do_POST(self):
                scripted.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                scripted.reply(self)

            def whole(self, status, body):
                body = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
                self.wfile.flush()

            def event(self, text, finish=None):
                choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
                return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.base = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def says(self, text):
        self.reply = lambda handler: handler.whole(200, handler.event(text, "stop") + b"data: [DONE]\n\n")

    def refuses(self, status, message):
        self.reply = lambda handler: handler.whole(status, {"error": {"message": message}})


@pytest.fixture
def scripted():
    server = ScriptedServer()
    server.says("An answer.")
    yield server
    server.server.shutdown()
    server.server.server_close()
