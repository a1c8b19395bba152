"""/v1/chat/completions, by the official client and by what stands in the bytes."""

import json

import openai
import pytest

from conftest import script

FOX = "The quick brown fox jumps over the lazy dog."


def user(text):
    return {"role": "user", "content": text}


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


@pytest.mark.parametrize("kwargs", ["false", 0, "x", [], {}])
def test_B077_thinking_switch_of_the_wrong_type_is_refused(fake, kwargs):
    answer = fake.chat("1+1?", chat_template_kwargs={"enable_thinking": kwargs})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "chat_template_kwargs.enable_thinking"


def test_B077_thinking_switch_reaches_the_template(fake):
    message = [user("1+1?")]
    closed = "<think>\n\n</think>\n\n"
    assert fake.prompt_of(messages=message, chat_template_kwargs={"enable_thinking": False}).endswith(closed)
    assert fake.prompt_of(messages=message, chat_template_kwargs={"enable_thinking": True}).endswith("<think>\n")
    assert fake.prompt_of(messages=message, chat_template_kwargs={"enable_thinking": None}).endswith(closed)
    for bad in ({"foo": 1}, {"messages": []}, {"tools": []}, {"add_generation_prompt": False}):
        answer = fake.chat("hi", chat_template_kwargs=bad)
        assert answer.status_code == 400 and next(iter(bad)) in answer.json()["error"]["message"]
    answer = fake.chat("hi", enable_thinking=False)
    assert answer.status_code == 400 and "chat_template_kwargs" in answer.json()["error"]["message"]


def test_a_users_own_think_tag_does_not_make_the_answer_reasoning(fake):
    message = fake.chat("<think> what?", max_tokens=5).json()["choices"][0]["message"]
    assert message["content"] == FOX[:5] and "reasoning_content" not in message


def test_B063_template_refusals_are_400_with_its_reason(fake):
    messages = [user("hi"), {"role": "assistant", "content": "hello"}, {"role": "system", "content": "Now be brief."}, user("ok?")]
    for stream in (False, True):
        answer = fake.post("/v1/chat/completions", {"messages": messages, "stream": stream})
        assert answer.status_code == 400
        assert "must be at the beginning" in answer.json()["error"]["message"]
        assert answer.json()["error"]["type"] == "invalid_request_error"


def test_B064_leading_developer_and_system_messages_become_one(fake):
    one = fake.prompt_of(messages=[{"role": "system", "content": "A\n\nB"}, user("hi")])
    for first in ("developer", "system"):
        messages = [{"role": first, "content": "A"}, {"role": "developer", "content": "B"}, user("hi")]
        assert fake.prompt_of(messages=messages) == one
    late = fake.post("/v1/chat/completions", {"messages": [user("hi"), {"role": "developer", "content": "B"}]})
    assert late.status_code == 400


def call_history(arguments, **function):
    return [user("weather?"),
            {"role": "assistant", "content": "", "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": arguments, **function}}]},
            {"role": "tool", "tool_call_id": "c1", "content": "rain"}]


def test_B066_replayed_arguments_reach_the_template_as_a_mapping_in_order(fake):
    prompt = fake.prompt_of(messages=call_history('{"city":"Oslo","days":3,"tags":["a"]}'))
    assert '<call get_weather city="Oslo" days=3 tags=["a"]>' in prompt
    assert fake.prompt_of(messages=call_history({"city": "Oslo", "days": 3, "tags": ["a"]})) == prompt
    assert "<call get_weather>" in fake.prompt_of(messages=call_history(""))  # documented: no arguments


@pytest.mark.parametrize("arguments", ["{", "[1]", "null", "7", 7, [1], "{\"a\":1} x"])
def test_B067_broken_replayed_arguments_are_400_with_the_place(fake, arguments):
    answer = fake.post("/v1/chat/completions", {"messages": call_history(arguments)})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "messages[1].tool_calls[0].function.arguments"


def test_B067_missing_function_is_400(fake):
    answer = fake.post("/v1/chat/completions", {"messages": [
        user("x"), {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "type": "function"}]}]})
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "messages[1].tool_calls[0].function"


