"""The chat page in headless Chromium, with the fake engine behind it: what it says is what the message tells it to.

TANDEM_SCREENSHOTS=folder makes the pictures of docs/images, with the bundled model.
"""

import concurrent.futures
import json
import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cases"))
from servers import fake, script, start_fake, tandem  # noqa: E402, F401

from browser import Browser, find  # noqa: E402


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    assert find(), "no Chromium: scripts/setup.sh --test installs it (or set TANDEM_CHROMIUM)"
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.end()


def opened(browser, server, **size):
    tab = browser.open(server.base + "/", **size)
    tab.js("(document.getElementById('max_tokens').value = 9000, save())")
    return tab


@pytest.fixture
def tab(browser, fake):
    tab = opened(browser, fake)
    yield tab
    assert not tab.problems(), tab.problems()
    tab.close()


LAST = "[...document.querySelectorAll('.turn.assistant')].pop()"
BODY = LAST + ".querySelector('.body:not(.plain-text)')"


def titles(tab):
    return tab.js("[...document.querySelectorAll('.chat')].map(b => b.textContent)")


def test_a_message_is_answered_and_told(tab):
    tab.send("hello " + script(say="It is a fine day."))
    assert tab.js(BODY + ".textContent") == "It is a fine day."
    assert "The answer: It is a fine day." in tab.js("document.getElementById('status').textContent")
    assert "tokens" in tab.js(LAST + ".querySelector('.foot').textContent")
    assert tab.js("document.activeElement.id") == "input"


HOSTILE = """<img src=x onerror="window.hit=1"><script>window.hit=2</script> <b>bold?</b>

[click](javascript:window.hit=3) ![pic](https://example.org/x.png) [data](data:text/html,hi)

```html"><script>window.hit=4</script>
<iframe src="javascript:window.hit=5"></iframe>
```

| <svg onload=window.hit=6> | `<i>` |
|---|---|
| <a href=x>y</a> | **<u>z</u>** |

- <style>*{display:none}</style>
> <form action=x>

[a" onmouseover="window.hit=7](https://example.org/" onclick="window.hit=8)"""


def test_nothing_that_a_model_says_becomes_html(tab):
    tab.send("x " + script(say=HOSTILE))
    tab.js(f"for (const e of {BODY}.querySelectorAll('*')) {{ e.dispatchEvent(new Event('mouseover')); e.dispatchEvent(new Event('error')); }}")
    assert tab.js("window.hit === undefined")
    assert tab.js(f"{BODY}.querySelectorAll('img, script, iframe, svg, style, form, b, u, i, object, embed').length") == 0
    attributes = tab.js(f"[...new Set([...{BODY}.querySelectorAll('*')].flatMap(e => e.getAttributeNames()))].sort()")
    assert set(attributes) <= {"class", "href", "target", "rel", "tabindex", "aria-label", "type", "data-copy", "scope"}, attributes
    hrefs = tab.js(f"[...{BODY}.querySelectorAll('a')].map(a => a.protocol)")
    assert set(hrefs) <= {"https:"}
    assert "<img src=x onerror=" in tab.js(BODY + ".textContent")


MARKDOWN = """# Title

Some **bold**, *slanted*, ~~gone~~ and `co<de` with snake_case_name and 2 * 3 * 4.

1. one
   - inner
   - more
2. two

> quoted **text**

| a | b |
|:--|--:|
| 1 | x or y |

```python
def f(x):  # doubles
    return "2" * x
```

See https://example.org/page. And [here](https://example.org/a).

---
end"""


def test_markdown_becomes_its_elements(tab):
    tab.send("x " + script(say=MARKDOWN))
    count = lambda selector: tab.js(f"{BODY}.querySelectorAll({json.dumps(selector)}).length")
    text = lambda selector: tab.js(f"{BODY}.querySelector({json.dumps(selector)})?.textContent")
    assert text("h3") == "Title" and text("strong") == "bold" and text("em") == "slanted" and text("del") == "gone"
    assert text("p code") == "co<de" and "snake_case_name and 2 * 3 * 4" in text("p")
    assert count("ol > li") == 2 and count("ol > li ul > li") == 2 and text("blockquote strong") == "text"
    assert count("th") == 2 and text("td") == "1" and count("hr") == 1
    assert text("pre code") == 'def f(x):  # doubles\n    return "2" * x' and text(".code-bar span") == "python"
    assert text(".c-comment") == "# doubles" and text(".c-string") == '"2"'
    assert tab.js(f"[...{BODY}.querySelectorAll('a')].map(a => a.href)") == ["https://example.org/page", "https://example.org/a"]


