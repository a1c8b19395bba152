"""Cases of kind (a): state of a hybrid model. docs/cases.md lists them."""

import concurrent.futures
import json
import os
import random
import statistics
import threading
import time

import pytest

from servers import PAGE, Answer, Run, ask, ask_stream, assert_same, ids, most_equal_in_a_row, start_tandem, tandem, within  # noqa: F401

FRANCE = "The capital of France is"


def together(server, wanted):
    """The answers of (prompt, max_tokens) pairs that are sent at once."""
    with concurrent.futures.ThreadPoolExecutor(len(wanted)) as pool:
        return list(pool.map(lambda item: ask(server, *item), wanted))


@pytest.mark.parametrize("flags", [[], ["--cpu-isa", "avx2"], ["--max-step-tokens", "64", "--max-mixed-tokens", "64"],
                                   ["--ops", "reference"]], ids=["best", "avx2", "chunked", "reference"])
def test_B001_a_slots_next_request_starts_from_zero(flags):
    prompts = [(FRANCE, 16), (ids(70), 8)]  # one prefill step, and more than one chunk of the delta rule
    with Run("--max-requests", "1", *flags) as server:
        fresh = [ask(server, *prompts[0])]
    with Run("--max-requests", "1", *flags) as server:
        fresh.append(ask(server, *prompts[1]))
    with Run("--max-requests", "1", *flags) as server:
        ask(server, "alpha beta " * 60, 32)
        for prompt, clean in zip(prompts, fresh):
            again = ask(server, *prompt)
            assert again.ids == clean.ids and again.top == clean.top  # bit for bit


def test_B002_staggered_ends_leave_neighbours_alone(tandem):
    prompts = [f"Count upward from {n}00, one number per line:" for n in range(1, 9)]
    limits = [5, 10, 20, 40, 80, 120, 160, 200]
    solo = [ask(tandem, prompt, 200) for prompt in prompts]
    source = random.Random(2)
    for _ in range(int(os.environ.get("TANDEM_CASE_ROUNDS", "5"))):
        source.shuffle(limits)
        answers = together(tandem, list(zip(prompts, limits)))
        for answer, alone, limit in zip(answers, solo, limits):
            alone_cut = type(alone).__new__(type(alone))
            alone_cut.__dict__ = {**alone.__dict__, "ids": alone.ids[:limit]}
            assert_same(answer, alone_cut, limits)
    assert_same(ask(tandem, FRANCE, 16), ask(tandem, FRANCE, 16))


def test_B003_padded_steps_touch_no_request(tandem):
    prompts = [f"Once upon a time there were {n} small" for n in range(2, 15)]
    solo = [ask(tandem, prompt, 64) for prompt in prompts]
    for count in (3, 5, 6, 7, 9, 13):
        for answer, alone in zip(together(tandem, [(prompt, 64) for prompt in prompts[:count]]), solo):
            assert_same(answer, alone, count)


def test_B004_the_first_slot_is_as_good_as_any():
    prompts = ["The first one here", "A second one came", "The third was late"]
    with Run() as server:
        ten, later = threading.Event(), []
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            first = pool.submit(ask_stream, server, prompts[0], 128, lambda count: count < 10 or ten.set())
            assert ten.wait(within(30)) and not first.done()
            later = [pool.submit(ask, server, prompt, 64) for prompt in prompts[1:]]
            answers = [first.result(), *(one.result() for one in later)]
        for answer, prompt, limit in zip(answers, prompts, (128, 64, 64)):
            assert_same(answer, ask(server, prompt, limit), prompt)


def test_B005_two_residents_keep_to_their_own_prompts():
    primes, sea = ("List the first 40 prime numbers.", 150), ("Escribe un poema sobre el mar.", 150)
    with Run("--max-requests", "2") as server:
        solo = [ask(server, *primes), ask(server, *sea)]
        for order in ((0, 1), (1, 0)):
            answers = together(server, [(primes, sea)[i] for i in order])
            for answer, i in zip(answers, order):
                assert_same(answer, solo[i], order)