def test_B070_B071_text_parts_are_joined_for_every_role(fake):
    parts = [{"type": "text", "text": "105"}, {"type": "text", "text": "25"}]
    for build in (lambda c: [{"role": "system", "content": c}, user("x")],
                  lambda c: [user(c)],
                  lambda c: [user("x"), {"role": "assistant", "content": c}, user("y")],
                  lambda c: [user("x"), {"role": "tool", "tool_call_id": "c1", "content": c}]):
        assert fake.prompt_of(messages=build(parts)) == fake.prompt_of(messages=build("10525"))


@pytest.mark.parametrize("content, word", [
    ([], "empty"), ([{"type": "text"}], "text"), ([{"type": "image_url", "image_url": {"url": "x"}}], "image_url"),
    ([{"type": "foo"}], "foo"), (["a"], "object"), ([{"text": "a"}], "type"), (None, "missing"), (7, "string")])
def test_B071_other_parts_are_400_with_the_reason(fake, content, word):
    answer = fake.post("/v1/chat/completions", {"messages": [user("a"), user(content)]})
    assert answer.status_code == 400
    assert word in answer.json()["error"]["message"]
    assert answer.json()["error"]["param"].startswith("messages[1].content")


@pytest.mark.parametrize("content", [{"temp": 4}, 42, True, ["a", "b"]])
def test_B072_tool_results_of_other_types_are_refused(fake, content):
    answer = fake.post("/v1/chat/completions", {"messages": [user("x"), {"role": "tool", "tool_call_id": "c", "content": content}]})
    assert answer.status_code == 400


def test_B073_only_an_assistant_message_is_400(fake):
    for extra in ({}, {"add_generation_prompt": True}):
        answer = fake.post("/v1/chat/completions", {"messages": [{"role": "assistant", "content": "Hello?"}], **extra})
        assert answer.status_code == 400


def test_B075_continued_message_ends_the_prompt_exactly(fake):
    for prefill in ("The result is", "The result is ", "a\n\n"):
        messages = [user("1+1=?"), {"role": "assistant", "content": prefill}]
        flags = {"continue_final_message": True, "add_generation_prompt": False, "chat_template_kwargs": {"enable_thinking": True}}
        assert fake.prompt_of(messages=messages, **flags).endswith("<|im_start|>assistant\n" + prefill)
        message = fake.post("/v1/chat/completions", {"messages": messages, "max_tokens": 3, **flags}).json()["choices"][0]["message"]
        assert message["content"] == FOX[:3] and "reasoning_content" not in message
    both = fake.post("/v1/chat/completions", {"messages": messages, "continue_final_message": True, "add_generation_prompt": True})
    assert both.status_code == 400
    no_prefill = fake.chat("x", continue_final_message=True)
    assert no_prefill.status_code == 400


def test_B075_prefill_inside_think_continues_as_reasoning(fake):
    messages = [user(script(say="so</think>done")), {"role": "assistant", "content": "<think>hmm "}]
    message = fake.post("/v1/chat/completions", {"messages": messages, "continue_final_message": True}).json()["choices"][0]["message"]
    assert message["reasoning_content"] == "so" and message["content"] == "done"


def test_B076_trailing_assistant_message_begins_a_new_turn_always(fake):
    messages = [user("List three fruits"), {"role": "assistant", "content": "1. apple\n2."}]
    for thinking in (True, False, None):
        prompt = fake.prompt_of(messages=messages, chat_template_kwargs={"enable_thinking": thinking})
        assert "2.<|im_end|>\n<|im_start|>assistant\n" in prompt


def test_B080_a_request_cannot_bring_a_template(fake):
    bomb = "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}"
    for fields in ({"chat_template": bomb}, {"chat_template_kwargs": {"chat_template": bomb}}):
        assert fake.chat("hi", **fields).status_code == 400


def test_B100_modes_of_tool_choice(fake):
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    named = lambda name: {"type": "function", "function": {"name": name}}
    for choice, offered in (("required", tools), (named("f"), tools), (named("g"), tools), ("required", None), ("other", tools), (7, tools)):
        answer = fake.chat("What is your name?", tool_choice=choice, tools=offered)
        assert answer.status_code == 400 and answer.json()["error"]["param"] == "tool_choice"
    assert "not in tools" in fake.chat("x", tool_choice=named("g"), tools=tools).json()["error"]["message"]
    for choice in ("auto", "none", None):
        assert fake.chat("x", tool_choice=choice, tools=tools).status_code == 200
    offered = fake.prompt_of(messages=[user("x")], tools=tools)
    assert "tool f" in offered
    assert "tool f" not in fake.prompt_of(messages=[user("x")], tools=tools, tool_choice="none")


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


TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}}]


def call_text(city, days=None):
    extra = f"<parameter=days>\n{days}\n</parameter>\n" if days is not None else ""
    return f"<tool_call>\n<function=get_weather>\n<parameter=city>\n{city}\n</parameter>\n{extra}</function>\n</tool_call>"


def streamed_calls(events):
    """Content, the calls put together by index, and the finish reasons."""
    content, calls, reasons = "", {}, []
    for choice in (choice for event in events if event != "[DONE]" for choice in event["choices"]):
        content += choice["delta"].get("content") or ""
        if choice["finish_reason"]:
            reasons.append(choice["finish_reason"])
        for delta in choice["delta"].get("tool_calls", []):
            call = calls.setdefault(delta["index"], {"arguments": ""})
            if "id" in delta:
                assert "id" not in call and delta["type"] == "function" and delta["function"]["name"]
                call.update(id=delta["id"], name=delta["function"]["name"])
            call["arguments"] += delta["function"]["arguments"]
    return content, [calls[index] for index in sorted(calls)], reasons


def test_B097_tool_calls_have_ids_of_their_own(fake):
    say = script(say="Let me look.\n" + call_text("Oslo", 3) + "\n" + call_text("Rome"))
    seen = set()
    for _ in range(2):
        content, calls, reasons = streamed_calls(fake.chat_events(say, tools=TOOLS))
        assert content.strip() == "Let me look." and reasons == ["tool_calls"]
        assert [(call["name"], json.loads(call["arguments"])) for call in calls] == [
            ("get_weather", {"city": "Oslo", "days": 3}), ("get_weather", {"city": "Rome"})]
        seen |= {call["id"] for call in calls}
    assert len(seen) == 4
    choice = fake.chat(say, tools=TOOLS).json()["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert [json.loads(call["function"]["arguments"]) for call in choice["message"]["tool_calls"]] == [{"city": "Oslo", "days": 3}, {"city": "Rome"}]


def test_client_reads_a_tool_call_without_content(fake):
    message = fake.client.chat.completions.create(
        model="fake", tools=TOOLS, messages=[user(script(say=call_text("Oslo")))]).choices[0].message
    assert message.content is None
    assert message.tool_calls[0].function.name == "get_weather" and message.tool_calls[0].id.startswith("call_")


def test_B083_call_inside_the_thinking_is_found(fake):
    say = script(say="Need the weather.\n" + call_text("Oslo"))
    thinking = {"chat_template_kwargs": {"enable_thinking": True}}
    message = fake.chat(say, tools=TOOLS, **thinking).json()["choices"][0]
    assert message["message"]["reasoning_content"] == "Need the weather." and message["finish_reason"] == "tool_calls"
    assert json.loads(message["message"]["tool_calls"][0]["function"]["arguments"]) == {"city": "Oslo"}
    _, calls, reasons = streamed_calls(fake.chat_events(say, tools=TOOLS, **thinking))
    assert len(calls) == 1 and reasons == ["tool_calls"]


def test_B093_call_cut_by_the_limit_is_not_called_complete(fake):
    text = call_text("x" * 40)
    for limit in range(1, len(text) + 1, 7):
        whole = fake.chat(script(say=text), tools=TOOLS, max_tokens=limit).json()["choices"][0]
        _, _, reasons = streamed_calls(fake.chat_events(script(say=text), tools=TOOLS, max_tokens=limit))
        assert whole["finish_reason"] == "length" and reasons == ["length"]


def test_B095_marks_are_text_when_nothing_is_called(fake):
    text = "The literal text <tool_call> marks a call."
    for tools in (None, TOOLS):
        assert fake.chat(script(say=text), tools=tools).json()["choices"][0]["message"]["content"] == text
        assert streamed_calls(fake.chat_events(script(say=text), tools=tools))[0] == text


def test_B098_arguments_come_while_they_are_written(fake):
    _, calls, _ = streamed_calls(events := fake.chat_events(script(say=call_text("word " * 100), delay_ms=1), tools=TOOLS, max_tokens=2000))
    deltas = [d for e in events if e != "[DONE]" for c in e["choices"] for d in c["delta"].get("tool_calls", [])]
    assert len(deltas) >= 20 and deltas[0]["function"]["name"] == "get_weather"
    assert json.loads(calls[0]["arguments"])["city"] == "word " * 100