@pytest.mark.parametrize("text", ["*" * 5000, "[" * 5000, "`" * 3001, "> " * 3000, "- " * 3000 + "x", "|" * 5000, "**a" * 2000, "_ a_" * 2000,
                                  "```\nnever closed", "[a](" * 2000, "1. x\n" * 3000])
def test_markdown_of_any_shape_is_quick_and_keeps_its_letters(tab, text):
    seconds = tab.js(f"(() => {{ const t = document.createElement('div'); const b = performance.now(); render(t, {json.dumps(text)}); "
                     "window.made = t.textContent.length; return (performance.now() - b) / 1000; })()")
    assert seconds < 3, seconds
    assert tab.js("window.made") >= 0


def test_chats_are_kept_renamed_and_deleted(tab, fake):
    tab.send("first chat " + script(say="one"))
    tab.click("#new")
    assert tab.js("document.querySelectorAll('.turn').length") == 0
    tab.send("second chat " + script(say="two"))
    assert [title[:6] for title in titles(tab)] == ["second", "first "]
    tab.go(fake.base + "/")  # reloaded: the open chat is there again
    assert tab.js(BODY + ".textContent") == "two"
    tab.click(".chat", 1)
    assert tab.js(BODY + ".textContent") == "one"
    tab.click("#chat-list li:nth-child(2) .small")
    tab.js("document.querySelector('.rename').value = 'Renamed <b>'")
    tab.press("Enter")
    tab.until("document.querySelectorAll('.chat')[1].textContent === 'Renamed <b>'")
    tab.click("#chat-list li:nth-child(1) .small", 1)
    assert len(titles(tab)) == 2  # asked first
    tab.click("#chat-list li:nth-child(1) .small", 1)
    assert titles(tab) == ["Renamed <b>"]
    tab.go(fake.base + "/")
    assert titles(tab) == ["Renamed <b>"] and tab.js(BODY + ".textContent") == "one"
    assert tab.js("Object.keys(localStorage).filter(k => k.startsWith('tandem.chat.')).length") == 1


def test_two_tabs_keep_each_others_chats(tab, browser, fake):
    other = opened(browser, fake, beside=tab)
    tab.send("of the first tab " + script(say="one"))
    other.send("of the second tab " + script(say="two"))
    assert [title[:10] for title in titles(other)] == ["of the sec", "of the fir"]
    tab.until("document.querySelectorAll('.chat').length === 2")  # drawn without being asked
    tab.go(fake.base + "/")
    assert len(titles(tab)) == 2
    other.close()


def test_a_chat_that_does_not_fit_is_said_to_be_lost(tab):
    tab.js("localStorage.setItem('other', 'x'.repeat(5 * 1024 * 1024 - 3000))")
    tab.send("kept " + script(say="yes"))
    assert tab.js("document.getElementById('not-kept').offsetParent === null")
    tab.send("lost " + script(say="no " * 2000))
    assert tab.js("document.getElementById('not-kept').offsetParent !== null")
    tab.js("localStorage.removeItem('other')")
    tab.send("kept again " + script(say="yes"))
    assert tab.js("document.getElementById('not-kept').offsetParent === null")


def test_a_message_is_edited_and_an_answer_asked_for_again(tab):
    tab.send("one " + script(say="answer one"))
    tab.send("two " + script(say="answer two"))
    assert tab.js("document.querySelectorAll('.turn').length") == 4
    tab.click(".turn.user .foot button")
    tab.js("document.querySelector('.edit textarea').value = " + json.dumps("changed " + script(say="answer three")))
    tab.press("Enter")
    tab.until("document.querySelectorAll('.turn').length === 2 && document.getElementById('send').textContent === 'Send'")
    assert tab.js(BODY + ".textContent") == "answer three"
    tab.js(LAST + ".dataset.old = '1'")
    tab.js(f"[...{LAST}.querySelectorAll('.foot button')].find(b => b.textContent === 'Try again').click()")
    tab.until(f"!{LAST}.dataset.old && document.getElementById('send').textContent === 'Send'")
    assert tab.js(BODY + ".textContent") == "answer three" and tab.js("document.querySelectorAll('.turn').length") == 2
    assert tab.js("chats.current.messages.map(m => m.role).join()") == "user,assistant"


