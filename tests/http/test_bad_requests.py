"""Every wrong value is a 400 that names its field, is small, and leaves the server well."""

import json
import time

import openai
import pytest

from conftest import script, within

BIG = 2**63

BAD_FIELDS = [
    ("temperature", [-0.1, 2.1, 1e300, "1", True, [], {}]),                       # B103
    ("repetition_penalty", [0, -1, "nan", True, 1e300]),                          # B103
    ("top_p", [-0.1, 1.0000001, 2, "0.5", False]),                                # B104
    ("min_p", [-0.1, 1.0000001, 2, "0.5", False]),                                # B104
    ("top_k", [-2, -5, 2.5, "3", True]),                                          # B106
    ("seed", [-2, 2**64, 1.5, "1", True, -BIG]),                                  # B108
    ("frequency_penalty", [-2.01, 2.01, "1", True]),                              # B112
    ("presence_penalty", [-2.01, 2.01, "1", True]),                               # B112
    ("logit_bias", [{"191222999": -100}, {"-1": 5}, {"abc": 5}, {"1.5": 5}, {"15": 1000}, {"15": None}, [], {"15": "1"},
                    {"15": True}, {" 15": 1}, {"15 ": 1}, {"": 1}, {"15": 1, "015": 2}, {str(i): 1 for i in range(5000)}]),  # B113
    ("stop", ["", [""], ["", "END"], [1], [None], 7, {"a": 1}, ["x"] * 10000, ["x" * 2000], True]),  # B056
    ("stop_token_ids", [[-1], [300], ["a"], [True], [1.0], 5, [1] * 1000]),
    ("max_tokens", [-1, 0, 1.5, "5", True, 2**31, BIG, []]),
    ("max_completion_tokens", [-1, 0, 1.5, "5", True]),
    ("min_tokens", [-1, 1.5, "5", True]),
    ("n", [0, -1, 17, 1.5, "1", True, 10**9]),
    ("stream", ["true", 1, 0, []]),
    ("ignore_eos", ["true", 1]),
    ("skip_special_tokens", [0, "no"]),
    ("include_stop_str_in_output", [1]),
    ("return_tokens_as_token_ids", [1]),
    ("response_format", [7, [], {"type": None}]),
    ("chat_template_kwargs", [7, [], "x"]),
    ("messages", [None, [], "hi", {}, 7, ["hi"], [None], [7], [[]]]),
    ("tools", ["x", {}, [7], [{}], [{"type": "function"}], [{"type": "x", "function": {"name": "f"}}], [{"type": "function", "function": {}}],
               [{"type": "function", "function": {"name": ""}}], [{"type": "function", "function": {"name": "a b"}}],
               [{"type": "function", "function": {"name": "f", "parameters": []}}], [{"type": "function", "function": {"name": "f", "strict": True}}],
               [{"type": "function", "function": {"name": "f"}, "extra": 1}]]),
    ("model", [7, [], True]),
    ("logprobs", ["yes", 1, 0]),
    ("continue_final_message", ["yes", True]),
    ("add_generation_prompt", ["yes"]),
]


@pytest.mark.parametrize("name, value", [(name, value) for name, values in BAD_FIELDS for value in values],
                         ids=lambda v: repr(v)[:40])
def test_wrong_values_are_400_and_name_the_field(fake, name, value):
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2, name: value}
    if name == "max_completion_tokens":
        del body["max_tokens"]
    answer = fake.post("/v1/chat/completions", body)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert error["param"].startswith(name)
    assert name in error["message"] or "model" in error["message"]
    assert len(answer.content) < 4096


