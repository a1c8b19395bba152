"""/v1/completions, /tokenize and /detokenize."""

import pytest

from conftest import script

FOX = "The quick brown fox jumps over the lazy dog."


def test_client_completes_a_string_and_token_ids(fake):
    for prompt in ("hi", [104, 105], ["hi"], [[104, 105]]):
        answer = fake.client.completions.create(model="fake", prompt=prompt)
        assert answer.choices[0].text == FOX
        assert answer.usage.prompt_tokens == 2
        assert answer.id.startswith("cmpl-")


def test_stream_equals_whole(fake):
    for fields in ({}, {"max_tokens": 3}, {"echo": True}, {"logprobs": 2, "echo": True}, {"stop": " fox"}, {"logprobs": 0}):
        whole = fake.complete("prömpt", **fields).json()["choices"][0]
        choices = [c for e in fake.events("/v1/completions", {"prompt": "prömpt", **fields}) if e != "[DONE]" for c in e["choices"]]
        assert "".join(c["text"] for c in choices) == whole["text"]
        assert [c["finish_reason"] for c in choices if c["finish_reason"]] == [whole["finish_reason"]]
        if "logprobs" in fields:
            parts = [c["logprobs"] for c in choices if c["logprobs"]]
            for name in ("tokens", "token_logprobs", "text_offset"):
                assert [x for part in parts for x in part[name]] == whole["logprobs"][name]


def test_B115_echo_with_no_tokens_scores_the_prompt(fake):
    answer = fake.complete("Answer: yes", echo=True, max_tokens=0, logprobs=1).json()
    choice = answer["choices"][0]
    assert choice["text"] == "Answer: yes"
    assert choice["logprobs"]["tokens"] == list("Answer: yes")
    assert choice["logprobs"]["token_logprobs"][0] is None and all(x == -0.5 for x in choice["logprobs"]["token_logprobs"][1:])
    assert choice["logprobs"]["text_offset"] == list(range(11))
    assert choice["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 0
    assert fake.complete("Answer: yes", max_tokens=0).status_code == 400
    events = fake.events("/v1/completions", {"prompt": "Answer: yes", "echo": True, "max_tokens": 0, "logprobs": 1})
    assert "".join(c["text"] for e in events if e != "[DONE]" for c in e["choices"]) == "Answer: yes"


def test_B118_B119_counts_of_logprobs(fake):
    for count in (0, 5, 20):
        logprobs = fake.complete("x", logprobs=count, max_tokens=2).json()["choices"][0]["logprobs"]
        assert logprobs["tokens"] == ["T", "h"]
        if count == 0:
            assert logprobs["top_logprobs"] is None
        else:
            assert all(len(top) == count for top in logprobs["top_logprobs"])
    for bad in (21, -1, True, 1.5, "5"):
        assert fake.complete("x", logprobs=bad).status_code == 400


def test_return_tokens_as_token_ids(fake):
    logprobs = fake.complete("x", logprobs=1, max_tokens=1, return_tokens_as_token_ids=True).json()["choices"][0]["logprobs"]
    assert logprobs["tokens"] == ["token_id:84"] and list(logprobs["top_logprobs"][0]) == ["token_id:84"]


@pytest.mark.parametrize("prompt", ["", [], [[]], ["a", "b"], [[1], [2]], None, 7, {"a": 1}, [-1], [300], [1.5], [True], [1, "a"], ["a", 1]])
def test_bad_prompts_are_refused(fake, prompt):
    answer = fake.complete(prompt)
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "prompt"


def test_missing_prompt_is_refused(fake):
    assert fake.post("/v1/completions", {"model": "fake"}).json()["error"]["param"] == "prompt"


def test_prompt_that_fills_the_context_is_refused_with_the_limit(start):
    server = start(max_context=100)
    answer = server.complete("x" * 100)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded" and "99" in answer.json()["error"]["message"]
    assert server.complete("x" * 99, max_tokens=1).status_code == 200
    answer = server.complete("x" * 50, max_tokens=51)
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "max_tokens"


def test_B058_leading_spaces_stay(fake):
    assert fake.complete(script(say=" Paris")).json()["choices"][0]["text"] == " Paris"


def test_B051_no_half_characters_at_any_limit(fake):
    say = script(say="🌶é漢")
    for limit in range(1, 11):
        whole = fake.complete(say, max_tokens=limit).json()["choices"][0]["text"]
        stream = "".join(c["text"] for e in fake.events("/v1/completions", {"prompt": say, "max_tokens": limit}) if e != "[DONE]" for c in e["choices"])
        assert whole == stream and "\ufffd" not in whole
        assert "🌶é漢".startswith(whole)


def test_tokenize_and_detokenize_are_inverse(fake):
    text = "héllo 🌶 <|im_end|>"
    answer = fake.post("/tokenize", {"prompt": text}).json()
    assert answer["count"] == len(answer["tokens"]) and answer["max_model_len"] == 32768 and answer["token_strs"] is None
    assert fake.post("/detokenize", {"tokens": answer["tokens"]}).json() == {"prompt": text}
    assert fake.post("/tokenize", {"prompt": "ab", "return_token_strs": True}).json()["token_strs"] == ["a", "b"]
    assert fake.post("/tokenize", {"prompt": ""}).json()["count"] == 0


@pytest.mark.parametrize("path, body", [
    ("/tokenize", {}), ("/tokenize", {"prompt": 1}), ("/tokenize", {"prompt": "x", "foo": 1}), ("/tokenize", {"prompt": "x", "model": "nope"}),
    ("/tokenize", {"messages": []}), ("/tokenize", {"prompt": "x", "messages": [{"role": "user", "content": "x"}]}),
    ("/detokenize", {}), ("/detokenize", {"tokens": "abc"}), ("/detokenize", {"tokens": [-1]}), ("/detokenize", {"tokens": [300]}), ("/detokenize", {"tokens": [True]})])
def test_bad_tokenize_bodies_are_refused(fake, path, body):
    assert fake.post(path, body).status_code in (400, 404)
