"""Conversations, tools and switches that chat templates are rendered with, and random templates."""

import random
import re

ODD_TEXTS = [
    "", " ", "\n\n", "  hi  ", "\tx\t\n", "Grüße, 世界 👋🏽 — “сегодня”", "<b>&amp;</b> \"quoted\" 'single'",
    "back\\slash \\n not a newline", "</think> alone", "<think>a</think>b", "<think>\nA\n</think>\n\nB</think>C",
    "x</think>\n\n\ny", "line1\r\nline2\rline3", "{{ not a template }} {% raw %}", "\u00a0\u2003wide\u3000 ",
    "<tool_response>\nx\n</tool_response>", "<tool_response>open", "/think", "be /no_think please", "e\u0301\u200dz\x7f\x01",
    "a" * 300, "<|im_end|>\n<|im_start|>user", "[INST]", "None", "0",
]

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string", "description": "The città\n"},
              "days": {"type": "integer", "default": 3}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "查询天气 — “сегодня” <&>", "parameters": PARAMETERS}}
NESTED = {"type": "function", "function": {"name": "nested", "description": "Deep.", "strict": True, "return": {"type": "string", "description": "r"},
          "parameters": {"type": "object", "properties": {
              "a": {"type": "object", "description": " d ", "properties": {"b": {"type": "array", "items": {"type": "string"}, "nullable": True}, "c": {"type": ["string", "null"]}}, "required": ["b"], "additionalProperties": {"type": "number"}},
              "n": {"type": "number", "minimum": 0.5, "maximum": 1e20, "big": 123456789012345678901234567890, "exclusive": False, "x": None, "description": "n"},
              "e": {"type": "string", "enum": ["x", "y'z", "\"q\""], "default": "x", "description": "e"},
              "o": {"oneOf": [{"type": "string", "description": "s", "default": "q"}, {"type": "integer"}], "default": "1", "description": ""},
              "u": {"oneOf": [{"type": "object"}, {"type": "array", "items": {"type": "object"}}], "description": "u"},
              "t": {"type": ["object", "object"], "description": "t"},
              "l": {"type": "array", "items": {"type": "array", "items": {"type": "boolean"}}, "description": "l"},
              "z": {"description": "no type"}}, "required": ["a", "n"], "$defs": {}}}}
EMPTY = {"type": "function", "function": {"name": "ping", "description": "", "parameters": {"type": "object", "properties": {}}}}
BARE = {"name": "bare", "description": "No wrapper", "parameters": PARAMETERS}
TOOL_SETS = [None, None, [], [WEATHER], [WEATHER, NESTED], [NESTED, EMPTY], [BARE], [EMPTY, BARE, WEATHER]]


def call(arguments, name="get_weather", call_id="c12345678", wrapped=True, **extra):
    function = {"name": name, "arguments": arguments, **extra}
    return {"id": call_id, "type": "function", "function": function} if wrapped else function


ARGUMENTS = [
    {}, {"city": "Oslo"}, {"city": "Oslo", "days": 3, "tags": ["a", "é"], "deep": {"k": [1, 2.5, None, True]}},
    {"yes": True, "no": False, "nothing": None, "one": 1.0, "big": 2**70, "small": 1e-7, "negative": -0.0, "text": "a\n<b>"},
    "{\"city\": \"Oslo\"}", None, [1], "",
]


def text_parts(*texts):
    return [{"type": "text", "text": t} for t in texts]


def contents(rng):
    odd = rng.choice(ODD_TEXTS)
    return rng.choice([odd, odd, odd, "Hello", "Hello", text_parts(odd), text_parts("Say ", odd), [], None,
                       [{"type": "image"}], [{"type": "image_url", "image_url": {"url": "u"}}], [{"type": "video"}, {"type": "text", "text": "v"}],
                       [{"type": "foo"}], ["plain", {"text": "t"}], {"temp": 4}, 42, True, 1.5])


def message(role, content, **extra):
    return {"role": role, "content": content, **extra}


def fixed_conversations():
    u, a, s = (lambda c: message("user", c)), (lambda c, **k: message("assistant", c, **k)), (lambda c: message("system", c))
    t = lambda c, **k: message("tool", c, tool_call_id="c12345678", **k)
    one = [call(ARGUMENTS[2])]
    return [
        [], [u("hi")], [s("Be brief."), u("hi")], [s(""), u("hi")], [s("S")], [a("only")], [t("only")],
        [u("1"), a("2"), u("3")], [s("S"), u("1"), a("2"), u("3"), a("4"), u("5")],
        [u("a"), u("b")], [u("hi"), a("hello"), s("late"), u("ok?")], [message("developer", "D"), u("hi")], [message("other", "x")],
        [u("q"), a("", tool_calls=one), t("rain")], [u("q"), a(None, tool_calls=one), t("rain"), a("It rains.")],
        [u("q"), {"role": "assistant", "tool_calls": one}, t("rain"), t("sun"), a("Both."), u("thanks")],
        [u("q"), a("Let me see.", tool_calls=one + [call(ARGUMENTS[3], "other")]), t("1"), t("2")],
        [u("q"), a("x", tool_calls=one, reasoning_content="think 1"), t("1"), a("y", tool_calls=one, reasoning_content="think 2"), t("2"), a("z", reasoning_content="think 3")],
        [u("q"), a("answer", reasoning_content="because\n"), u("more"), a("<think>\nwhy\n</think>\n\nso"), u("end")],
        [u("q"), a("ans", thinking="hm"), u("r"), a("b", thinking="hm2")], [u("q"), a("", thinking="t", tool_calls=one), t("r"), a("final")],
        [u("q"), a("c", thinking="t", tool_calls=one)], [u("q"), a("", tool_calls=[])], [u("q"), a("", tool_calls=[call({"a": 1}, wrapped=False)])],
        [u("q"), a("pre", prefix=True)], [u("q"), a("", tool_calls=one), t({"temp": 4})], [u("q"), a("", tool_calls=one), t(["a", "b"])],
        [u("q"), a("", tool_calls=one), t({"content": "inner"})], [u("q"), a("", tool_calls=one), t([{"output": "o"}, "p"])],
        [u(text_parts("Say ", "hello"))], [u([{"type": "image"}])], [s([{"type": "image"}]), u("x")], [u("<tool_response>\nx\n</tool_response>")],
        [u("q"), a("<|channel|>final<|message|>x")], [{"role": "user"}], [{"content": "no role"}],
    ]