@pytest.mark.parametrize(
    "body, words",
    [
        ('{"messages":[{"role":"user","content":"hi"}]} x', "more text follows after byte"),
        ('{"messages":[{"role":"user","content":"hi"}]}{}', "more text follows after byte"),
        ("", "empty"),
        (" \n", "empty"),
        ('{"messages":[{"role":"user","content":"hi"}],"max_tokens":1.0}', "an integer from 1 to 2147483647, got 1.0."),
        ('{"messages":[{"role":"user","content":"hi"}],"max_tokens":1e3}', "an integer from 1 to 2147483647, got 1000.0."),
        ('{"messages":[{"role":"user","content":"hi"}],"max_tokens":0}', "an integer from 1 to 2147483647, got 0."),
    ],
)
def test_messages_say_what_came(fake, body, words):
    answer = fake.http.post("/v1/chat/completions", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400 and words in answer.json()["error"]["message"], answer.text


def test_tokenize_takes_a_prompt_or_messages(fake):
    answer = fake.post("/tokenize", {"prompt": "x", "messages": [{"role": "user", "content": "hi"}]})
    assert answer.status_code == 400 and "send one of them" in answer.json()["error"]["message"], answer.text


def test_contradicting_limits_are_refused(fake):
    assert fake.chat("x", max_tokens=3, max_completion_tokens=4).status_code == 400
    assert fake.chat("x", max_tokens=3, max_completion_tokens=3).json()["usage"]["completion_tokens"] == 3
    assert fake.chat("x", max_tokens=3, min_tokens=4).status_code == 400


@pytest.mark.parametrize("fields", [{"top_k": k} for k in (9999999, 2**63, 301, 300, 1, 0, -1)] +
                         [{"seed": s} for s in (0, -1, 2**63 - 1, 2**64 - 1)] + [{"top_p": 0}, {"top_p": 1}, {"min_p": 0}, {"temperature": 0},
                          {"temperature": 1e-300}, {"logit_bias": {"15": 100}}, {"logit_bias": {}}, {"stop": []}, {"stop": ["a"] * 5}, {"stop_token_ids": []}])
def test_values_at_the_edges_work(fake, fields):
    assert fake.chat("x", max_tokens=2, **fields).status_code == 200


def raw(server, body, content_type="application/json"):
    if isinstance(body, str):
        body = body.encode()
    return server.http.post("/v1/chat/completions", content=body, headers={"Content-Type": content_type})


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "01", "+1", ".5", "1.", "0x10"])
def test_B103_numbers_that_are_no_json_or_not_finite(fake, number):
    for name in ("temperature", "top_p", "min_p", "repetition_penalty"):
        answer = raw(fake, '{"messages":[{"role":"user","content":"x"}],"%s":%s}' % (name, number))
        assert answer.status_code == 400 and answer.json()["error"]["message"]
    fake.check_idle()


@pytest.mark.parametrize("body", ["", "{", "[]", "7", "null", '"x"', "{}{}", '{"a":1}x', "{'a':1}", '{"a":1,}', '{"a" 1}', "\ufeff{}", "//c\n{}"])
def test_bodies_that_are_no_json_object(fake, body):
    answer = raw(fake, body)
    assert answer.status_code == 400 and answer.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("body", [b'{"x":' + b"[" * 100000 + b"0" + b"]" * 100000 + b"}", b'{"a":' * 50000, b"[" * 1000000,
                                  b'{"messages":[{"role":"user","content":"x"}],"tools":' + b"[" * 5000])
def test_B128_deep_nesting_is_refused_at_once(fake, body):
    begin = time.monotonic()
    answer = raw(fake, body)
    assert answer.status_code == 400
    assert time.monotonic() - begin < within(1)  # 0.1 s on an idle machine
    fake.check_idle()


