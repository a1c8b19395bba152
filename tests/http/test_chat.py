"""/v1/chat/completions: whole answers, by the official client and by what stands in the bytes."""

import openai
import pytest

from conftest import FOX, script, user


def test_client_gets_a_whole_answer_with_usage(fake):
    answer = fake.client.chat.completions.create(model="fake", messages=[user("hi")])
    assert answer.id.startswith("chatcmpl-")
    assert answer.object == "chat.completion"
    assert answer.choices[0].message.content == FOX
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.completion_tokens == len(FOX) + 1
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_streamed_answer_equals_the_whole_one(fake):
    for fields in ({}, {"max_tokens": 7}, {"stop": ["fox"]}, {"extra_body": {"chat_template_kwargs": {"enable_thinking": True}}}):
        say = script(say="pondering 🧂</think>Söme änswer with a fox")
        whole = fake.client.chat.completions.create(model="fake", messages=[user(say)], **fields)
        stream = fake.client.chat.completions.create(
            model="fake", messages=[user(say)], stream=True, stream_options={"include_usage": True}, **fields)
        text, reasoning, finish, usage = "", "", None, None
        for chunk in stream:
            usage = chunk.usage or usage
            for choice in chunk.choices:
                text += choice.delta.content or ""
                reasoning += getattr(choice.delta, "reasoning_content", None) or ""
                finish = choice.finish_reason or finish
        assert text == whole.choices[0].message.content
        assert reasoning == (getattr(whole.choices[0].message, "reasoning_content", None) or "")
        assert finish == whole.choices[0].finish_reason
        assert usage == whole.usage


def test_B084_thinking_cut_by_the_limit_is_reasoning(fake):
    say = script(say="a long thought that never ends")
    for thinking, field in ((True, "reasoning_content"), (False, "content")):
        fields = {"max_tokens": 8, "chat_template_kwargs": {"enable_thinking": thinking}}
        message = fake.chat(say, **fields).json()["choices"][0]
        assert message["message"][field] == "a long t"
        assert message["finish_reason"] == "length"
        other = message["message"].get("content" if thinking else "reasoning_content")
        assert not other
        deltas = [c["delta"] for e in fake.chat_events(say, **fields) if e != "[DONE]" for c in e["choices"]]
        assert "".join(d.get(field) or "" for d in deltas) == "a long t"
        assert not any(d.get("content" if thinking else "reasoning_content") for d in deltas)


def test_B117_null_is_as_good_as_absent(fake):
    fields = ["max_tokens", "max_completion_tokens", "temperature", "top_p", "stop", "n", "seed", "logit_bias", "tools",
              "tool_choice", "stream", "stream_options", "response_format", "user", "logprobs", "top_logprobs",
              "presence_penalty", "frequency_penalty", "parallel_tool_calls", "chat_template_kwargs", "something_new"]
    answer = fake.chat("hi", **{name: None for name in fields})
    assert answer.status_code == 200
    assert answer.json()["choices"][0]["message"]["content"] == FOX


def test_B119_counts_of_top_logprobs(fake):
    for top in (0, 1, 20):
        for stream in (False, True):
            if stream:
                entries = [entry for event in fake.chat_events("x", logprobs=True, top_logprobs=top, max_tokens=3) if event != "[DONE]"
                           for choice in event["choices"] if choice.get("logprobs") for entry in choice["logprobs"]["content"]]
            else:
                entries = fake.chat("x", logprobs=True, top_logprobs=top, max_tokens=3).json()["choices"][0]["logprobs"]["content"]
            assert [entry["token"] for entry in entries] == ["T", "h", "e"]
            assert all(len(entry["top_logprobs"]) == top for entry in entries)
    for bad in (21, 1000000, -1, True, 2.5, "3"):
        assert fake.chat("x", logprobs=True, top_logprobs=bad).status_code == 400
    assert fake.chat("x", top_logprobs=3).status_code == 400
    assert fake.chat("x", logprobs=False, top_logprobs=3).status_code == 400
    assert fake.chat("x", logprobs=1).status_code == 400


def test_B118_impossible_tokens_have_a_floor(fake):
    logprobs = [alternative["logprob"] for entry in fake.chat("x", logprobs=True, top_logprobs=20, max_tokens=2).json()["choices"][0]["logprobs"]["content"]
                for alternative in entry["top_logprobs"]]
    assert min(logprobs) >= -9999.0


