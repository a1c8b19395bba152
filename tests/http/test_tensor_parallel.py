"""Tensor parallelism over HTTP on CPU ranks (milestone P1): the same answers on two ranks as on one, and an end in
bounded time when a rank fails."""

import json
import pathlib
import signal
import threading
import time

import httpx
import pytest

from conftest import Server, path_from, within

TEXT = "The old house stood by the sea, and in the morning the family walked down to the harbour to look at the boats."


@pytest.fixture
def ranks():
    """Starts the program on that many ranks; ends with the test."""
    servers = []

    def start(count, *flags):
        program = path_from("TANDEM_BIN", "build/release/tandem")
        model = path_from("TANDEM_MODEL", "models/tandem-tiny")
        servers.append(Server([program, "serve", model, "--port", "0", "--served-model-name", "tiny", "--device", "cpu",
                               "--tp", str(count), "--cpu-threads", "1", *flags]))
        return servers[-1]

    yield start
    for server in servers:
        server.end()


def scores(server, **fields):
    """Logprobs of a given text, so that a rounding cannot send two servers apart."""
    answer = server.complete(TEXT, temperature=0, echo=True, max_tokens=0, logprobs=1, **fields)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["logprobs"]["token_logprobs"][1:]


@pytest.mark.parametrize("count", [2, 4])
def test_more_ranks_give_the_answers_of_one(ranks, count):
    """proves R7.7 and the P1 smoke: equal within rounding, and the same bytes every time."""
    one, many = ranks(1), ranks(count)
    single, sharded = scores(one), scores(many)
    assert len(single) == len(sharded) > 20
    off = [abs(a - b) for a, b in zip(single, sharded)]
    print(f"{count} ranks: mean |difference| {sum(off) / len(off):.4f}, most {max(off):.4f}")
    assert 0 < sum(off) / len(off) < 0.05 and max(off) < 0.5
    assert scores(many) == sharded
    text = many.complete("The old house stood", temperature=0, max_tokens=30).json()["choices"][0]["text"]
    assert many.complete("The old house stood", temperature=0, max_tokens=30).json()["choices"][0]["text"] == text
    events = many.events("/v1/completions", {"prompt": "The old house stood", "temperature": 0, "max_tokens": 30})
    assert "".join(e["choices"][0]["text"] for e in events[:-1] if e["choices"]) == text
    assert events[-1] == "[DONE]"


def test_requests_at_once_on_two_ranks_end_and_leave_nothing(ranks):
    server = ranks(2)
    prompts = [TEXT[: 5 + 7 * i] for i in range(12)]  # more than there are slots
    alone = [server.complete(p, temperature=0, max_tokens=16).json()["choices"][0]["text"] for p in prompts[:3]]
    answers = [None] * len(prompts)

    def ask(i):
        answers[i] = server.complete(prompts[i], temperature=0, max_tokens=16).json()["choices"][0]["text"]

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(answers)
    assert answers[:3] == alone  # the CPU kernels' results depend on no other row
    server.check_idle()


IDLE_FAULTS = [
    # kind, seconds until /health must be 503 (a ping every 0.2 s, a deadline of 1 s), words of the log
    ("error", 1, "Ping number"),
    ("lost-reply", 2.5, "is not answered after 1000 ms"),
    ("hang", 2.5, "ranks do not end"),
]


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("kind, known, words", IDLE_FAULTS, ids=[f[0] for f in IDLE_FAULTS])
def test_a_rank_that_fails_while_nobody_asks_anything_ends_the_process(ranks, kind, known, words, rank):
    """proves R3.2, R3.5 with no request in flight."""
    server = ranks(2, "--idle-ping", "0.2", "--drop-deadline", "1", "--fault", f"kind={kind},rank={rank},command=Ping")
    begin = time.monotonic()
    try:
        while server.http.get("/health").status_code != 503:
            assert time.monotonic() - begin < within(known), "".join(server.lines)
            time.sleep(0.01)
        told = time.monotonic()
        assert server.complete("hello", max_tokens=2).status_code == 503
    except httpx.TransportError:
        told = time.monotonic()
    status = server.process.wait(within(12))
    gone = time.monotonic()
    log = "".join(server.lines)
    assert status != 0 and gone - told < within(10)
    assert words in log and f"rank {rank}" in log, log[-2000:]
    print(f"idle, {kind} on rank {rank}: 503 after {told - begin:.2f} s, process gone {gone - told:.2f} s later, status {status}")


