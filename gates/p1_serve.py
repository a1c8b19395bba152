#!/usr/bin/env python3
"""Phase 1 over HTTP on two CUDA devices: start-up refusals, device smoke, and the end of a replica whose rank fails.
Run by gates/device_p1.sh in a bundle; prints ROW|gate|degree|result|figure lines. Standard library only.

    gates/p1_serve.py refusals|smoke|faults
"""

import concurrent.futures
import http.client
import json
import os
import re
import subprocess
import sys
import threading
import time

MODEL = "models/tandem-tiny"
PATIENCE = 60
failures = 0


def row(gate, degree, good, figure):
    global failures
    failures += not good
    print(f"ROW|{gate}|TP{degree}|{'pass' if good else 'FAIL'}|{figure}", flush=True)


class Server:
    def __init__(self, *flags, environment=None):
        command = ["./tandem", "serve", MODEL, "--port", "0", "--served-model-name", "tiny", "--device", "cuda",
                   "--max-requests", "8", "--kv-memory", "2G", *flags]
        self.began = time.monotonic()
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                                        env={**os.environ, **(environment or {})})
        self.lines, self.address, self.ready = [], None, threading.Event()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.ready.wait(PATIENCE)
        self.start_seconds = time.monotonic() - self.began

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line)
            if found := re.search(r"listening on http://(\S+):(\d+)", line):
                self.address = (found[1], int(found[2]))
                self.ready.set()
        self.ready.set()

    @property
    def log(self):
        return "".join(self.lines)

    def request(self, path, body=None, timeout=PATIENCE):
        connection = http.client.HTTPConnection(*self.address, timeout=timeout)
        connection.request("POST" if body else "GET", path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace")
        connection.close()
        return answer.status, text

    def complete(self, **fields):
        status, text = self.request("/v1/completions", {"prompt": "The old house stood by the", "temperature": 0, "max_tokens": 32, **fields})
        return json.loads(text)["choices"][0]["text"] if status == 200 else f"status {status}: {text}"

    def end(self):
        self.process.terminate()
        try:
            return self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return "killed"


def refusals():
    """R6: before any weight is read, in under 2 s, with the option and what works."""
    cases = [
        (["--tp", "2", "--cuda-graphs", "on"], "cuda-graphs"),
        (["--tp", "2", "--mixed", "on"], "--mixed off works"),
        (["--tp", "2", "--linear-attention", "sharded"], "replicated works"),
        (["--devices", "0,0"], "twice"),
        (["--devices", "0,16"], "ordinals are 0 to 15"),
        (["--devices", "0,9"], "are visible"),
        (["--tp", "3"], "visible"),
        (["--tp", "2", "--prefix-cache"], "prefix-cache"),
    ]
    slowest, wrong = 0.0, []
    for flags, words in cases:
        began = time.monotonic()
        done = subprocess.run(["./tandem", "serve", MODEL, "--device", "cuda", *flags], capture_output=True, text=True, timeout=30)
        took = time.monotonic() - began
        slowest = max(slowest, took)
        text = done.stdout + done.stderr
        print(" ".join(flags), f"({took:.2f} s):", text.strip().splitlines()[-1:] )
        if done.returncode == 0 or words not in text or took > 2:
            wrong.append(" ".join(flags))
    row("R6 refusals", 2, not wrong, f"{len(cases)} cases, slowest {slowest:.2f} s" + (f"; wrong: {wrong}" if wrong else ""))
    hidden = subprocess.run(["./tandem", "serve", MODEL, "--device", "cuda", "--tp", "2"], capture_output=True, text=True, timeout=30,
                            env={**os.environ, "CUDA_VISIBLE_DEVICES": "1"})
    row("R6 one visible device, two ranks", 2, hidden.returncode != 0 and "1 CUDA devices are visible" in hidden.stderr + hidden.stdout,
        (hidden.stderr + hidden.stdout).strip().splitlines()[-1][:110])


def smoke():
    """Every order of devices, each rank on its own; the same answer from all of them at one degree."""
    cases = [("--devices 0", 1, ["--devices", "0"], {}), ("--devices 1", 1, ["--devices", "1"], {}),
             ("--devices 0,1", 2, ["--devices", "0,1"], {}), ("--devices 1,0", 2, ["--devices", "1,0"], {}),
             ("CUDA_VISIBLE_DEVICES=1,0 --tp 2", 2, ["--tp", "2"], {"CUDA_VISIBLE_DEVICES": "1,0"}),
             ("--all-reduce nccl", 2, ["--tp", "2", "--all-reduce", "nccl"], {}),
             ("--all-reduce oneshot", 2, ["--tp", "2", "--all-reduce", "oneshot"], {})]
    texts, places = {}, {}
    for name, degree, flags, environment in cases:
        server = Server(*flags, environment=environment)
        if server.address is None:
            row(f"smoke {name}", degree, False, "no start: " + " ".join(server.log.splitlines()[-1:]))
            continue
        devices = re.findall(r"\[rank (\d+)\] cuda device (\d+): ([^,]*), PCI (\S+), (\w+)", server.log)
        places[name] = sorted((rank, ordinal, pci) for rank, ordinal, _, pci, _ in devices)
        text, again = server.complete(), server.complete()
        long = server.complete(prompt="word " * 300, max_tokens=8)
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            many = list(pool.map(lambda i: server.complete(prompt="Once upon a time" + " and" * i, max_tokens=24), range(24)))
        health = server.request("/health")[0]
        status = server.end()
        hashes = set(re.findall(r"collectives, sequence hash (\w+)", server.log))
        good = (text == again and not text.startswith("status") and not long.startswith("status") and health == 200 and status == 0 and
                all(not m.startswith("status") for m in many) and len(devices) == degree and len({d[3] for d in devices}) == degree and len(hashes) == 1)
        texts.setdefault(degree, set()).add(text)
        where = ", ".join(f"rank {r} = {o} at {pci} {uuid[:8]}" for r, o, _, pci, uuid in sorted(devices))
        row(f"smoke {name}", degree, good, f"{where}; ready in {server.start_seconds:.1f} s; exit {status}; {len(hashes)} hash")
        if not good:
            print(server.log[-1500:], text, many[:2])
    row("smoke, same text at one degree", 2, all(len(found) == 1 for found in texts.values()), f"{ {d: len(t) for d, t in texts.items()} } texts")
    swapped = places.get("--devices 0,1"), places.get("CUDA_VISIBLE_DEVICES=1,0 --tp 2")
    if all(swapped):
        row("smoke, CUDA_VISIBLE_DEVICES is kept", 2, swapped[0][0][2] == swapped[1][1][2] and swapped[0][1][2] == swapped[1][0][2],
            "rank 0 and rank 1 have changed places")


FAULTS = [  # kind, words of the log; the deadline of a step is 3 s
    ("error", "RunStep number"), ("exception", "exception: on purpose"), ("out-of-memory", "no memory, on purpose"),
    ("wrong-reply", "replies to command number"), ("lost-command", "waits for a command after number|diverges from the controller"),
    ("lost-reply", "is not answered after 3000 ms"), ("silence", "is not answered after 3000 ms"), ("hang", "ranks do not end"),
    ("late-reply,delay-ms=9000", "is not answered after 3000 ms"),
]


def fault(kind, words, rank, flags=()):
    server = Server("--tp", "2", "--reserve-memory", "80G", "--step-deadline", "3", "--fault", f"kind={kind},rank={rank},step=40", *flags)
    if server.address is None:
        return kind, rank, False, "no start: " + " ".join(server.log.splitlines()[-1:])
    ends, fired = [], []

    def stream():
        connection = http.client.HTTPConnection(*server.address, timeout=PATIENCE)
        events = []
        try:
            connection.request("POST", "/v1/completions", json.dumps({"prompt": "Once upon a time", "max_tokens": 900, "ignore_eos": True,
                                                                      "stream": True, "temperature": 0}), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            if answer.status == 503:
                events.append(answer.read().decode())
            else:
                for line in answer:
                    if line.startswith(b"data: "):
                        events.append(line[6:].decode().strip())
                        if '"error"' in events[-1] and not fired:
                            fired.append(time.monotonic())
        except (OSError, http.client.HTTPException) as error:
            events.append(f"broken: {error}")
        ends.append((time.monotonic(), events))

    began = time.monotonic()
    threads = [threading.Thread(target=stream) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    problems = []
    for _, events in ends:
        errors = [e for e in events if e != "[DONE]" and not e.startswith("broken") and "error" in json.loads(e)]
        if len(errors) != 1:
            problems.append(f"{len(errors)} terminal errors, last {events[-1:]}")
    told = max(at for at, _ in ends)
    try:
        health = server.request("/health", timeout=5)[0]
        if health != 503:
            problems.append(f"health {health}")
    except (OSError, http.client.HTTPException):
        health = "gone"
    try:
        status = server.process.wait(15)
    except subprocess.TimeoutExpired:
        server.process.kill()
        status = 0
        problems.append("the process stayed")
    gone = time.monotonic()
    server.reader.join(5)
    if status == 0:
        problems.append("status 0")
    if not any(w in server.log for w in words.split("|")) or f"rank {rank}" not in server.log:
        problems.append("log: " + server.log[-600:])
    if gone - told > 10:
        problems.append("too late")
    return kind, rank, not problems, (f"4 streams ended {told - began:.2f} s after the first request, health {health}, process gone "
                                      f"{gone - told:.2f} s later, status {status}" + (f"; {problems}" if problems else ""))


def faults():
    jobs = [(kind, words, rank, ()) for kind, words in FAULTS for rank in (0, 1)]
    jobs += [("error", "RunStep number", 1, ("--all-reduce", "nccl")), ("hang", "ranks do not end", 1, ("--all-reduce", "nccl"))]
    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        for job, (kind, rank, good, figure) in zip(jobs, pool.map(lambda job: fault(*job), jobs)):
            row(f"fail-stop {kind.split(',')[0]} rank {rank}" + (" nccl" if job[3] else ""), 2, good, figure)
    for command in ("Load", "Open", "WarmUp"):
        began = time.monotonic()
        server = Server("--tp", "2", "--fault", f"kind=error,rank=1,command={command}")
        try:
            status = server.process.wait(20)
        except subprocess.TimeoutExpired:
            server.process.kill()
            status = 0
        row(f"fail-stop {command} fails on rank 1", 2, status != 0 and f"[rank 1] {command}" in server.log,
            f"process gone after {time.monotonic() - began:.2f} s, status {status}")


if __name__ == "__main__":
    {"refusals": refusals, "smoke": smoke, "faults": faults}[sys.argv[1]]()
    sys.exit(1 if failures else 0)