@pytest.mark.parametrize("flags, exact", [(["--ops", "reference"], True), ([], False)], ids=["reference", "fast"])
def test_B011_B012_chunks_hand_their_state_on(flags, exact):
    """Prompts of every length around a chunk's end, and one of more than 14 chunks, against one step for all."""
    chunk = 64
    lengths = (1, 2, 3, 4, chunk - 1, chunk, chunk + 1, chunk + 2, chunk + 3, chunk + 4, 2 * chunk + 1)
    long = 14 * chunk + 17 if not exact else 5 * chunk + 17  # the plain operators take their time
    with Run(*flags, "--max-step-tokens", "1024", "--max-mixed-tokens", "512") as server:
        whole = {count: ask(server, ids(count), 1) for count in lengths + (long,)}
    for size in (64, 256):
        with Run(*flags, "--max-step-tokens", str(size), "--max-mixed-tokens", "128") as server:
            for count, wanted in whole.items():
                got = ask(server, ids(count), 1)
                if exact:
                    assert got.top == wanted.top, count
                    continue
                shared = wanted.top[0].keys() & got.top[0].keys()
                assert len(shared) >= 4, count  # the fifth may be a near tie
                assert all(abs(got.top[0][i] - wanted.top[0][i]) < 0.1 for i in shared), (count, got.top, wanted.top)


def test_B015_a_client_that_leaves_in_mid_prefill_disturbs_nobody():
    """Three prompts at once in steps that they share; the last one's client goes after its first chunk was read."""
    chunk = 64
    with Run("--max-step-tokens", str(chunk), "--max-mixed-tokens", str(chunk + 4), "--max-requests", "3") as server:
        prompts = [ids(3 * chunk, 1), ids(3 * chunk, 2), ids(60 * chunk, 3)]  # the last is under way for long enough to leave
        solo = [ask(server, prompt, 40) for prompt in prompts[:2]]
        read, given = (server.metric(f"vllm:{name}_tokens_total") for name in ("prompt", "generation"))
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            others = [pool.submit(ask, server, prompt, 40) for prompt in prompts[:2]]
            server.wait_for("vllm:num_requests_running", 2)
            body = json.dumps({"prompt": prompts[2], "max_tokens": 40, "stream": True}).encode()
            with server.connect() as socket:
                socket.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "
                               + str(len(body)).encode() + b"\r\n\r\n" + body)
                end = time.monotonic() + within(30)
                while server.metric("vllm:prompt_tokens_total") < read + 6 * chunk + 1:
                    assert time.monotonic() < end
            for one, alone in zip(others, solo):
                assert_same(one.result(), alone)
        server.check_idle()
        one_more = len(server.post("/tokenize", {"messages": [{"role": "user", "content": "still there?"}]}).json()["tokens"])
        assert server.metric("vllm:prompt_tokens_total") - read < 66 * chunk + one_more  # it left in mid-prefill
        assert server.metric("vllm:generation_tokens_total") - given <= 2 * 40 + 2       # and no token was given to it
        assert server.metric("tandem:requests_cancelled_total") == 1


def test_B016_a_request_fits_for_its_whole_life_or_is_refused():
    with Run("--kv-memory", "4M", "--max-requests", "1", "--max-context", "960") as server:
        context = server.http.get("/v1/models").json()["data"][0]["max_model_len"]
        pool = int(server.metric("tandem:kv_pages")) * PAGE
        limit = min(context, pool)
        before = server.metric("vllm:prompt_tokens_total")
        refused = server.complete(ids(limit - 8), max_tokens=64)
        assert refused.status_code == 400 and str(limit) in refused.json()["error"]["message"]
        assert server.metric("vllm:prompt_tokens_total") == before
        ask(server, ids(limit - 8), 8)
        assert server.metric("vllm:prompt_tokens_total") == before + limit - 8  # read once
        server.check_idle()


def test_B017_decode_follows_the_plain_operators_for_512_steps(tandem):
    prompt = "1, 2, 3, 4,"
    prompt_ids = tandem.post("/tokenize", {"prompt": prompt}).json()["tokens"]
    answer = ask(tandem, prompt_ids, 512, logprobs=1)
    with Run("--ops", "reference") as server:
        scored = ask(server, prompt_ids + answer.ids, 0, echo=True, logprobs=1)
    wanted = scored.logprobs[-512:]
    errors = sorted(abs(a - b) for a, b in zip(answer.logprobs, wanted))
    assert errors[int(0.99 * len(errors))] < 0.1, errors[-8:]
    # A rounded state drifts: the end would be worse than the beginning.
    halves = [statistics.mean(abs(a - b) for a, b in zip(answer.logprobs[part], wanted[part])) for part in (slice(0, 256), slice(256, 512))]
    assert halves[1] < 3 * halves[0] + 0.01, halves


