"""Messages and their settings: what becomes a prompt, and what is refused."""

import pytest

from conftest import FOX, script, user


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
