"""Cases of kind (i): performance cliffs. Bounds are wide: the machine of a test is not quiet. docs/cases.md lists them."""

import concurrent.futures
import contextlib
import glob
import threading

from servers import PAGE, Run, ask_stream, ids, script, start_fake, start_tandem, tandem, within  # noqa: F401


def test_B181_a_long_prompt_stops_other_streams_for_one_bounded_step():
    """Work is counted, not time: while 4,000 tokens are read in steps of a budget, the running stream gets a token of each step."""
    came = {}
    for budget in (128, 1024):
        with Run("--max-mixed-tokens", str(budget), "--max-step-tokens", "1024") as server:
            seen, running, enough = [], threading.Event(), threading.Event()

            def each(count):
                seen.append(count)
                running.set()
                if enough.is_set():
                    raise Enough

            def stream():
                with contextlib.suppress(Enough):
                    ask_stream(server, "x", 20000, each)

            thread = threading.Thread(target=stream)
            thread.start()
            assert running.wait(within(30))
            before = server.metric("tandem:steps_total")
            tokens_before = len(seen)
            assert server.complete(ids(4000), max_tokens=1).status_code == 200
            came[budget] = len(seen) - tokens_before
            steps = server.metric("tandem:steps_total") - before
            assert thread.is_alive()  # the stream ran all the while
            enough.set()
            thread.join()
            assert steps >= 4000 / budget and came[budget] >= 0.8 * 4000 / budget, (budget, steps, came)
    # A smaller budget, more tokens of the stream: 32 steps at least against 4. Tokens before the prompt was admitted are in both.
    assert came[128] > came[1024], came


class Enough(Exception):
    pass


def processor_seconds(process):
    """Of all of its threads, so far."""
    return sum(int(open(file).read().split()[0]) for file in glob.glob(f"/proc/{process.pid}/task/*/schedstat")) / 1e9


def test_B184_time_per_token_does_not_grow_with_the_answer():
    """The server's processor time for a token of 64,000 against that for one of 4,000, so that a cost that grows with the
    answer is 16 times as large; what parses the text has its own test, AnswerTime of src/server."""
    fake = start_fake(max_context=400000, behind_bytes=1 << 28)

    def per_token(tokens):
        body = {"messages": [{"role": "user", "content": script(say="word " * 10) + " "}], "stream": True, "max_tokens": tokens, "ignore_eos": True,
                "stop": ["never comes", "nor this"], "chat_template_kwargs": {"enable_thinking": True},
                "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]}
        before = processor_seconds(fake.process)
        received = 0
        with fake.http.stream("POST", "/v1/chat/completions", json=body) as response:
            assert response.status_code == 200, response.read()
            for chunk in response.iter_raw():
                received += chunk.count(b"data: {")
        assert received > 0.5 * tokens
        return (processor_seconds(fake.process) - before) / tokens

    for _ in range(5):  # a cost that grows is there every time; what a busy machine adds is not
        short = min(per_token(4000) for _ in range(3))
        long = per_token(64000)
        if long < 1.25 * short:
            break
    assert fake.end() == 0
    print(f"{short * 1e6:.1f} and {long * 1e6:.1f} us")
    assert long < 1.25 * short, (short, long)


def test_B190_without_reuse_a_turn_costs_its_whole_conversation_and_no_more(tandem):
    """docs/api.md has no prefix reuse: every token of the history is read once a turn, never twice."""
    messages = []
    for number in range(6):
        messages.append({"role": "user", "content": f"Part {number}. " + "some more words to read " * 20})
        before = tandem.metric("vllm:prompt_tokens_total")
        answer = tandem.post("/v1/chat/completions", {"messages": messages, "max_tokens": 4}).json()
        assert tandem.metric("vllm:prompt_tokens_total") - before == answer["usage"]["prompt_tokens"]
        messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})


def test_B191_the_first_event_has_the_first_text(tandem):
    body = {"messages": [{"role": "user", "content": "word " * 2000}], "max_tokens": 8, "temperature": 0, "stream": True, "ignore_eos": True}
    events = [e for e in tandem.events("/v1/chat/completions", body) if e != "[DONE]"]
    delta = events[0]["choices"][0]["delta"]
    assert delta["role"] == "assistant" and (delta.get("content") or delta.get("reasoning_content"))


def test_B192_memory_is_flat_in_the_prompts_length():
    """At full KV use: the pool holds just the longest request, whose prompt ends ten tokens below the limit. All pages are
    touched before the first request, so that what still comes is the prompt's own."""
    longest, limit = 20001, 20011
    with Run("--max-requests", "1", "--max-context", str(limit), "--debug-nan-fill") as server:
        def memory(name):  # KiB
            return next(int(line.split()[1]) for line in open(f"/proc/{server.process.pid}/status") if line.startswith(name))

        assert int(server.metric("tandem:kv_pages")) == -(-limit // PAGE)
        assert server.complete(ids(1000), max_tokens=10).status_code == 200
        short, peak = memory("RssAnon"), memory("VmHWM")
        assert server.post("/v1/completions", {"prompt": ids(longest), "max_tokens": 10}, timeout=within(900)).status_code == 200
        # One layer's input kept for all tokens would be 19,001 x 160 x 2 bytes = 5.8 MiB; the request's own ids are 0.1.
        assert memory("RssAnon") - short < 3 << 10 and memory("VmHWM") - peak < 3 << 10, (short, peak, memory("RssAnon"), memory("VmHWM"))


def test_B192_memory_that_fails_in_mid_prefill_ends_the_process_with_one_error_each():
    server = start_tandem("--max-step-tokens", "72", "--max-mixed-tokens", "72", "--fault", "kind=out-of-memory,rank=0,step=3")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda seed: server.complete(ids(1000, seed), max_tokens=4), (1, 2)))
    assert [answer.status_code >= 500 for answer in answers] == [True, True]
    assert all(answer.json()["error"]["message"] for answer in answers)
    assert server.process.wait(within(30)) != 0
    assert "no memory, on purpose" in "".join(server.lines)