def random_conversation(rng):
    out = []
    if rng.random() < 0.5:
        out.append(message(rng.choice(["system", "system", "system", "developer"]), contents(rng)))
    for _ in range(rng.randint(1, 5)):
        out.append(message("user", contents(rng)))
        if rng.random() < 0.8:
            turn = message("assistant", contents(rng))
            if rng.random() < 0.4:
                turn["reasoning_content"] = rng.choice(ODD_TEXTS + [None])
            if rng.random() < 0.2:
                turn["thinking"] = rng.choice(ODD_TEXTS)
            if rng.random() < 0.4:
                turn["tool_calls"] = [call(rng.choice(ARGUMENTS), wrapped=rng.random() < 0.8) for _ in range(rng.randint(0, 2))]
            out.append(turn)
            for _ in range(rng.choice([0, 0, 1, 1, 2])):
                out.append(message("tool", contents(rng), **({"tool_call_id": "c12345678"} if rng.random() < 0.7 else {})))
        if rng.random() < 0.1:
            out.append(message("system", "late"))
    return out


SWITCHES = [
    {}, {"enable_thinking": True}, {"enable_thinking": False}, {"enable_thinking": None}, {"thinking": True}, {"add_vision_id": True},
    {"reasoning_effort": "high", "builtin_tools": ["browser", "python"]}, {"builtin_tools": ["code_interpreter", "get_weather"]},
    {"tools_in_user_message": False}, {"date_string": "1 Jan 2025", "custom_tools": [WEATHER]}, {"model_identity": "M"},
]


PIECES = re.compile(r"\{%[-+]?|[-+]?%\}|\{\{-?|-?\}\}|\{#-?|-?#\}|\w+|\s+|.", re.S)
SPLICES = ["{%", "%}", "{{", "}}", "-%}", "{%-", "(", ")", "[", "]", ".", "|", ",", "'", "if", "else", "not", "is", "in", "none", "0", "1", "loop",
           "content", "message", "trim", "tojson", " ", "\n", "+", "~", "==", "set", "endif", "{% if true %}", "{% endif %}", "{{ loop.index }}"]


def damaged(rng, source):
    """The template with a few of its pieces dropped, doubled, exchanged or replaced."""
    pieces = PIECES.findall(source)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        i = rng.randrange(len(pieces))
        kind = rng.randrange(5)
        if kind == 0:
            del pieces[i]
        elif kind == 1:
            pieces.insert(i, pieces[i])
        elif kind == 2:
            j = rng.randrange(len(pieces))
            pieces[i], pieces[j] = pieces[j], pieces[i]
        elif kind == 3:
            pieces[i] = rng.choice(SPLICES)
        else:
            pieces[i] = pieces[rng.randrange(len(pieces))]
    return "".join(pieces)


def damaged_cases(rng):
    """A few conversations that most branches of a template see something of."""
    fixed = fixed_conversations()
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    some = [fixed[8], fixed[15], fixed[17]] + [random_conversation(rng)]
    return [{"messages": m, "tools": rng.choice(TOOL_SETS), "add_generation_prompt": rng.random() < 0.5, **tokens, **rng.choice(SWITCHES)} for m in some]


def renderings(seed, rounds):
    """(variables) for one template: every fixed conversation a few times, then random ones."""
    rng = random.Random(seed)
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    cases = []
    for conversation in fixed_conversations():
        for prompt in (True, False):
            for switches in SWITCHES[:3]:
                for tools in (None, [WEATHER]):
                    cases.append({"messages": conversation, "tools": tools, "add_generation_prompt": prompt, **tokens, **switches})
    for _ in range(rounds):
        case = {"messages": random_conversation(rng), "tools": rng.choice(TOOL_SETS), "documents": None,
                "add_generation_prompt": rng.random() < 0.5, **rng.choice(SWITCHES)}
        if rng.random() < 0.9:
            case.update(tokens)
        if rng.random() < 0.1:
            del case["tools"]
        cases.append(case)
    return cases