def test_keys_stop_edit_and_reach_everything(tab):
    tab.type("slow " + script(say="word " * 200, delay_ms=20))
    tab.press("Enter")
    tab.until(f"document.querySelector('.turn.assistant') && {BODY}.textContent.length > 5")
    tab.press("Escape")
    tab.until("document.getElementById('send').textContent === 'Send'")
    assert tab.js("document.getElementById('status').textContent") == "Stopped."
    assert "stopped" in tab.js(LAST + ".querySelector('.foot').textContent")
    tab.press("ArrowUp")  # in the empty message box: edits the last message
    assert tab.js("document.activeElement.getAttribute('aria-label')") == "Edit your message"
    tab.press("Escape")
    assert tab.js("document.activeElement.id") == "input"
    # Every control is reached by Tab and has a name.
    seen, names = set(), {}
    for _ in range(60):
        tab.press("Tab")
        here = tab.js("(e => e && e !== document.body ? [e.id || e.textContent || e.className, (e.getAttribute('aria-label') || e.labels?.[0]?.textContent || e.textContent || '').trim()] : null)(document.activeElement)")
        if here is None:  # past the end: the next one is the first again
            continue
        if here[0] in seen and len(seen) > 9:
            break
        seen.add(here[0])
        names[here[0]] = here[1]
    assert {"chats-toggle", "live-toggle", "theme", "open", "new", "input"} <= seen, seen
    assert all(names.values()), names


def test_probabilities_colour_the_answer(tab):
    tab.click("#open")
    tab.click("#colour")
    tab.press("Escape")
    tab.send("x " + script(say="naïve 🧂 salt"))
    assert tab.js(BODY + ".querySelector('.pieces').textContent") == "naïve 🧂 salt"
    assert tab.js(BODY + ".querySelectorAll('.pieces span').length") > 5
    tab.js(BODY + ".querySelector('.pieces span').focus()")
    assert "%" in tab.js(BODY + ".querySelector('.about').textContent")
    tab.press("ArrowRight")
    assert tab.js(f"document.activeElement === {BODY}.querySelectorAll('.pieces span')[1]")
    tab.click("#open")
    tab.click("#colour")
    tab.press("Escape")  # off: the same answer as text
    tab.until(f"!document.getElementById('settings').open && !{BODY}.querySelector('.pieces')")
    assert tab.js(BODY + ".textContent") == "naïve 🧂 salt"


def test_the_live_panel_shows_the_servers_numbers(tab):
    tab.click("#live-toggle")
    tab.until("document.querySelectorAll('.gauge').length === 8")
    tab.type("slow " + script(say="word " * 300, delay_ms=5))
    tab.press("Enter")
    tab.until("[...document.querySelectorAll('.gauge')].find(g => g.textContent.includes('Requests running')).querySelector('.number').textContent === '1'")
    tab.until("Number(document.querySelector('.gauge .number').textContent) > 0")  # tokens a second
    assert "of 64" in tab.js("[...document.querySelectorAll('.gauge')].find(g => g.textContent.includes('State slots')).textContent")
    tab.press("Escape")
    tab.until("document.getElementById('send').textContent === 'Send'")
    tab.press("Escape")
    assert tab.js("document.getElementById('live').hidden")


def test_failures_are_told_and_the_chat_goes_on(tab):
    tab.send("x " + script(say="some words come", fail_after=5))
    assert tab.js("!!document.querySelector('.turn [role=alert]')")
    tab.send("y " + script(say="well again"))
    assert tab.js(BODY + ".textContent") == "well again"


def test_leaving_a_chat_in_mid_answer_keeps_them_apart(tab):
    tab.type("slow " + script(say="old words " * 100, delay_ms=10))
    tab.press("Enter")
    tab.until(f"document.querySelector('.turn.assistant') && {BODY}.textContent.length > 5")
    tab.click("#new")
    tab.send("new " + script(say="new words"))
    assert tab.js(BODY + ".textContent") == "new words" and tab.js("document.querySelectorAll('.turn').length") == 2
    tab.click(".chat", 1)
    assert tab.js(BODY + ".textContent").startswith("old w")


