"""`tandem chat` at a pseudo-terminal and in a pipe: the editor's keys, commands, interruption, both kinds of model."""

import json
import os
import signal
import subprocess
import termios
import time

import pytest
from pseudo_terminal import TANDEM, sent
from servers import script


def test_answers_come_and_the_conversation_is_kept(chat, tmp_path):
    t = chat()
    t.say("hello " + script(say="Good morning."), "Good morning.")
    t.say("again " + script(say="Good evening."), "tokens")
    kept = sent(t, tmp_path)
    assert [m["role"] for m in kept["messages"]] == ["user", "assistant"] * 2
    assert [m["content"] for m in kept["messages"]][1::2] == ["Good morning.", "Good evening."]
    t.say("/reset", "anew")
    assert sent(t, tmp_path)["messages"] == []
    t.say("/system Be brief.", "System prompt: Be brief.")
    t.say(f"/load {tmp_path / 'chat.json'}", "0 messages loaded")
    t.quit()


def test_lines_are_edited_with_the_usual_keys(chat, tmp_path):
    t = chat()
    t.prompt()
    t.keys("wörld漢\x1b[D\x7f")           # left over 漢, backspace takes d
    t.keys("\x01hello \x05!")              # to the beginning, to the end
    t.keys("\x1b[1;5D\x1b[1;5Dmy \x05\r")  # two words back
    t.expect("tokens")
    assert sent(t, tmp_path)["messages"][0]["content"] == "my hello wörl漢!"
    t.quit()


def test_a_message_may_have_several_lines(chat, tmp_path):
    t = chat()
    t.prompt()
    t.keys("one\x1b\rtwo\x0athree\\\rfour\x1b[200~\r\nfi\tve\x1b[31m\x1b[201~\r")
    t.expect("tokens")
    assert sent(t, tmp_path)["messages"][0]["content"] == "one\ntwo\nthree\nfour\nfi\tve[31m"
    t.quit()


def test_earlier_messages_are_leafed_through(chat, tmp_path):
    t = chat()
    t.say("first", "tokens")
    t.say("second", "tokens")
    t.prompt().keys("draft\x1b[A\x1b[A\x1b[B\x1b[A!\r")
    time.sleep(0.1)
    t.prompt()
    assert [m["content"] for m in sent(t, tmp_path)["messages"]][::2] == ["first", "second", "first!"]
    t.quit()


def test_ctrl_c_stops_the_answer_and_not_the_program(chat, tmp_path, fake):
    t = chat()
    t.prompt()
    t.keys("slow " + script(say="word " * 500, delay_ms=20) + "\r")
    t.expect("\nword word")  # the answer, not the echo of the message
    t.keys("\x03")
    t.expect("(stopped)")
    fake.wait_for("vllm:num_requests_running", 0)
    t.prompt().keys("half a line\x03")       # on a line: empties it
    t.say("next " + script(say="Still here."), "Still here.")
    kept = sent(t, tmp_path)["messages"]
    assert [m["role"] for m in kept] == ["user", "assistant"] * 2 and kept[2]["content"].startswith("next")
    t.prompt().keys("\x03")
    t.expect("Ctrl-D or /quit ends").prompt().keys("\x04")
    while t.process.poll() is None:
        t.read(0.1)
    assert t.process.wait(10) == 0


def answering(chat, words, delay_ms):
    """A terminal in mid-answer, and how much it had shown when the question was typed."""
    t = chat()
    t.prompt()
    since = len(t.raw)
    t.keys("slow " + script(say="word " * words, delay_ms=delay_ms) + "\r")
    t.expect("\nword word", since)  # the answer, not the echo of the message
    return t, since


def test_keys_typed_while_an_answer_comes_are_the_next_message(chat, tmp_path):
    """They are not shown among the answer's words, and editing keys do what they do at the prompt."""
    t, since = answering(chat, words=40, delay_ms=2)
    t.keys("sceond\x1b[D\x1b[D\x1b[D\x7f\x7fec\x05 m\u00e9ssage漢\rthird\x1b[200~ pa\rsted\x1b[201~")
    t.expect("tokens", since)
    answer = t.text(since).split("@@")[-1]
    assert "word " * 40 in answer, answer
    t.expect("third pa", since).keys("!\r")
    t.prompt()
    contents = [m["content"] for m in sent(t, tmp_path)["messages"]]
    assert len(contents) == 6 and contents[2] == "second m\u00e9ssage漢" and contents[4] == "third pa\nsted!"
    t.quit()


