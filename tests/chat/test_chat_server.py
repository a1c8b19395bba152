"""`tandem chat --url` and servers that refuse, misbehave or keep their connections."""

import threading

import pytest
from pseudo_terminal import sent


def contents(terminal, tmp_path):
    return [message["content"] for message in sent(terminal, tmp_path)["messages"]]


def test_loading_a_folder_is_refused_and_the_conversation_stays(chat, scripted, tmp_path):
    t = chat("--url", scripted.base)
    t.say("hello", "An answer.")
    t.say(f"/load {tmp_path}", f"{tmp_path} is not a regular file but a folder")
    t.say(f"/load {tmp_path}/none", "is missing")
    assert contents(t, tmp_path) == ["hello", "An answer."]
    t.say("/save /dev/full", "cannot write /dev/full")
    t.quit()


def test_a_failed_retry_leaves_the_conversation_as_it_was(chat, scripted, tmp_path):
    t = chat("--url", scripted.base)
    t.say("first", "An answer.")
    t.say("second", "An answer.")
    before = contents(t, tmp_path)
    scripted.refuses(503, "busy now")
    t.say("/retry", "busy now")
    assert contents(t, tmp_path) == before

    def breaks_off(handler):
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(handler.event("Half an"))
        handler.close_connection = True

    scripted.reply = breaks_off
    t.say("/retry", "cut off")
    assert contents(t, tmp_path) == before
    scripted.says("Another one.")
    t.say("/retry", "Another one.")
    assert contents(t, tmp_path) == before[:3] + ["Another one."]
    t.quit()


EVIL = "no\x1b]0;title\x07\x1b[2J\u009b2Jway"


def assert_harmless(raw):
    for control in ("\x1b]", "\x07", "\x1b[2J", "\u009b"):
        assert control not in raw


def test_names_and_refusals_cannot_control_the_terminal(chat, scripted, tmp_path):
    scripted.model = EVIL
    t = chat("--url", scripted.base)
    t.expect("]0;title")
    scripted.refuses(400, EVIL)
    t.say("hello", "no]0;title")
    scripted.reply = lambda handler: handler.whole(500, EVIL.encode())
    t.say("hello", "answered 500: no]0;title")
    scripted.reply = lambda handler: handler.whole(200, b"data: " + EVIL.encode() + b"\n\n")
    t.say("hello", "no JSON object: no]0;title")
    system = tmp_path / "system.json"
    system.write_text('{"system": "no\\u001b]0;title\\u0007", "messages": []}')
    t.say(f"/load {system}", "0 messages loaded")
    t.say("/system", "System prompt: no]0;title")
    assert_harmless(t.raw)
    t.quit()


@pytest.mark.parametrize("end", ["done", "length"])
def test_the_end_of_an_answer_is_not_the_connections(chat, scripted, tmp_path, end):
    over = threading.Event()

    def keeps_the_connection(handler):
        body = handler.event("All of it.", "stop") + (b"data: [DONE]\n\n" if end == "done" else b"")
        handler.send_response(200)
        if end == "length":
            handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)
        handler.wfile.flush()
        over.wait(120)
        handler.close_connection = True

    scripted.reply = keeps_the_connection
    t = chat("--url", scripted.base)
    since = t.say("hello", "All of it.")
    assert contents(t, tmp_path) == ["hello", "All of it."]
    assert "tokens" not in t.text(since)  # the server counts none
    over.set()
    t.quit()


def test_a_body_shorter_than_its_length_is_an_error(chat, scripted, tmp_path):
    def breaks_off(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", "5000")
        handler.end_headers()
        handler.wfile.write(handler.event("Half", "stop"))
        handler.close_connection = True

    scripted.reply = breaks_off
    t = chat("--url", scripted.base)
    t.say("hello", "closed the connection in mid-answer")
    t.quit()


def test_thinking_off_is_told_to_the_server(chat, scripted):
    t = chat("--url", scripted.base)
    t.say("one", "An answer.")
    t.say("/settings thinking on", "thinking on")
    t.say("two", "An answer.")
    t.quit()
    assert [body["chat_template_kwargs"] for body in scripted.bodies] == [{"enable_thinking": False}, {"enable_thinking": True}]


def test_a_model_without_the_switch_is_asked_without_it(chat, scripted):
    def refuses_the_switch(handler):
        if "chat_template_kwargs" in scripted.bodies[-1]:
            handler.whole(400, {"error": {"message": "chat_template_kwargs.enable_thinking is not read by this model's chat template."}})
        else:
            handler.whole(200, handler.event("Without it.", "stop") + b"data: [DONE]\n\n")

    scripted.reply = refuses_the_switch
    t = chat("--url", scripted.base)
    t.say("one", "Without it.")
    t.say("/settings thinking on", "thinking on")
    t.say("two", "is not read by this model")
    t.quit()