def test_markup_says_what_is_what(tab):
    tab.send("x " + script(say="```c\nint x;\n```"))
    assert tab.js("[...document.querySelectorAll('button')].every(b => (b.textContent.trim() || b.getAttribute('aria-label')))")
    assert tab.js("[...document.querySelectorAll('input, textarea')].every(i => i.labels.length || i.getAttribute('aria-label'))")
    assert tab.js("document.documentElement.lang") == "en" and tab.js("document.querySelectorAll('main, nav, aside, header, footer').length") == 5
    ids = tab.js("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))


CONTRAST = """(() => {
  const light = c => { const [r, g, b] = c.match(/[\\d.]+/g).map(Number).map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const back = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (c !== 'rgba(0, 0, 0, 0)') return c; } return 'rgb(255, 255, 255)'; };
  const found = [];
  for (const e of document.querySelectorAll('button, p, dt, dd, h1, h2, span, code, .body, .foot, #name, #hint')) {
    if (!e.textContent.trim() || !e.offsetParent || e.closest('.sr') || e.disabled || getComputedStyle(e).opacity < 1) continue;
    const a = light(getComputedStyle(e).color), b = light(back(e));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) found.push([e.textContent.slice(0, 30), ratio]);
  }
  return found;
})()"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [(1200, 800), (390, 780)], ids=["desktop", "phone"])
def test_every_width_and_theme_shows_everything_readably(browser, fake, size, dark):
    tab = opened(browser, fake, width=size[0], height=size[1], dark=dark, touch=size[0] < 500)
    tab.send("x " + script(say=MARKDOWN + "\n\n" + "long" * 100 + "\n\n```\n" + "wide " * 60 + "\n```"))
    assert tab.js("document.documentElement.scrollWidth <= innerWidth && document.body.scrollWidth <= innerWidth")
    assert tab.js("document.documentElement.dataset.theme") == ("dark" if dark else "light")
    assert tab.js("(r => r.left >= 0 && r.right <= innerWidth && r.bottom <= innerHeight)(document.getElementById('send').getBoundingClientRect())")
    assert tab.js(CONTRAST) == []
    tab.click("#live-toggle")
    tab.until("document.querySelectorAll('.gauge').length === 8")
    assert tab.js("document.documentElement.scrollWidth <= innerWidth")
    assert tab.js("(r => r.width >= 270 && r.left >= 0 && r.right <= innerWidth)(document.getElementById('live').getBoundingClientRect())")
    tab.click("#live-close")
    if size[0] < 500:
        assert tab.js("document.getElementById('chats').hidden")
        tab.click("#chats-toggle")
        assert tab.js("document.getElementById('chats').getBoundingClientRect().width >= 270")
        tab.click(".chat")
        assert tab.js("document.getElementById('chats').hidden")  # a choice closes it
    assert not tab.problems(), tab.problems()
    tab.close()


@pytest.mark.skipif("TANDEM_SCREENSHOTS" not in os.environ, reason="makes pictures, tests nothing")
def test_screenshots(browser, fake, tandem):
    folder = pathlib.Path(os.environ["TANDEM_SCREENSHOTS"])
    tab = browser.open(tandem.base + "/", width=1200, height=760)
    tab.js("$('temperature').value = 0, save()")
    for question in ("What is the opposite of happy?", "What does the word lantern mean?"):
        tab.send(question)
        tab.click("#new")
    tab.send("What is 17 + 25?")
    tab.send("What does the word harbour mean?")
    tab.screenshot(folder / "chat-page.png")
    tab.click("#live-toggle")
    tab.js("($('colour').checked = true, $('temperature').value = 1, $('seed').value = 5, save())")
    with concurrent.futures.ThreadPoolExecutor(5) as pool:  # company, for the panel
        others = [pool.submit(tandem.complete, f"Once upon a time {i}", max_tokens=3000 + 500 * i, ignore_eos=True, seed=i) for i in range(5)]
        tab.send("What does the word candle mean?")
        tab.js("$('temperature').value = 1.4")
        tab.send("Tell me a story about winter.")
        tab.js("(e => e && e.focus())([...document.querySelectorAll('.pieces')].pop().querySelector('.p1, .p2, .p3, .p4'))")
        tab.until("panel.history.get('vllm:generation_tokens_total')?.length > 5")
        tab.screenshot(folder / "chat-page-live.png")
        assert all(other.result().status_code == 200 for other in others)
    tab.close()
    for name, dark in (("light", False), ("dark", True)):
        tab = opened(browser, fake, width=390, height=780, dark=dark, touch=True)
        tab.send("Show me some markdown. " + script(say=MARKDOWN))
        tab.js("document.querySelector('.turn.user .body').textContent = 'Show me some markdown.'")
        tab.js("document.getElementById('scroll').scrollTop = 0")
        tab.screenshot(folder / f"chat-page-phone-{name}.png")
        if dark:
            tab.click("#live-toggle")
            tab.until("document.querySelectorAll('.gauge').length === 8")
            tab.screenshot(folder / "chat-page-phone-live.png")
        tab.close()
