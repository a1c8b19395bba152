#!/usr/bin/env python3
"""A soak of the real server: many open streams, short chats of every kind, cancellations and disconnects; then its
pools must be idle and its memory, files and threads flat.

    tests/soak/soak.py                          3,000 chats and 1,000 open streams, some minutes
    tests/soak/soak.py --chats 300 --streams 200
    tests/soak/soak.py --url http://HOST:PORT --pid PID      a server that runs already, on this host

No library beyond Python's own. Prints a line every 500 chats and a summary; exits 1 if something is not as it must be.
"""

import argparse
import asyncio
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
EQUAL_TOKENS = 200  # in a row: a poisoned state repeats one token for ever, a small model only for a while


class Fail(Exception):
    pass


def check(true, *what):
    if not true:
        raise Fail(" ".join(map(str, what)))


class Server:
    def __init__(self, flags):
        program = os.environ.get("TANDEM_BIN", str(ROOT / "build/release/tandem"))
        model = os.environ.get("TANDEM_MODEL", str(ROOT / "models/tandem-tiny"))
        self.process = subprocess.Popen([program, "serve", model, "--port", "0", *flags], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.log = []
        for line in self.process.stdout:
            self.log.append(line)
            if found := re.search(r"listening on http://([\S]+):(\d+)", line):
                self.host, self.port = found.group(1), int(found.group(2))
                break
        else:
            raise Fail("the server did not start:\n" + "".join(self.log))
        os.set_blocking(self.process.stdout.fileno(), False)
        self.pid = self.process.pid

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        check(self.process.wait(30) == 0, "exit status", self.process.returncode)


class Running:
    def __init__(self, url, pid):
        self.host, port = url.removeprefix("http://").rstrip("/").rsplit(":", 1)
        self.port, self.pid = int(port), pid

    def end(self):
        pass


def usage(pid):
    """(private memory in KiB, open files, threads)"""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    number = lambda name: int(re.search(rf"^{name}:\s+(\d+)", status, re.M).group(1))
    return number("RssAnon") + number("VmSwap"), len(os.listdir(f"/proc/{pid}/fd")), number("Threads")


def metrics(server):
    found = {}
    with urllib.request.urlopen(f"http://{server.host}:{server.port}/metrics", timeout=60) as response:
        for line in response.read().decode().splitlines():
            if line and line[0] != "#":
                name, value = line.rsplit(" ", 1)
                name = name.split("{")[0]
                found[name] = found.get(name, 0) + float(value)
    return found


async def open_request(server, path, body):
    reader, writer = await asyncio.open_connection(server.host, server.port)
    data = json.dumps(body).encode()
    writer.write(f"POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
    await writer.drain()
    return reader, writer


async def read_stream(reader):
    """The events of a whole answer, and whether it ended as it should."""
    raw = await reader.read()
    text = re.sub(rb"\r\n[0-9a-fA-F]+\r\n", b"", raw).decode(errors="replace")
    events = [line[6:] for line in text.split("\n") if line.startswith("data: ")]
    return events


def seems_stuck(pieces):
    run, last = 0, None
    for piece in pieces:
        run = run + 1 if piece == last else 1
        last = piece
        if run >= EQUAL_TOKENS:
            return True
    return False


async def one_chat(server, source, counts):
    kind = source.choices(("stream", "whole", "abort", "late-abort", "error", "tools"), (30, 25, 20, 10, 10, 5))[0]
    counts[kind] = counts.get(kind, 0) + 1
    words = " ".join(source.choice("what does the word lantern harbour winter mean tell me of bridges 17 + 25".split()) for _ in range(source.randint(1, 120)))
    body = {"messages": [{"role": "user", "content": words}], "max_tokens": source.randint(1, 40), "temperature": source.choice((0, 0.7, 1.2)),
            "seed": source.randint(0, 1 << 30)}
    if source.random() < 0.3:
        body.update(logprobs=True, top_logprobs=3)
    if source.random() < 0.2:
        body.update(stop=["zzzz", "qqq"])
    if source.random() < 0.1:
        body.update(n=3)
    if kind == "error":
        body["temperature"] = source.choice(("hot", 9, None))
        body["nonsense"] = 1
    if kind == "tools":
        body["tools"] = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"x": {"type": "string"}}}}}]
    if kind != "whole" and kind != "error":
        body["stream"] = True
    if kind == "late-abort":
        body.update(max_tokens=2000, ignore_eos=True)
    reader, writer = await open_request(server, "/v1/chat/completions", body)
    try:
        if kind == "abort":
            await asyncio.sleep(source.random() * 0.02)
        elif kind == "late-abort":
            await asyncio.wait_for(reader.read(200), 120)
        elif kind == "error":
            check(b" 400 " in await asyncio.wait_for(reader.read(20), 120), "a bad request was not refused")
        elif kind == "whole":
            raw = await asyncio.wait_for(reader.read(), 120)
            check(raw.startswith(b"HTTP/1.1 200"), raw[:300])
        else:
            events = await asyncio.wait_for(read_stream(reader), 120)
            check(events and events[-1] == "[DONE]", "a stream ended with", events[-1:] or "nothing")
            pieces = [c["delta"].get("content") or "" for e in events[:-1] for c in json.loads(e).get("choices", [])]
            check(not seems_stuck(pieces), "one piece without end:", pieces[-1:])
    finally:
        writer.transport.abort() if "abort" in kind else writer.close()


