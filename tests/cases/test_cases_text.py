"""Cases of kinds (c) and (d): text in, text out, templates. docs/cases.md lists them."""

import json
import random
import time

import pytest
import tokenizers

from servers import ROOT, ask, fake, of_id, script, tandem  # noqa: F401


@pytest.fixture(scope="module")
def reference():
    """Hugging Face's tokenizers on the same file."""
    return tokenizers.Tokenizer.from_file(str(ROOT / "models/tandem-tiny/tokenizer.json"))


def tokens_of(server, text):
    answer = server.post("/tokenize", {"prompt": text})
    assert answer.status_code == 200, answer.text
    return answer.json()["tokens"]


def seconds_of(server, text, tries=5):
    """The best of some: other work on the machine only adds."""
    best = float("inf")
    for _ in range(tries):
        begin = time.monotonic()
        tokens_of(server, text)
        best = min(best, time.monotonic() - begin)
    return best


@pytest.mark.parametrize("letter", ["A", "7", "=", " ", "漢"])
def test_B044_a_megabyte_of_one_letter_is_quick(tandem, letter):
    assert seconds_of(tandem, letter * (1_000_000 // len(letter.encode())), tries=3) < 1.5  # HTTP and JSON both ways included


@pytest.mark.parametrize("text", ["start" + "\n" * 5000 + "end", " \n" * 5000, "\r\n" * 5000, "\t" * 5000], ids=["lf", "blank-lf", "crlf", "tab"])
def test_B045_blank_lines_have_the_reference_ids(tandem, reference, text):
    assert tokens_of(tandem, text) == reference.encode(text).ids


def test_B046_time_grows_with_the_length_only(tandem):
    source = random.Random(46)
    letters = "".join(chr(97 + source.randrange(26)) for _ in range(64_000))
    for text in ("a" * 64_000, "ab" * 32_000, letters):
        short, long = seconds_of(tandem, text[:16_000]), seconds_of(tandem, text)
        assert long < 0.2 and long < 2.5 * 2.5 * short + 0.01, (short, long)


@pytest.mark.parametrize("text", ["नमस्ते दुनिया", "ก็กำลังไป", "שָׁלוֹם", "مُحَمَّد", "a\u0301b\u0300", "x\u20dd!", "\u0301start"])
def test_B047_combining_marks_belong_to_words(tandem, reference, text):
    assert tokens_of(tandem, text) == reference.encode(text).ids


@pytest.mark.parametrize("held", [1, 2, 3])
def test_B053_a_prompt_that_ends_inside_a_character_is_not_repeated(tandem, reference, held):
    byte_ids = [id for id in tokens_of(tandem, "🌶")]
    if len(byte_ids) != 4:  # the vocabulary joins some of them: look its single bytes up
        byte_ids = [reference.token_to_id(letter) for letter in "ðŁĮ¶"]
    assert None not in byte_ids
    prompt = tokens_of(tandem, "Hello world ") + byte_ids[:held]
    body = {"prompt": prompt, "max_tokens": 8, "temperature": 0, "ignore_eos": True}
    whole = tandem.post("/v1/completions", body).json()["choices"][0]["text"]
    streamed = "".join(c["text"] for e in tandem.events("/v1/completions", body) if e != "[DONE]" for c in e["choices"])
    assert streamed == whole and "Hello" not in whole and "world" not in whole


def test_B055_a_stop_string_that_never_comes_changes_nothing(fake):
    say = script(say="first a thought</think>\n\nthen an answer zzz, and zzzzzzzzz")
    fields = {"chat_template_kwargs": {"enable_thinking": True}}

    def deltas(**more):
        return [c["delta"] for e in fake.chat_events(say, **fields, **more) if e != "[DONE]" for c in e["choices"]]

    plain, stopped = deltas(), deltas(stop=["zzzzzzzzzz"])
    for field in ("reasoning_content", "content"):
        joined = "".join(d.get(field) or "" for d in plain)
        assert joined and "".join(d.get(field) or "" for d in stopped) == joined


@pytest.mark.parametrize("fields", [{}, {"max_tokens": 22}])
def test_B057_text_held_for_a_stop_string_comes_at_the_end(fake, fields):
    say = script(say="alpha beta gamma delta")
    whole = fake.chat(say, stop=["delta force"], **fields).json()["choices"][0]["message"]["content"]
    streamed = "".join(c["delta"].get("content") or "" for e in fake.chat_events(say, stop=["delta force"], **fields) if e != "[DONE]" for c in e["choices"])
    assert whole == streamed == "alpha beta gamma delta"


def test_B058_the_first_piece_keeps_its_space(tandem):
    body = {"prompt": "The capital of France is", "temperature": 0, "max_tokens": 3, "ignore_eos": True}
    whole = tandem.post("/v1/completions", body).json()["choices"][0]["text"]
    streamed = "".join(c["text"] for e in tandem.events("/v1/completions", body) if e != "[DONE]" for c in e["choices"])
    echoed = tandem.post("/v1/completions", {**body, "echo": True}).json()["choices"][0]["text"]
    assert whole == streamed and echoed == body["prompt"] + whole
    generated = ask(tandem, body["prompt"], 3).ids
    assert whole == tandem.post("/detokenize", {"tokens": generated}).json()["prompt"]
    assert whole.startswith(" ")


def test_B061_alternatives_are_their_own_tokens(tandem):
    body = {"messages": [{"role": "user", "content": "Put the word cat in curly quotes: “cat” 🧂"}], "temperature": 0, "max_tokens": 12,
            "logprobs": True, "top_logprobs": 20, "ignore_eos": True}
    shown = tandem.post("/v1/chat/completions", body).json()["choices"][0]["logprobs"]["content"]
    named = tandem.post("/v1/chat/completions", {**body, "return_tokens_as_token_ids": True}).json()["choices"][0]["logprobs"]["content"]
    for entry, names in zip(shown, named, strict=True):
        assert entry["logprob"] == next(t["logprob"] for t in entry["top_logprobs"] if t["token"] == entry["token"])
        for top, name in zip(entry["top_logprobs"], names["top_logprobs"], strict=True):
            alone = tandem.post("/detokenize", {"tokens": [of_id(name["token"])]}).json()["prompt"]
            assert top["token"] == alone and (top["token"] or not top["bytes"])
            assert "\ufffd" in alone or top["bytes"] is None or top["bytes"] == [] or bytes(top["bytes"]).decode() == alone


def test_B078_tool_descriptions_reach_the_prompt_as_written(tandem):
    tool = {"type": "function", "function": {"name": "weather", "description": "查询天气 — “сегодня”",
                                             "parameters": {"type": "object", "properties": {"città": {"type": "string"}}, "required": ["città"]}}}
    prompt = tandem.prompt_of(messages=[{"role": "user", "content": "x"}], tools=[tool])
    assert "查询天气 — “сегодня”" in prompt and "città" in prompt and "\\u" not in prompt


@pytest.mark.parametrize("fields", [{"add_generation_prompt": True}, {}])
def test_B073_an_assistant_message_alone_is_400_or_an_answer(tandem, fields):
    answer = tandem.post("/v1/chat/completions", {"messages": [{"role": "assistant", "content": "Hello, who are you?"}], "max_tokens": 4, **fields})
    assert answer.status_code in (200, 400), answer.text
    if answer.status_code == 400:
        assert answer.json()["error"]["type"] == "invalid_request_error"


def test_B076_a_trailing_assistant_message_has_one_rule(tandem):
    body = {"messages": [{"role": "user", "content": "List three fruits"}, {"role": "assistant", "content": "1. apple\n2."}], "max_tokens": 4, "temperature": 0}
    for switch in ({}, {"chat_template_kwargs": {"enable_thinking": True}}, {"chat_template_kwargs": {"enable_thinking": False}}):
        assert tandem.post("/v1/chat/completions", {**body, **switch}).status_code == 200
        prompt = tandem.prompt_of(messages=body["messages"], **switch)
        assert "1. apple\n2.<|im_end|>" in prompt  # a finished turn, whatever the switch says


def test_B080_templates_of_a_request_are_refused_at_once(tandem):
    bomb = "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}"
    for fields in ({"chat_template": bomb}, {"chat_template_kwargs": {"chat_template": bomb}}, {"chat_template_kwargs": {"messages": []}},
                   {"chat_template_kwargs": {"tools": []}}):
        begin = time.monotonic()
        answer = tandem.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1, **fields})
        assert answer.status_code == 400, (fields, json.dumps(answer.json()))
        assert time.monotonic() - begin < 1
