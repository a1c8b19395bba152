"""The program itself with a real model, through the official client. Texts are the model's own affair; what is
tested here is that every way of asking gives the same ones."""

import concurrent.futures
import time

import httpx
import openai
import pytest

from conftest import start_tandem, within

QUESTION = [{"role": "user", "content": "What does the word harbour mean?"}]


def greedy(server, **fields):
    answer = server.complete("The old house stood", temperature=0, **{"max_tokens": 24, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_client_chats_whole_and_streamed(tandem):
    fields = dict(model="tiny", messages=QUESTION, temperature=0, max_tokens=64)
    whole = tandem.client.chat.completions.create(**fields)
    assert whole.choices[0].message.content
    assert whole.choices[0].finish_reason in ("stop", "length")
    text, usage, finish = "", None, None
    for chunk in tandem.client.chat.completions.create(**fields, stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
    assert (text, finish, usage) == (whole.choices[0].message.content, whole.choices[0].finish_reason, whole.usage)


def test_prompt_as_text_and_as_ids_are_the_same(tandem):
    ids = tandem.post("/tokenize", {"prompt": "The old house stood"}).json()["tokens"]
    assert tandem.post("/detokenize", {"tokens": ids}).json()["prompt"] == "The old house stood"
    by_ids = tandem.complete(ids, temperature=0, max_tokens=24).json()
    by_text = greedy(tandem)
    assert by_ids["choices"] == by_text["choices"] and by_ids["usage"] == by_text["usage"]


def test_thinking_switch_and_template(tandem):
    prompt = tandem.prompt_of(messages=QUESTION)
    assert prompt.startswith("<|im_start|>") and QUESTION[0]["content"] in prompt
    on = tandem.prompt_of(messages=QUESTION, chat_template_kwargs={"enable_thinking": True})
    off = tandem.prompt_of(messages=QUESTION, chat_template_kwargs={"enable_thinking": False})
    assert on.rstrip().endswith("<think>") and off.rstrip().endswith("</think>")
    answer = tandem.post("/v1/chat/completions", {"messages": QUESTION, "temperature": 0, "max_tokens": 4,
                                                  "chat_template_kwargs": {"enable_thinking": True}}).json()["choices"][0]
    if answer["finish_reason"] == "length":
        assert not answer["message"]["content"] or "reasoning_content" in answer["message"]


def test_B115_scores_of_an_echoed_prompt_are_those_of_generation(tandem):
    generated = greedy(tandem, logprobs=3)["choices"][0]
    scored = tandem.complete("The old house stood" + generated["text"], temperature=0, echo=True, max_tokens=0, logprobs=3).json()
    assert scored["usage"]["completion_tokens"] == 0
    tokens = scored["choices"][0]["logprobs"]["tokens"]
    assert "".join(tokens) == "The old house stood" + generated["text"]
    assert tokens[-24:] == generated["logprobs"]["tokens"]  # holds for this text: it tokenizes as it was generated
    # Prefill and decode round differently, each within the HF gate; entries one place off differ by 1 and more.
    differences = [abs(a - b) for a, b in zip(scored["choices"][0]["logprobs"]["token_logprobs"][-24:], generated["logprobs"]["token_logprobs"])]
    assert sum(differences) / 24 < 0.05, differences


def test_B119_logprobs_are_sorted_and_hold_the_greedy_token(tandem):
    answer = tandem.post("/v1/chat/completions", {"messages": QUESTION, "temperature": 0, "max_tokens": 8, "logprobs": True, "top_logprobs": 20}).json()
    entries = answer["choices"][0]["logprobs"]["content"]
    assert len(entries) == answer["usage"]["completion_tokens"]
    for entry in entries:
        logprobs = [top["logprob"] for top in entry["top_logprobs"]]
        assert len(logprobs) == 20 and logprobs == sorted(logprobs, reverse=True)
        assert entry["top_logprobs"][0]["token"] == entry["token"] and logprobs[0] == entry["logprob"] <= 0


def test_B107_B108_seeded_answers_are_the_same_alone_and_together(tandem):
    body = dict(prompt="Once upon a time", seed=42, temperature=0.8, max_tokens=16)
    alone = tandem.post("/v1/completions", body).json()["choices"][0]["text"]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        same = list(pool.map(lambda _: tandem.post("/v1/completions", body).json()["choices"][0]["text"], range(8)))
        mixed = [pool.submit(tandem.post, "/v1/completions", {**body, "seed": None}) for _ in range(5)] + [pool.submit(tandem.post, "/v1/completions", body)]
        assert mixed[-1].result().json()["choices"][0]["text"] == alone
    assert set(same) == {alone}
    sets = [[choice["text"] for choice in tandem.post("/v1/completions", {**body, "n": 4}).json()["choices"]] for _ in range(2)]
    assert sets[0] == sets[1] and sets[0][0] == alone and len(set(sets[0])) > 1


def test_B109_temperature_one_is_not_greedy(tandem):
    texts = {tandem.complete("My favourite animal is", temperature=1.0, max_tokens=12, seed=seed).json()["choices"][0]["text"] for seed in range(1, 11)}
    assert len(texts) >= 3


def test_B113_biased_token_is_always_chosen(tandem):
    answer = greedy(tandem, logit_bias={"65": 100}, logprobs=0, max_tokens=6, return_tokens_as_token_ids=True)
    assert answer["choices"][0]["logprobs"]["tokens"] == ["token_id:65"] * 6


@pytest.mark.parametrize("fields", [{"ignore_eos": True}, {"min_tokens": 64}])
def test_B120_no_end_before_its_time(tandem, fields):
    answer = tandem.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Say hi"}], "max_tokens": 64, "temperature": 0, **fields}).json()
    assert answer["usage"]["completion_tokens"] == 64 and answer["choices"][0]["finish_reason"] == "length"
    assert "<|im_end|>" not in answer["choices"][0]["message"]["content"]


def test_B054_B057_stop_strings_end_the_text_in_both_transports(tandem):
    text = greedy(tandem)["choices"][0]["text"]
    stop = text[7:12]
    for extra in ({}, {"include_stop_str_in_output": True}):
        whole = greedy(tandem, stop=[stop], **extra)["choices"][0]
        end = text.index(stop) + (len(stop) if extra else 0)
        assert whole["text"] == text[:end] and whole["finish_reason"] == "stop" and whole["stop_reason"] == stop
        events = tandem.events("/v1/completions", {"prompt": "The old house stood", "temperature": 0, "max_tokens": 24, "stop": [stop], **extra})
        assert "".join(c["text"] for e in events if e != "[DONE]" for c in e["choices"]) == whole["text"]
    assert greedy(tandem, stop=[text[-3:] + "zzzz"])["choices"][0]["text"] == text


def test_stop_ids_end_the_answer_and_are_told(tandem):
    tokens = greedy(tandem, logprobs=0, return_tokens_as_token_ids=True)["choices"][0]["logprobs"]["tokens"]
    third = int(tokens[2].split(":")[1])
    answer = greedy(tandem, stop_token_ids=[third], ignore_eos=True)
    assert answer["choices"][0]["finish_reason"] == "stop" and answer["choices"][0]["stop_reason"] == third
    assert answer["usage"]["completion_tokens"] <= 3


def test_B051_limits_never_cut_a_character(tandem):
    for limit in range(1, 13):
        body = {"prompt": "🧂🌶é漢 ", "temperature": 1.5, "seed": limit, "max_tokens": limit, "ignore_eos": True}
        whole = tandem.post("/v1/completions", body).json()
        stream = "".join(c["text"] for e in tandem.events("/v1/completions", body) if e != "[DONE]" for c in e["choices"])
        assert whole["choices"][0]["text"] == stream
        assert whole["usage"]["completion_tokens"] == limit


def test_B056_plain_limits_and_context(tandem):
    context = tandem.http.get("/v1/models").json()["data"][0]["max_model_len"]
    answer = tandem.complete("x", max_tokens=context + 1)
    assert answer.status_code == 400 and str(context) in answer.json()["error"]["message"]
    with pytest.raises(openai.BadRequestError):
        tandem.client.completions.create(model="tiny", prompt=[5] * (context + 5))


def test_B044_B045_pathological_prompts(tandem):
    for text in ("A" * 200_000, "\n" * 50_000, " \n" * 50_000, "=" * 100_000, "1" * 100_000, "漢" * 50_000):
        begin = time.monotonic()
        answer = tandem.chat(text + " say ok", max_tokens=4)
        assert answer.status_code in (200, 400)
        assert time.monotonic() - begin < within(60)
    assert tandem.http.get("/health").status_code == 200


def test_many_at_once_are_each_as_alone(tandem):
    prompts = [f"Count upward from {n}00:" for n in range(1, 9)]
    ask = lambda item: tandem.complete(item[0], temperature=0, max_tokens=item[1]).json()["choices"][0]["text"]
    lengths = [5, 10, 20, 40, 8, 12, 16, 20]
    alone = [ask(item) for item in zip(prompts, lengths)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        together = list(pool.map(ask, zip(prompts, lengths)))
    # Sums of other shapes may round otherwise; a first difference is only allowed late (the gates bound it).
    assert sum(a == b for a, b in zip(alone, together)) >= 6, list(zip(alone, together))


def test_disconnect_frees_everything(tandem):
    with tandem.http.stream("POST", "/v1/completions", json={"prompt": "x", "max_tokens": 900, "ignore_eos": True, "stream": True}) as response:
        next(response.iter_lines())
    tandem.wait_for("vllm:num_requests_running", 0, seconds=10)
    assert tandem.metric("tandem:state_slots_used") == 0 and tandem.metric("tandem:kv_pages_used") == 0


def test_metrics_and_version(tandem):
    assert tandem.metric("vllm:generation_tokens_total") > 0 and tandem.metric("tandem:steps_total") > 0
    assert tandem.metric("tandem:kv_pages") > 0 and tandem.metric("tandem:state_slots") > 0
    assert tandem.http.get("/version").json()["version"]


def second_token_logprobs(server, **fields):
    """{id: logprob} of the second token's alternatives, and the first token's id."""
    logprobs = greedy(server, logprobs=20, max_tokens=2, ignore_eos=True, return_tokens_as_token_ids=True, **fields)["choices"][0]["logprobs"]
    of_id = lambda name: int(name.split(":")[1])
    return {of_id(name): value for name, value in logprobs["top_logprobs"][1].items()}, of_id(logprobs["tokens"][0])


@pytest.mark.parametrize("name, factor", [("frequency_penalty", 1), ("presence_penalty", 1)])
def test_B112_penalties_of_either_sign_move_used_tokens_by_exactly_that(tandem_processed, name, factor):
    _, used = second_token_logprobs(tandem_processed)
    bias = {str(used): 8}  # keeps the used token among the alternatives
    plain, first = second_token_logprobs(tandem_processed, logit_bias=bias)
    assert first == used and used in plain
    for penalty in (-2, -0.5, 0.5, 2):
        moved, first = second_token_logprobs(tandem_processed, logit_bias=bias, **{name: penalty})
        assert first == used
        others = [id for id in moved if id in plain and id != used]
        assert len(others) > 10
        for other in others:  # the sum over all changes too; differences to unused tokens do not
            assert abs((moved[used] - moved[other]) - (plain[used] - plain[other]) + penalty * factor) < 1e-3


def test_B111_repetition_penalty_sees_the_prompt_and_the_others_do_not(tandem_processed):
    ids = tandem_processed.post("/tokenize", {"prompt": "The old house stood"}).json()["tokens"]

    def first_token(**fields):
        answer = greedy(tandem_processed, logprobs=20, max_tokens=1, return_tokens_as_token_ids=True, logit_bias={str(ids[-1]): 12}, **fields)
        return {int(name.split(":")[1]): value for name, value in answer["choices"][0]["logprobs"]["top_logprobs"][0].items()}

    plain = first_token()
    for name in ("presence_penalty", "frequency_penalty"):
        assert first_token(**{name: 2}) == plain
    assert first_token(repetition_penalty=1.5) != plain


def test_B111_neighbours_do_not_change_each_others_penalties(tandem_processed):
    a = dict(prompt="The old house stood", repetition_penalty=2.0, temperature=0, max_tokens=8, logprobs=5)
    b = dict(prompt="Once upon a time", seed=99, top_k=1, max_tokens=8, logprobs=5)
    ask = lambda body: tandem_processed.post("/v1/completions", body).json()["choices"][0]["text"]
    alone = [ask(a), ask(b)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for _ in range(5):
            assert list(pool.map(ask, (a, b))) == alone
            assert list(pool.map(ask, (b, a))) == alone[::-1]


@pytest.mark.parametrize("kind", ["error", "exception", "out-of-memory", "hang", "silence"])
def test_B031_B033_failed_rank_is_told_to_all_and_ends_the_process(kind):
    server = start_tandem("--tp", "2", "--step-deadline", "2", "--fault", f"kind={kind},rank=1,step=30")
    try:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            streams = [pool.submit(server.events, "/v1/completions", {"prompt": f"Story {i}", "max_tokens": 500, "ignore_eos": True}) for i in range(3)]
            for stream in streams:
                events = stream.result()
                assert "error" in events[-1] and all(c["finish_reason"] is None for e in events[:-1] for c in e["choices"])
        try:  # until the process has gone
            assert server.http.get("/health").status_code == 503
            assert server.chat("x").status_code == 503
        except httpx.TransportError:
            pass
        assert server.process.wait(within(30)) not in (0, None)
        assert any("rank 1" in line for line in server.lines[-20:]), server.lines[-20:]
    finally:
        server.process.kill()


def test_B018_R2_7_nan_in_one_state_ends_one_request(tandem):
    server = start_tandem("--fault", "kind=nan,rank=0,step=5")
    try:
        answer = server.complete("The old house stood", max_tokens=30, ignore_eos=True, temperature=0)
        assert answer.status_code == 500 and answer.json()["error"]["type"] == "server_error"
        expected = greedy(tandem)["choices"][0]["text"]
        for _ in range(12):  # more than there are slots: every one is used again
            assert greedy(server)["choices"][0]["text"] == expected
    finally:
        assert server.end() == 0


def test_B106_any_top_k_runs_beside_a_greedy_request(tandem):
    alone = greedy(tandem)["choices"][0]["text"]
    vocabulary = 4096  # the bundled model's
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for top_k in (9999999, vocabulary + 1, vocabulary, 1, 0, -1):
            for temperature in (0, 1):
                beside = pool.submit(greedy, tandem)
                answer = tandem.complete("The old house stood", top_k=top_k, temperature=temperature, seed=1, max_tokens=24)
                assert answer.status_code == 200, answer.text
                assert beside.result()["choices"][0]["text"] == alone
                if top_k == 1:  # the best token whatever the temperature
                    assert answer.json()["choices"][0]["text"] == alone