def test_B018_one_bad_state_ends_one_request_and_spoils_no_later_one():
    """One of eight at once gets NaN into its state at step 20; then 50 requests, eight at a time, so that all slots are used again."""
    prompts = [f"Once upon a time there were {n} small" for n in range(2, 10)]
    with Run() as server:
        solo = {prompt: ask(server, prompt, 60) for prompt in prompts}
    with Run("--fault", "kind=nan,rank=0,step=20") as server:
        assert server.metric("tandem:state_slots") == len(prompts)
        with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
            def one(prompt):
                return server.complete(prompt, max_tokens=60, temperature=0, logprobs=5, ignore_eos=True, return_tokens_as_token_ids=True)

            answers = dict(zip(prompts, pool.map(one, prompts)))
            bad = [prompt for prompt, answer in answers.items() if answer.status_code != 200]
            assert len(bad) == 1 and answers[bad[0]].status_code == 500, answers
            assert answers[bad[0]].json()["error"]["type"] == "server_error"
            for prompt, answer in answers.items():
                if prompt not in bad:
                    assert_same(Answer(answer.json()["choices"][0]), solo[prompt], prompt)
            later = [prompts[i % len(prompts)] for i in range(50)]
            for prompt, answer in zip(later, pool.map(lambda prompt: ask(server, prompt, 60), later)):
                assert_same(answer, solo[prompt], prompt)
        server.check_idle()


@pytest.mark.parametrize("flags", [["--ops", "reference"], []], ids=["reference", "fast"])
def test_B021_a_used_pool_gives_the_bits_of_a_fresh_one(flags):
    lengths = (PAGE - 1, PAGE, PAGE + 1, 2 * PAGE - 1, 2 * PAGE) if flags else (PAGE - 1, PAGE, PAGE + 1, 2 * PAGE - 1, 2 * PAGE, 8 * PAGE)
    limit = 12 if flags else 40
    small = ("--kv-memory", "4M", "--max-requests", "2", *flags)
    with Run(*small) as server:
        fresh = {count: ask(server, ids(count, 9), limit) for count in lengths}
    with Run(*small) as server:
        pool = int(server.metric("tandem:kv_pages")) * PAGE
        ask(server, ids(pool - 16, 4), 8)  # every page held another's keys
        for count in lengths:
            again = ask(server, ids(count, 9), limit)
            assert again.ids == fresh[count].ids and again.top == fresh[count].top, count


def test_B022_equal_requests_at_once_are_equal(tandem):
    solo = ask(tandem, "Write one sentence about bridges.", 60)
    for count in (1, 2, 4, 5, 8, 14, 15, 16):
        for answer in together(tandem, [("Write one sentence about bridges.", 60)] * count):
            assert_same(answer, solo, count)


def test_B023_rounds_of_a_long_chat_are_as_on_a_fresh_server(tandem):
    messages, rounds = [], []
    for number in range(30):
        messages.append({"role": "user", "content": f"Question {number}: what is {number} + {number + 7}?"})
        answer = tandem.post("/v1/chat/completions", {"messages": messages, "temperature": 0, "max_tokens": 48, "logprobs": True, "top_logprobs": 2})
        assert answer.status_code == 200, answer.text
        choice = answer.json()["choices"][0]
        entries = choice["logprobs"]["content"]
        assert most_equal_in_a_row(entry["token"] for entry in entries) <= 20
        assert all(-9999 <= entry["logprob"] <= 0 for entry in entries)
        rounds.append((list(messages), entries))
        messages.append({"role": "assistant", "content": choice["message"]["content"]})
    with Run() as server:
        for before, wanted in rounds[::7]:
            got = server.post("/v1/chat/completions", {"messages": before, "temperature": 0, "max_tokens": 48, "logprobs": True, "top_logprobs": 2})
            for a, b in zip(got.json()["choices"][0]["logprobs"]["content"], wanted):
                if a["token"] != b["token"]:
                    top = b["top_logprobs"]
                    assert top[0]["logprob"] - top[1]["logprob"] < 0.05, (a, b)
                    break
