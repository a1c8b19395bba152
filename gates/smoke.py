"""tandem serve on a GPU machine: a streaming chat, then 64 concurrent requests through `tandem bench --url`.

    python3 gates/smoke.py TANDEM MODEL LOG [DEVICE]

Prints one line of figures; the exit status says whether both answered in full. Only the standard library.
"""

import json
import re
import subprocess
import sys
import time
import urllib.request


def stream_chat(url: str, model: str) -> int:
    body = {"model": model, "stream": True, "max_tokens": 32, "temperature": 0, "ignore_eos": True, "stream_options": {"include_usage": True},
            "messages": [{"role": "user", "content": "Say hello."}]}
    request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    usage, finish, done, events = None, None, False, 0
    with urllib.request.urlopen(request, timeout=60) as answer:
        for raw in answer:
            text = raw.decode().strip()
            if not text.startswith("data: "):
                continue
            if text == "data: [DONE]":
                done = True
                continue
            event = json.loads(text[6:])
            events += 1
            usage = event.get("usage") or usage
            for choice in event.get("choices", []):
                finish = choice.get("finish_reason") or finish
    assert done and finish == "length" and usage["completion_tokens"] == 32, (done, finish, usage)
    return events


def main() -> int:
    tandem, model, log, device = (sys.argv[1:] + ["cuda"])[:4]
    name = model.rstrip("/").split("/")[-1]
    with open(log, "w", encoding="utf-8") as out:
        server = subprocess.Popen([tandem, "serve", model, "--device", device, "--port", "0", "--max-context", "4096"], stdout=out, stderr=subprocess.STDOUT)
    try:
        url = None
        for _ in range(600):
            found = re.search(r"ready in ([\d.]+) s.* at (http://\S+?)/", open(log, encoding="utf-8").read())
            if found or server.poll() is not None:
                break
            time.sleep(0.1)
        if not found:
            print("the server did not come up")
            return 1
        ready, url = found.groups()
        events = stream_chat(url, name)
        bench = subprocess.run([tandem, "bench", "--url", url, "--served", name, "--workload", "batch-64", "--prompt-tokens", "256", "--output-tokens", "64",
                                "--repetitions", "1"], capture_output=True, text=True, timeout=80)
        with open(log, "a", encoding="utf-8") as out:
            out.write(bench.stdout + bench.stderr)
        if bench.returncode != 0:
            print("64 concurrent requests failed")
            return 1
        health = urllib.request.urlopen(f"{url}/health", timeout=10).status
        tokens = re.search(r"(\d+) output tok/s", bench.stdout).group(1)
        print(f"ready in {ready} s; chat streamed in {events} events; 64 at once: {tokens} output tok/s; health {health}")
        return 0
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()


if __name__ == "__main__":
    sys.exit(main())
