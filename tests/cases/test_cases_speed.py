"""Cases of kind (i): performance cliffs. Bounds are wide: the machine of a test is not quiet. docs/cases.md lists them."""

import statistics
import threading
import time

from servers import Run, ids, script, start_fake, tandem  # noqa: F401


def times_of_events(server, body):
    found = []
    with server.http.stream("POST", "/v1/completions", json={**body, "stream": True}) as response:
        for line in response.iter_lines():
            if line.startswith("data: {"):
                found.append(time.monotonic())
    return found


def test_B181_a_long_prompt_stops_other_streams_for_one_bounded_step():
    """The longest gap of a running stream follows --max-mixed-tokens, and is far from the prompt's whole time."""
    largest, prefill = {}, {}
    for budget in (128, 1024):
        with Run("--max-mixed-tokens", str(budget), "--max-step-tokens", "1024") as server:
            gaps = []
            stream = threading.Thread(target=lambda: gaps.extend(times_of_events(server, {"prompt": "x", "max_tokens": 300, "ignore_eos": True})))
            stream.start()
            server.wait_for("vllm:num_requests_running", 1)
            begin = time.monotonic()
            assert server.complete(ids(8000), max_tokens=1).status_code == 200
            prefill[budget] = time.monotonic() - begin
            stream.join()
            largest[budget] = max(b - a for a, b in zip(gaps, gaps[1:]))
    assert largest[128] < 0.25 * prefill[128], (largest, prefill)
    assert largest[128] < largest[1024] + 0.05, largest


def test_B184_time_per_token_does_not_grow_with_the_answer():
    fake = start_fake(max_context=200000, behind_bytes=1 << 28)
    say = script(say="thought " * 1500 + "</think>\n\n" + "word " * 2000)
    stamps = []
    body = {"messages": [{"role": "user", "content": say}], "stream": True, "max_tokens": 24000, "stop": ["never comes", "nor this"],
            "chat_template_kwargs": {"enable_thinking": True},
            "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]}
    with fake.http.stream("POST", "/v1/chat/completions", json=body) as response:
        for line in response.iter_lines():
            if line.startswith("data: {"):
                stamps.append(time.monotonic())
    assert fake.end() == 0
    quarter = len(stamps) // 4
    assert quarter > 100
    first, last = stamps[quarter] - stamps[0], stamps[-1] - stamps[-quarter]
    assert last < 3 * first + 0.1, (first, last)


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
    with Run("--max-requests", "1", "--max-context", "8192") as server:
        def resident():
            for line in open(f"/proc/{server.process.pid}/status"):
                if line.startswith("RssAnon"):
                    return int(line.split()[1]) // 1024

        sizes = []
        for count in (1000, 4000, 8180, 1000, 8180):
            assert server.complete(ids(count), max_tokens=4).status_code == 200
            sizes.append(resident())
        assert sizes[-1] - sizes[2] < 8, sizes  # MiB; pools are touched once, and nothing more is taken
        assert statistics.median(sizes) < 4096
