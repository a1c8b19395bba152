"""What the cases share: the servers of tests/http, and the yardstick SAME of docs/cases.md."""

import importlib.util
import json
import pathlib
import random

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

_spec = importlib.util.spec_from_file_location("tandem_http_servers", ROOT / "tests/http/conftest.py")
http = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(http)
start_tandem, start_fake, script, path_from, within = http.start_tandem, http.start_fake, http.script, http.path_from, http.within

PAGE = 64        # tokens of a KV page
NEAR_TIE = 0.05  # of SOLO's two best logprobs


class Run:
    """Starts `tandem serve` with flags for one test, and ends it in order."""

    def __init__(self, *flags):
        self.flags = flags

    def __enter__(self):
        self.server = start_tandem(*self.flags)
        return self.server

    def __exit__(self, failed, *_):
        status = self.server.end()
        assert failed or status == 0, "".join(self.server.lines)


@pytest.fixture(scope="module")
def tandem():
    with Run() as server:
        yield server
        server.check_idle()


@pytest.fixture(scope="module")
def fake():
    server = start_fake()
    yield server
    assert server.end() == 0, "".join(server.lines)


def ids(count, seed=1):
    """Ordinary token ids of the bundled model, the same for the same seed."""
    source = random.Random(seed)
    return [source.randrange(300, 4000) for _ in range(count)]


def of_id(name):
    return int(name.split(":")[1])


class Answer:
    """The ids of a greedy answer, with the gap between its two best tokens at each place."""

    def __init__(self, choice):
        logprobs = choice["logprobs"]
        self.ids = [of_id(name) for name in logprobs["tokens"]]
        self.logprobs = logprobs["token_logprobs"]
        self.top = [{of_id(name): value for name, value in (top or {}).items()} for top in logprobs["top_logprobs"]]
        self.text = choice["text"]
        self.finish = choice["finish_reason"]

    def gap(self, place):
        best = sorted(self.top[place].values(), reverse=True)
        return best[0] - best[1]


def ask(server, prompt, max_tokens, **fields):
    answer = server.post("/v1/completions", {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "logprobs": 5,
                                             "ignore_eos": True, "return_tokens_as_token_ids": True, **fields})
    assert answer.status_code == 200, answer.text
    return Answer(answer.json()["choices"][0])


def ask_stream(server, prompt, max_tokens, each=lambda count: None):
    """ask() as a stream; `each` is told after every event how many tokens have come."""
    logprobs = {"tokens": [], "token_logprobs": [], "top_logprobs": []}
    text, finish = "", None
    body = {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "logprobs": 5, "ignore_eos": True,
            "return_tokens_as_token_ids": True, "stream": True}
    with server.http.stream("POST", "/v1/completions", json=body) as response:
        assert response.status_code == 200, response.read()
        for line in response.iter_lines():
            if not line.startswith("data: {"):
                continue
            choice = json.loads(line[6:])["choices"][0]
            text += choice["text"]
            finish = choice["finish_reason"] or finish
            for name, values in logprobs.items():
                values += (choice["logprobs"] or {}).get(name) or []
            each(len(logprobs["tokens"]))
    return Answer({"logprobs": logprobs, "text": text, "finish_reason": finish})


def assert_same(answer, solo, what=""):
    """SAME: equal ids, or a first difference where SOLO's two best lie within NEAR_TIE of each other."""
    for place, (got, wanted) in enumerate(zip(answer.ids, solo.ids)):
        if got != wanted:
            assert solo.gap(place) < NEAR_TIE, (what, place, got, wanted, solo.top[place])
            return
    assert len(answer.ids) == len(solo.ids), what


def most_equal_in_a_row(values):
    longest = run = 0
    last = object()
    for value in values:
        run = run + 1 if value == last else 1
        last = value
        longest = max(longest, run)
    return longest
