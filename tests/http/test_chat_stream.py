"""What stands in the chunks of a streamed chat answer."""

import pytest

from conftest import FOX, script, user


def test_B146_usage_only_when_asked_for(fake):
    def usages(**fields):
        return [event["usage"] for event in fake.chat_events("x", **fields) if event != "[DONE]" and "usage" in event]
    for options in (None, {}, {"include_usage": False}, {"include_usage": None}):
        assert usages(stream_options=options) == []
    assert usages()== []
    assert usages(stream_options={"include_usage": True})[-1]["completion_tokens"] == len(FOX) + 1
    assert fake.chat("x", stream_options={"include_usage": True}).status_code == 400
    assert fake.chat("x", stream_options={}).status_code == 400
    for wrong in ({"include_usage": "yes"}, "yes", {"other": 1}, {"continuous_usage_stats": True}):
        assert fake.chat("x", stream=True, stream_options=wrong).status_code == 400


@pytest.mark.parametrize("n", [1, 2])
def test_B147_B148_last_chunk_has_usage_and_no_choices(fake, n):
    for path, body in (("/v1/chat/completions", {"messages": [user("hi")]}), ("/v1/completions", {"prompt": "hi"})):
        events = fake.events(path, {**body, "n": n, "stream_options": {"include_usage": True}})
        assert events[-1] == "[DONE]"
        assert events[-2]["choices"] == []
        whole = fake.post(path, {**body, "n": n}).json()
        assert events[-2]["usage"] == whole["usage"]
        assert whole["usage"]["completion_tokens"] == n * (len(FOX) + 1)
        assert all(event["usage"] is None for event in events[:-2])


def test_B150_role_in_the_first_delta_only(fake):
    for thinking in (True, False):
        deltas = [c["delta"] for e in fake.chat_events("hi", chat_template_kwargs={"enable_thinking": thinking}) if e != "[DONE]" for c in e["choices"]]
        assert deltas[0]["role"] == "assistant"
        assert all("role" not in delta for delta in deltas[1:])


def test_B150_empty_answer_still_has_role_and_reason(fake):
    events = fake.chat_events(script(say=""))
    deltas = [choice for event in events if event != "[DONE]" for choice in event["choices"]]
    assert deltas[0]["delta"] == {"role": "assistant", "content": ""}
    assert [choice["finish_reason"] for choice in deltas] == ["stop"]


def test_B151_one_id_and_created_per_stream(fake):
    streams = [fake.chat_events("a"), fake.chat_events("b"), fake.events("/v1/completions", {"prompt": "a"})]
    ids = []
    for prefix, events in zip(("chatcmpl-", "chatcmpl-", "cmpl-"), streams):
        found = {(event["id"], event["created"], event["model"]) for event in events if event != "[DONE]"}
        assert len(found) == 1
        ids.append(found.pop()[0])
        assert ids[-1].startswith(prefix)
    assert len(set(ids)) == 3


@pytest.mark.parametrize("fields, reason", [({"max_tokens": 5}, "length"), ({"stop": ["fox"]}, "stop"), ({}, "stop")])
def test_B152_one_finish_reason_and_all_logprobs_in_a_stream(fake, fields, reason):
    events = fake.chat_events("x", logprobs=True, top_logprobs=1, stream_options={"include_usage": True}, **fields)
    choices = [choice for event in events if event != "[DONE]" for choice in event["choices"]]
    assert [c["finish_reason"] for c in choices if c["finish_reason"]] == [reason]
    entries = sum(len(c["logprobs"]["content"]) for c in choices if c.get("logprobs"))
    assert entries == events[-2]["usage"]["completion_tokens"]