def test_keys_typed_before_ctrl_c_stops_an_answer_are_kept(chat, fake):
    t, since = answering(chat, words=500, delay_ms=20)
    t.keys("kept")
    fake.wait_for("vllm:num_requests_running", 1)
    t.keys("\x03")
    t.expect("(stopped)", since).expect("> kept", since)
    assert "kept" not in t.text(since).split("(stopped)")[0]
    t.keys("\x15")
    t.quit()


@pytest.mark.parametrize("environment, up", [({}, "\x1b[1A"), ({"XTERM_VERSION": "XTerm(379)"}, "")], ids=["wraps", "cuts"])
def test_another_size_draws_the_message_anew(chat, scripted, tmp_path, environment, up):
    """Beginning at its first row, where the terminal has it now: a narrower one wraps what was there, xterm cuts it off."""
    t = chat("--url", scripted.base, columns=100, environment=environment)
    t.prompt().keys("0123456789" * 6)
    t.expect("0123456789" * 6)
    while t.read(0.1):
        pass
    since = len(t.raw)
    t.resize(40)
    rows = ["> " + ("0123456789" * 4)[:38], "  " + ("0123456789" * 6)[38:]]
    t.expect("\n".join(rows), since)
    assert t.raw[since:].startswith("\x1b[?25l\r" + up + "\x1b[J"), t.raw[since:]
    since = len(t.raw)
    t.resize(100)
    t.expect("> " + "0123456789" * 6, since)
    assert t.raw[since:].startswith("\x1b[?25l\r\x1b[1A\x1b[J"), t.raw[since:]
    t.keys("!\r")
    t.expect("An answer.", since)
    assert sent(t, tmp_path)["messages"][0]["content"] == "0123456789" * 6 + "!"
    t.quit()


def test_another_size_during_an_answer_interrupts_nothing(chat, tmp_path):
    t, since = answering(chat, words=40, delay_ms=2)
    for columns in (60, 30, 90):
        t.resize(columns)
    t.expect("tokens", since)
    assert sent(t, tmp_path)["messages"][1]["content"] == "word " * 40
    t.quit()


@pytest.mark.parametrize("where", ["at the prompt", "in an answer"])
def test_ctrl_z_gives_the_shell_its_terminal_and_goes_on(chat, fake, tmp_path, where):
    t = chat("--url", fake.base, under_a_shell=True)
    t.prompt()
    since = len(t.raw)
    if where == "in an answer":
        t.keys("slow " + script(say="word " * 40, delay_ms=10) + "\r")
        t.expect("\nword word", since)
    else:
        t.keys("half a message")
        t.expect("half a message", since)
    t.keys("\x1a")
    t.wait_until_stopped()
    assert termios.tcgetattr(t.slave) == t.before
    assert t.raw.rindex("\x1b[?2004l") > t.raw.rindex("\x1b[?2004h")
    stopped_at = len(t.raw)
    os.kill(t.pid, signal.SIGCONT)  # as the shell's `fg`
    if where == "at the prompt":
        t.expect("> half a message", stopped_at)
        assert t.text(stopped_at).count("half a message") == 1
        t.keys(" " + script(say="word " * 40) + "\r")
    t.expect("tokens", since)
    assert sent(t, tmp_path)["messages"][1]["content"] == "word " * 40
    t.quit()


def test_settings_are_checked_and_used(chat):
    t = chat()
    since = t.say("/settings temperature 9", "from 0 to 2")
    t.say("/settings nothing 1", "there are thinking")
    t.say("/settings max_tokens 4", "max_tokens 4")
    t.say("x " + script(say="abcdefgh"), "cut by the limit")
    assert "abcd" in t.text(since) and "abcde" not in t.text(since).split("x @@")[-1].split("@@\n")[-1]
    t.say("/settings max_tokens default", "max_tokens default")
    t.say("/retry", "abcdefgh")
    t.say("/settings", "temperature default")
    t.say("/nope", "There is no /nope")
    t.say("/help", "/retry")
    t.quit()


def test_thinking_is_shown_apart(chat, tmp_path):
    t = chat()
    t.say("/settings thinking on", "thinking on")
    t.say("x " + script(say="a thought</think>\n\nan answer"), "an answer")
    assert sent(t, tmp_path)["messages"][1]["content"] == "an answer"
    t.quit()


def test_an_answer_cannot_control_the_terminal(chat):
    t = chat()
    since = t.say("x " + script(say="red\x1b[31m bell\x07 title\x1b]0;x\x07 c1\u009b2J end."), "end.")
    answer = t.raw[since:].split("@@")[-1]
    assert "\x07" not in answer and "\x1b[31m" not in answer and "\x1b]" not in answer and "\u009b" not in answer
    t.quit()