def test_B129_deep_and_wide_tool_schemas(fake):
    def tools(parameters):
        return [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
    deep = {"type": "object"}
    for _ in range(400):
        deep = {"type": "object", "properties": {"p": deep}}
    assert fake.chat("x", tools=tools(deep)).status_code == 400
    wide = {"type": "object", "properties": {f"property_{i}": {"type": "string", "description": "x" * 20} for i in range(20000)}}
    begin = time.monotonic()
    assert fake.chat("x", tools=tools(wide)).status_code == 200
    assert time.monotonic() - begin < within(5)
    assert fake.chat("x", tools=tools({"$ref": "#"})).status_code == 200


@pytest.mark.parametrize("text", [r"emoji \ud83d", r"\ude00 x", r"\ud83d\u0041", r"\udc00\ud800"])
def test_B130_lone_surrogates_are_refused_everywhere(fake, text):
    for body in ('{"messages":[{"role":"user","content":"%s"}]}', '{"messages":[{"role":"user","content":"x"},{"role":"tool","content":"%s"}]}',
                 '{"messages":[{"role":"user","content":"x"}],"%s":1}', '{"messages":[{"role":"user","content":"x"}],"stop":"%s"}',
                 '{"messages":[{"role":"user","content":"x"}],"model":"%s"}', '{"messages":[{"role":"user","content":"%s"}],"stream":true}'):
        answer = raw(fake, body % text)
        assert answer.status_code == 400
        answer.content.decode("utf-8")


def test_B130_surrogate_pairs_and_nul_are_text(fake):
    assert raw(fake, r'{"messages":[{"role":"user","content":"\ud83d\ude00"}]}').status_code == 200
    body = json.dumps({"messages": [{"role": "user", "content": "a\x00b"}]})
    tokens = fake.http.post("/tokenize", content=body, headers={"Content-Type": "application/json"}).json()["tokens"]
    assert [97, 0, 98] == tokens[tokens.index(0) - 1:tokens.index(0) + 2]


@pytest.mark.parametrize("content", ["你好".encode("gbk"), b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\x80", b"\xff", b"\xe4\xbd"])
def test_B131_other_encodings_are_refused_in_utf8(fake, content):
    answer = raw(fake, b'{"messages":[{"role":"user","content":"' + content + b'"}]}')
    assert answer.status_code == 400
    answer.content.decode("utf-8")
    assert content not in answer.content
    fake.check_idle()


def test_B131_utf16_is_refused(fake):
    assert raw(fake, '{"messages":[]}'.encode("utf-16-le")).status_code == 400


def test_B132_errors_stay_small(fake):
    for messages in ([7] * 12000, [{"role": "user", "content": 7}] * 12000, "x" * 5_000_000, [{"role": "x" * 5_000_000, "content": "a"}],
                     [{"role": "user", "content": "a", "y" * 100000: 1}]):
        answer = fake.post("/v1/chat/completions", {"messages": messages})
        assert answer.status_code == 400
        assert len(answer.content) < 4096
        assert "xxx" * 70 not in answer.text and "yyy" * 70 not in answer.text
    assert len(fake.chat("x", **{"z" * 3000: 1}).content) < 4096
    assert len(fake.chat("x", model="z" * 3000).content) < 4096


def test_of_equal_keys_the_last_counts(fake):
    answer = raw(fake, '{"messages":[{"role":"user","content":"x"}],"max_tokens":"no","max_tokens":2}')
    assert answer.status_code == 200 and answer.json()["usage"]["completion_tokens"] == 2


def test_content_type_must_be_json_or_absent(fake):
    body = '{"messages":[{"role":"user","content":"x"}],"max_tokens":1}'
    for good in ("application/json", "application/json; charset=utf-8", "APPLICATION/JSON"):
        assert raw(fake, body, good).status_code == 200
    for bad in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        answer = raw(fake, body, bad)
        assert answer.status_code == 415 and "application/json" in answer.json()["error"]["message"]


def test_client_raises_bad_request(fake):
    with pytest.raises(openai.BadRequestError) as raised:
        fake.client.chat.completions.create(model="fake", messages=[{"role": "user", "content": "x"}], temperature=5)
    assert raised.value.param == "temperature"


def test_B105_refusals_come_before_any_event(fake):
    answer = fake.chat("x", stream=True, top_p=2)
    assert answer.status_code == 400 and answer.headers["content-type"] == "application/json"
    assert fake.chat_events("x", top_p=0, temperature=0.7, max_tokens=8)[-1] == "[DONE]"


def test_server_is_well_after_all_that(fake):
    fake.check_idle()