async def chats(server, count, together, seed):
    source = random.Random(seed)
    counts, done = {}, 0
    measured = []
    gate = asyncio.Semaphore(together)

    async def one():
        async with gate:
            await one_chat(server, source, counts)

    step = max(50, min(500, count // 6))
    while done < count:
        now = min(step, count - done)
        await asyncio.gather(*(one() for _ in range(now)))
        done += now
        await idle(server)
        memory, files, threads = usage(server.pid)
        measured.append((done, memory, files, threads))
        print(f"soak: {done} chats, {memory / 1024:.1f} MiB, {files} files, {threads} threads", flush=True)
    print("soak: kinds " + ", ".join(f"{kind} {number}" for kind, number in sorted(counts.items())))
    return measured


async def streams(server, count):
    """So many open at once, all answered to the end but the tenth of them that leaves."""
    async def one(number):
        reader, writer = await open_request(server, "/v1/completions", {"prompt": f"Story {number}:", "max_tokens": 6, "ignore_eos": True, "stream": True, "temperature": 0})
        opened.append(number)
        if len(opened) == count:
            everybody.set()
        await everybody.wait()
        if number % 10 == 9:
            writer.transport.abort()
            return 0
        events = await asyncio.wait_for(read_stream(reader), 600)
        check(events and events[-1] == "[DONE]", "stream", number, "ended with", events[-1:] or "nothing")
        writer.close()
        return 1

    opened, everybody = [], asyncio.Event()
    begin = time.monotonic()
    whole = sum(await asyncio.gather(*(one(number) for number in range(count))))
    print(f"soak: {count} streams open at once, {whole} read to the end, {count - whole} left, in {time.monotonic() - begin:.1f} s", flush=True)


async def idle(server):
    end = time.monotonic() + 60
    while True:
        now = metrics(server)
        busy = {name: now.get(name, 0) for name in ("vllm:num_requests_running", "vllm:num_requests_waiting", "tandem:state_slots_used",
                                                     "tandem:kv_pages_used", "tandem:http_open_answers") if now.get(name, 0)}
        if not busy:
            return now
        check(time.monotonic() < end, "not idle:", busy)
        await asyncio.sleep(0.05)


async def soak(options):
    server = Running(options.url, options.pid) if options.url else Server(["--max-requests", "8"] + options.flag)
    await chats(server, options.warm, options.together, options.seed)  # caches, pools, stacks: taken once
    await streams(server, options.streams)
    await idle(server)
    first = usage(server.pid)
    measured = await chats(server, options.chats, options.together, options.seed + 1)
    await streams(server, options.streams)
    now = await idle(server)
    last = usage(server.pid)
    slope = (last[0] - first[0]) / options.chats
    check(now["tandem:healthy"] == 1, "not healthy")
    check(last[1] <= first[1] + 4, "open files went from", first[1], "to", last[1])
    check(last[2] <= first[2], "threads went from", first[2], "to", last[2])
    check(slope < options.slope, f"memory grew by {slope:.2f} KiB a chat ({first[0]} to {last[0]} KiB)")
    server.end()
    print(f"soak: passed: {options.warm + options.chats} chats, 2 x {options.streams} streams, {slope:+.2f} KiB a chat, "
          f"{now.get('tandem:requests_cancelled_total', 0):.0f} cancelled, pools idle")
    return measured


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--chats", type=int, default=3000)
    arguments.add_argument("--warm", type=int, default=500, help="chats before memory is measured")
    arguments.add_argument("--streams", type=int, default=1000)
    arguments.add_argument("--together", type=int, default=24, help="chats at once")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--slope", type=float, default=10, help="most KiB of growth a chat")
    arguments.add_argument("--url")
    arguments.add_argument("--pid", type=int)
    arguments.add_argument("--flag", action="append", default=[], help="another flag of tandem serve, as in --flag=--tp=2")
    options = arguments.parse_args()
    if bool(options.url) != bool(options.pid):
        arguments.error("--url and --pid go together")
    print(f"soak: seed {options.seed}")
    try:
        asyncio.run(soak(options))
    except Fail as problem:
        print(f"soak: FAILED: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