def test_refusals_are_told_and_the_question_is_taken_back(chat, tmp_path):
    t = chat()
    t.say("x " + script(say="nothing", fail_after=0), "fail")
    assert sent(t, tmp_path)["messages"] == []
    t.quit()


@pytest.mark.parametrize("typed, content", [
    (b"caf\xe9\r", "caf\ufffd"),                          # a Latin-1 terminal
    (b"x\xff\xf5\xc0y\r", "x\ufffd\ufffd\ufffdy"),        # bytes that begin nothing
    (b"gone\xf0\x03kept\r", "kept"),                      # Ctrl-C behind a broken character
    (b"ab\xe6\xbc\x1b[D\x1b[DX\r", "aXb\ufffd"),          # an arrow behind one
])
def test_a_stray_byte_takes_no_key_with_it(chat, scripted, tmp_path, typed, content):
    t = chat("--url", scripted.base)
    t.prompt().keys(typed)
    t.expect("An answer.")
    assert sent(t, tmp_path)["messages"][0]["content"] == content
    t.quit()


def test_a_message_taller_than_the_terminal_is_drawn_once(chat, scripted, tmp_path):
    t = chat("--url", scripted.base, columns=80, rows=24)
    text = "\n".join(f"line{i:02}" for i in range(40))
    t.prompt().keys("\x1b[200~" + text + "\x1b[201~")
    t.expect("line39")
    for key in "xyz":
        since = len(t.raw)
        t.keys(key)
        t.expect("line39" + "xyz"[:"xyz".index(key) + 1], since)
    assert "line16" not in t.raw and "line17" in t.raw  # 23 lines: what stays on the screen
    since = len(t.raw)
    t.keys("\x1b[A" * 39)
    t.expect("line00", since)
    t.keys("\r")
    t.expect("An answer.", since)
    assert sent(t, tmp_path)["messages"][0]["content"] == text + "xyz"
    t.quit()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_at_the_prompt_leaves_the_terminal_as_it_was(chat, number):
    t = chat()
    t.prompt().keys("half a message")
    t.expect("half a message")
    assert termios.tcgetattr(t.slave) != t.before
    os.kill(t.process.pid, number)
    assert t.process.wait(20) == -number
    while t.read(0.2):
        pass
    assert termios.tcgetattr(t.slave) == t.before
    assert t.raw.rindex("\x1b[?2004l") > t.raw.rindex("\x1b[?2004h")


@pytest.mark.parametrize("columns", [20, 40])
def test_a_narrow_terminal_wraps(chat, tmp_path, columns):
    t = chat(columns=columns)
    t.prompt().keys("words " * 20 + "漢字" * 10 + "\x01X\r")
    t.expect("tokens")
    assert sent(t, tmp_path)["messages"][0]["content"] == "X" + "words " * 20 + "漢字" * 10
    t.quit()


def test_the_bundled_model_answers_in_process(chat):
    t = chat("--device", "cpu", "--temperature", "0")
    t.expect("tandem-tiny")
    t.say("What is 17 + 25?", "42")
    t.prompt().keys("Tell me a very long story.\r")
    t.keys("\x03")  # before, in or behind the answer: the program goes on
    t.say("What is 2 + 3?", "tokens")
    t.quit()


def piped(text, *arguments):
    done = subprocess.run([TANDEM, "chat", *arguments], input=text, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


def test_without_a_terminal_lines_are_messages_and_answers_are_plain(fake):
    status, out, _ = piped("one " + script(say="First.") + "\ntwo \\\n" + script(say="Second.") + "\n", "--url", fake.base + "/v1/")
    assert (status, out) == (0, "First.\nSecond.\n")
    assert piped("What is 17 + 25?\n", "--device", "cpu", "--temperature", "0")[:2] == (0, "17 + 25 = 42.\n")


@pytest.mark.parametrize("url, words", [("https://example.org", "http://HOST"), ("http://", "http://HOST"), ("http://127.0.0.1:1", "cannot connect")])
def test_servers_that_cannot_be_are_refused_by_name(url, words):
    status, _, err = piped("x\n", "--url", url)
    assert status == 1 and words in err


def test_a_failed_answer_in_a_pipe_is_a_failed_run(fake):
    status, out, err = piped("x " + script(say="no", fail_after=0) + "\n", "--url", fake.base)
    assert status == 1 and out == "" and err