def test_B060_bytes_of_all_entries_are_the_content(fake):
    answer = fake.chat(script(say="🧂 ok"), logprobs=True, top_logprobs=3).json()["choices"][0]
    joined = bytes(b for entry in answer["logprobs"]["content"] for b in entry["bytes"])
    assert joined.decode() == answer["message"]["content"] == "🧂 ok"


def test_return_tokens_as_token_ids_names_ids(fake):
    entries = fake.chat("x", logprobs=True, top_logprobs=1, max_tokens=2, return_tokens_as_token_ids=True).json()["choices"][0]["logprobs"]["content"]
    assert [entry["token"] for entry in entries] == [f"token_id:{ord('T')}", f"token_id:{ord('h')}"]
    assert entries[0]["top_logprobs"][0]["token"] == f"token_id:{ord('T')}"


def test_stop_string_is_told_as_stop_reason_and_kept_if_asked(fake):
    answer = fake.chat("x", stop=["fox"]).json()["choices"][0]
    assert answer["message"]["content"] == "The quick brown " and answer["stop_reason"] == "fox"
    answer = fake.chat("x", stop="fox", include_stop_str_in_output=True).json()["choices"][0]
    assert answer["message"]["content"] == "The quick brown fox"


def test_n_choices_come_with_their_index(fake):
    answer = fake.client.chat.completions.create(model="fake", messages=[user("hi")], n=3)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    seen = {choice.index for chunk in fake.client.chat.completions.create(model="fake", messages=[user("hi")], n=3, stream=True) for choice in chunk.choices}
    assert seen == {0, 1, 2}


def test_B126_harmless_fields_are_taken_and_others_named(fake):
    fields = {"metadata": {}, "store": True, "user": "u1", "service_tier": "auto", "safety_identifier": "s", "prompt_cache_key": "k"}
    messages = [{"role": "user", "content": "hi", "id": 5, "name": "bob", "refusal": None},
                {"role": "assistant", "content": "hello", "reasoning_content": "x", "refusal": None, "tool_calls": None}, user("hi")]
    assert fake.post("/v1/chat/completions", {"messages": messages, **fields}).status_code == 200
    answer = fake.chat("hi", foo=1)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "foo" and "foo" in answer.json()["error"]["message"]
    inner = fake.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "x", "bar": 1}]})
    assert inner.json()["error"]["param"] == "messages[0].bar"


def test_unsupported_fields_pass_in_their_default_only(fake):
    for name, default, other in (("parallel_tool_calls", True, False), ("best_of", 1, 2), ("use_beam_search", False, True),
                                 ("length_penalty", 1, 0.5), ("modalities", ["text"], ["audio"]), ("bad_words", [], ["x"])):
        assert fake.chat("hi", **{name: default}).status_code == 200
        answer = fake.chat("hi", **{name: other})
        assert answer.status_code == 400 and answer.json()["error"]["param"] == name


@pytest.mark.parametrize("value", [{"type": "json_schema", "schema": {}}, {"type": "xml"}, "json", {}, {"type": "json_object"}, {"type": "text", "x": 1}])
def test_B159_response_format_other_than_text_is_refused(fake, value):
    answer = fake.chat("hi", response_format=value)
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "response_format"
    assert answer.json()["error"]["message"]


def test_B159_text_format_works(fake):
    assert fake.chat("hi", response_format={"type": "text"}).status_code == 200


def test_B157_unknown_models_are_told_the_served_names(fake):
    for name in ("nope", "", "FAKE", "models/fake"):
        answer = fake.chat("hi", model=name)
        error = answer.json()["error"]
        assert answer.status_code == 404 and error["code"] == "model_not_found" and '"fake"' in error["message"]
    with pytest.raises(openai.NotFoundError):
        fake.client.chat.completions.create(model="nope", messages=[user("hi")])
    assert fake.chat("hi").status_code == 200  # documented: absent means the served one
    assert fake.chat("hi", model="fake/alias").json()["model"] == "fake/alias"


def test_answers_are_utf8_whatever_is_said(fake):
    text = "नमस्ते 🌶️ \u0000 \u2028 \"quoted\" \\ \n end"
    assert fake.chat(script(say=text)).json()["choices"][0]["message"]["content"] == text
    events = fake.chat_events(script(say=text))
    assert "".join(c["delta"].get("content") or "" for e in events if e != "[DONE]" for c in e["choices"]) == text
