#!/usr/bin/env python3
"""First inputs and words for the fuzz targets, from the repository alone: python3 tests/fuzz/seeds.py DIRECTORY

Writes DIRECTORY/TARGET/seeds/*, the files of tests/fuzz/seeds/TARGET and what the unit tests and the bundled model give
the same parser, and DIRECTORY/TARGET/words.dict, the words that the parser's own sources spell out.
An input that once broke a target is kept in tests/fuzz/seeds/TARGET, so that every run begins with it.
"""

import pathlib
import re
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "text"))
import template_grid  # noqa: E402
import template_random  # noqa: E402

JSON_MARKS = ['{', '}', '[', ']', ':', ',', 'null', 'true', 'false', '-1', '0.5', '1e999', '-0', '9223372036854775808', '18446744073709551615',
              '"', '\\u0000', '\\ud800', '\\"', '[]', '{}', '""', '\xff', '\xe2\x82']
JINJA_MARKS = ['{{', '}}', '{%', '%}', '{%-', '-%}', '{#', '#}', '|', '~', '**', '//', '==', '!=', '<=', '>=', '[::-1]', '(', ')', '[', ']', '\\x', '\\u00e9',
               '\\U0001f9c2', '\\N{DASH}', "'", '"', '%s', '%-5.2f', '{:>5}', '{0[k].d!r}', '1e999', '9' * 30, '\xff', '\xe2\x82']
ANSWER_MARKS = JSON_MARKS + ['\n<parameter=s>\n', '\n</parameter>\n', '\n</function>\n</tool_call>', '<tool_call>\n<function=all>\n', '<parameter=u>', '<parameter=o>',
                             'True', 'None', '\n\n', '\t', '\\ud83e\\uddc2', '[[', '{"a":']
TOKENIZER_MARKS = JSON_MARKS + ['\xc3\xa9', 'e\xcc\x81', '\xe1\x84\x80\xe1\x85\xa1', '\xf0\x9f\xa7\x82', '\r\n', '\xc2\xa0', "'s", "'LL", '\xe0\xa4\xa8', '  ']

# target: sources whose words count, tests whose raw literals are inputs, files that are inputs, marks, words in quotes or bare
TARGETS = {
    "answer": (["src/text/tool_call_*.[ch]*", "src/text/reasoning.cc"], ["src/text/tool_call_parser_test.cc", "src/text/reasoning_test.cc"], [], ANSWER_MARKS, False),
    "config": (["src/model/config.cc", "src/model/geometry.cc"], ["src/model/geometry_test.cc"], ["models/tandem-tiny/config.json"], JSON_MARKS, True),
    "safetensors": (["src/model/safetensors.cc"], ["src/model/safetensors_test.cc"], [], JSON_MARKS, True),
    "request": (["src/server/*_request.cc", "src/server/*fields.cc", "src/server/conversation.cc", "src/server/testing/fake_text.h"],
                ["src/server/*_test.cc"], [], JSON_MARKS, True),
    "jinja": (["src/text/jinja/*.cc"], ["src/text/jinja/*_test.cc", "src/text/chat_template_test.cc"],
              ["models/tandem-tiny/chat_template.jinja"], JINJA_MARKS, False),
    "tokenizer": (["src/text/tokenizer*.cc", "src/text/added_tokens.cc", "src/text/tokenizer_fixture.h"], ["src/text/tokenizer_file_test.cc"],
                  ["models/tandem-tiny/tokenizer_config.json"], TOKENIZER_MARKS, True),
}


def texts(patterns):
    for pattern in patterns:
        for path in sorted(ROOT.glob(pattern)):
            yield path, path.read_text(encoding="utf-8")


def words(patterns):
    found = set()
    for path, text in texts(patterns):
        if not path.name.endswith(("_test.cc", "_bench.cc", "_fuzz.cc")):
            text = re.sub(r"^\s*(#include|//).*$", "", text, flags=re.MULTILINE)
            found |= {word for word in re.findall(r'"([^"\\\s]+)"', text) if 2 <= len(word) <= 40 and "{}" not in word}
    return sorted(found)


def quoted(text):
    """A word as libFuzzer's dictionaries write it: bytes beyond ASCII, quotes and backslashes in hexadecimal."""
    return '"' + "".join(c if " " <= c <= "~" and c not in '"\\' else "".join(f"\\x{b:02x}" for b in c.encode("latin-1")) for c in text) + '"'


def main():
    out = pathlib.Path(sys.argv[1])
    for target, (sources, tests, files, marks, in_quotes) in TARGETS.items():
        seeds = [path.read_bytes() for path in sorted((ROOT / "tests/fuzz/seeds" / target).iterdir())]
        seeds += [(ROOT / name).read_bytes() for name in files]
        seeds += [raw.encode() for _, text in texts(tests) for raw in re.findall(r'R"\((.*?)\)"', text, flags=re.DOTALL)]
        if target == "answer":  # two bytes before the text: src/text/answer_fuzz.cc
            seeds += [begin + seed for seed in seeds for begin in (b"\2\5", b"\1\3")]
        if target == "jinja":
            seeds += [source.encode() for source, _ in template_random.templates(seed=1, count=300)]
        if target == "tokenizer":
            seeds += [text.encode() for text in template_grid.ODD_TEXTS]
        folder = out / target / "seeds"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for i, seed in enumerate(dict.fromkeys(seeds)):
            (folder / f"{i:03}").write_bytes(seed)
        spelled = [f'"{word}"' if in_quotes else word for word in words(sources) if word.isascii()]
        lines = [quoted(word) for word in dict.fromkeys(marks + spelled)]
        (out / target / "words.dict").write_text("\n".join(lines) + "\n", encoding="ascii")
        print(f"{target}: {len(dict.fromkeys(seeds))} seeds, {len(lines)} words")


if __name__ == "__main__":
    main()
