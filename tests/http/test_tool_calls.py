"""Tools: what is offered, and calls as they come out."""

import json

from conftest import script, user

TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}}]

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


# Beginnings of marks, but "<" and "</" alone: those may be the text's own and are passed on.
PIECES = [mark[:size] for mark in ("</think>", "<think>", "<tool_call>", "</tool_call>", "<function=", "</function>", "<parameter=", "</parameter>")
          for size in range(2, len(mark) + 1) if mark[:size] != "</"]


def shown(answer):
    """Content and reasoning, whole or of the events of a stream."""
    messages = ([choice["delta"] for event in answer if event != "[DONE]" for choice in event["choices"]] if isinstance(answer, list)
                else [answer.json()["choices"][0]["message"]])
    return tuple("".join(message.get(name) or "" for message in messages) for name in ("content", "reasoning_content"))


def test_B099_no_ending_shows_a_piece_of_a_mark(fake):
    """By the limit after every character of an answer, by a stop string behind every character, by the end token behind every one."""
    text = "I think a < b.\n</think>\n\nSo:\n" + call_text("Oslo", 3)
    fields = {"tools": TOOLS, "chat_template_kwargs": {"enable_thinking": True}}
    for size in range(1, len(text) + 1):
        for say, limits in ((text, {"max_tokens": size}), (text[:size] + "Obs", {"stop": ["Obs"], "max_tokens": 1000}), (text[:size], {"max_tokens": 1000})):
            content, reasoning = shown(fake.chat_events(script(say=say), **fields, **limits))
            assert (content, reasoning) == shown(fake.chat(script(say=say), **fields, **limits)), (size, limits)
            assert not any(piece in part for part in (content, reasoning) for piece in PIECES), (size, limits, content, reasoning)
            assert "I think a < b.\n</".startswith(reasoning) and "So:\n<".startswith(content), (size, limits, content, reasoning)