def test_an_idle_replica_uses_next_to_no_processor_time(ranks):
    server = ranks(2)
    server.complete("hello", max_tokens=2)

    def processor_seconds():
        tasks = pathlib.Path(f"/proc/{server.process.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9

    before = processor_seconds()
    time.sleep(4)  # what is measured: four seconds in which nobody asks anything
    used = processor_seconds() - before
    print(f"{used * 1000:.1f} ms of processor time in 4 s idle")
    assert used < within(0.08)  # 2 %


FAULTS = [
    # kind, seconds until the failure must be known, words of the log
    ("error", 2, "RunStep number"),
    ("exception", 2, "exception: on purpose"),
    ("out-of-memory", 2, "no memory, on purpose"),
    ("wrong-reply", 2, "replies to command number"),
    ("lost-command", 5, "waits for a command after number"),
    ("lost-reply", 5, "is not answered after 2000 ms"),
    ("silence", 5, "is not answered after 2000 ms"),
    ("hang", 5, "ranks do not end"),
]


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("kind, known, words", FAULTS, ids=[f[0] for f in FAULTS])
def test_B031_B033_a_failing_rank_ends_every_stream_and_the_process(ranks, kind, known, words, rank):
    """proves R3.2, R3.3, R3.5: one terminal error each, 503 at once, the process gone non-zero in bounded time."""
    server = ranks(2, "--step-deadline", "2", "--fault", f"kind={kind},rank={rank},step=40")
    ends, lock = [], threading.Lock()

    def stream():
        events = []
        body = {"prompt": "Once upon a time", "max_tokens": 2000, "ignore_eos": True, "stream": True, "temperature": 0}
        try:
            with httpx.stream("POST", server.base + "/v1/completions", json=body, timeout=within(60)) as response:
                if response.status_code == 503:  # came when the replica had failed
                    events.append(response.read().decode())
                else:
                    events += [line[6:] for line in response.iter_lines() if line.startswith("data: ")]
        except httpx.HTTPError as error:
            events.append(f"broken: {error}")
        with lock:
            ends.append((time.monotonic(), events))

    begin = time.monotonic()
    threads = [threading.Thread(target=stream) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(within(60))
    assert len(ends) == 4
    told = max(at for at, _ in ends)
    for _, events in ends:
        errors = [e for e in events if e != "[DONE]" and "error" in json.loads(e)]
        assert len(errors) == 1, events[-3:]
        assert "finish_reason\":\"" not in events[-2 if events[-1] == "[DONE]" else -1]
    try:  # until the process is gone, it says so
        assert server.http.get("/health").status_code == 503
        refused_at = time.monotonic()
        assert server.complete("hello", max_tokens=2).status_code == 503
        assert time.monotonic() - refused_at < within(2)
    except httpx.TransportError:
        pass
    status = server.process.wait(within(12))
    gone = time.monotonic()
    assert status != 0
    log = "".join(server.lines)
    assert words in log and (f"rank {rank}" in log or f"rank {rank}]" in log), log[-2000:]
    assert gone - told < within(10)
    print(f"{kind} on rank {rank}: streams ended after {told - begin:.2f} s, process gone {gone - told:.2f} s later, "
          f"status {status}")


@pytest.mark.parametrize("where", ["step=5", "command=DropRequests"])
def test_a_stop_does_not_wait_for_a_rank_that_hangs(ranks, where):
    """proves R3.2: told to stop twice, the process is gone after the join deadline and the abort grace, not after the step's."""
    server = ranks(2, "--join-deadline", "1", "--drop-deadline", "600", "--fault", f"kind=hang,rank=1,{where}")
    events = []
    asking = threading.Thread(target=lambda: events.extend(server.events("/v1/completions", {"prompt": "Once", "max_tokens": 20, "ignore_eos": True})))
    asking.start()
    begin = time.monotonic()
    while "[fault] fires" not in "".join(server.lines):
        assert time.monotonic() - begin < within(10), "".join(server.lines)
        time.sleep(0.01)
    told = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    while "draining" not in "".join(server.lines):
        assert time.monotonic() - begin < within(20), "".join(server.lines)
        time.sleep(0.01)
    server.process.send_signal(signal.SIGTERM)
    status = server.process.wait(within(12))
    gone = time.monotonic() - told
    asking.join(within(10))
    while "ranks do not end" not in "".join(server.lines) and time.monotonic() - begin < within(30):
        time.sleep(0.01)  # the last lines are still on their way
    log = "".join(server.lines)
    assert status == 70 and "is not answered within 1000 ms of the stop" in log and "ranks do not end; rank 1 runs" in log, log[-2000:]
    assert len([e for e in events if e != "[DONE]" and "error" in e]) == 1, events[-3:]
    print(f"{where}: gone {gone:.2f} s after the first SIGTERM")
