"""Compares our Jinja with Python's jinja2, set up as Hugging Face renders chat templates.

Usage: python tests/text/template_diff.py DRIVER [--templates DIR]... [--seed N] [--random N] [--rounds N]

DRIVER is the program of template_driver.cc. Templates (*.jinja) come from the folders given and from the
models folder of the repository; those of the random generator are always there. Exit 1 on any difference:
other text, one side failing where the other renders, another message from raise_exception.
"""

import argparse
import collections
import copy
import datetime
import json
import pathlib
import random
import subprocess
import sys
import warnings

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import template_grid
import template_random

NOW = datetime.datetime(2024, 7, 26, 13, 14, 15)
# Values Python prints with an address, or that chat templates have no use for printing.
UNSTABLE = (" at 0x", "<Namespace {", "<class '")


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


class Namespace(jinja2.utils.Namespace):
    def __init__(*args, **kwargs):
        self, args = args[0], args[1:]
        attributes = dict(*args, **kwargs)
        if any(isinstance(name, str) and name.startswith("_") for name in attributes):
            raise jinja2.exceptions.SecurityError("underscore")
        jinja2.utils.Namespace.__init__(self, attributes)

    def __setitem__(self, name, value):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError("underscore")
        jinja2.utils.Namespace.__setitem__(self, name, value)


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: NOW.strftime(f)
    env.globals["namespace"] = Namespace
    return env


def python_answer(compiled, variables):
    if isinstance(compiled, Exception):
        return {"error": f"{type(compiled).__name__}: {compiled}", "where": "parse"}
    try:
        # A copy: the filter `indent` changes a list that it is given.
        text = compiled.render(**copy.deepcopy(variables))
        text.encode("utf-8")
        return {"text": text}
    except Exception as error:  # whatever a template can raise
        raised = type(error) is jinja2.exceptions.TemplateError
        return {"error": str(error) if raised else f"{type(error).__name__}: {error}", "raised": raised}


def compile_template(env, source):
    try:
        return env.from_string(source)
    except Exception as error:
        return error


def compare(ours, theirs):
    """None if equal, else what differs."""
    if "text" in theirs and any(mark.lower() in theirs["text"].lower() for mark in UNSTABLE):
        return "unstable"
    if ("text" in ours) != ("text" in theirs):
        return "one side fails"
    if "text" in ours:
        return None if ours["text"] == theirs["text"] else "text differs"
    if theirs.get("raised") and ours["error"] != theirs["error"]:
        return "raise_exception differs"
    return None


def main():
    options = argparse.ArgumentParser()
    options.add_argument("driver")
    options.add_argument("--templates", action="append", default=[])
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--random", type=int, default=6000, help="random templates")
    options.add_argument("--rounds", type=int, default=150, help="random conversations for each chat template")
    options.add_argument("--damaged", type=int, default=40, help="damaged copies of each chat template")
    options.add_argument("--show", type=int, default=5)
    options.add_argument("--keep", help="a file for the source of the last template that differs")
    options = options.parse_args()
    warnings.simplefilter("ignore")
    env = environment()
    root = pathlib.Path(__file__).resolve().parents[2]
    paths = sorted(p for folder in options.templates + [root / "models"] for p in pathlib.Path(folder).rglob("*.jinja"))
    if not options.templates:
        print("no folder of published templates was given: only the repository's own and random ones are compared")
    jobs = []  # (name, source, list of variables)
    for path in paths:
        jobs.append((path.name, path.read_text(encoding="utf-8"), template_grid.renderings(options.seed, options.rounds)))
    rng = random.Random(options.seed)
    for path in paths:
        for i in range(options.damaged):
            source = template_grid.damaged(rng, path.read_text(encoding="utf-8"))
            jobs.append((f"damaged {path.name} {i}", source, template_grid.damaged_cases(rng)))
    for i, (source, variables) in enumerate(template_random.templates(options.seed, options.random)):
        jobs.append((f"random {i}", source, variables))
    lines, expected = [], []
    for name, source, cases in jobs:
        compiled = compile_template(env, source)
        for i, variables in enumerate(cases):
            request = {"variables": variables}
            if i == 0:
                request["template"] = source
            lines.append(json.dumps(request))
            expected.append((name, source, variables, python_answer(compiled, variables)))
    run = subprocess.run([options.driver], input="\n".join(lines) + "\n", capture_output=True, text=True, encoding="utf-8")
    if run.returncode != 0:
        sys.exit(f"{options.driver} ended with {run.returncode}: {run.stderr}")
    answers = [json.loads(line) for line in run.stdout.split("\n") if line]
    if len(answers) != len(expected):
        sys.exit(f"{len(answers)} answers for {len(expected)} renderings")
    counts, shown = collections.Counter(), 0
    for (name, source, variables, theirs), ours in zip(expected, answers):
        difference = compare(ours, theirs)
        counts[difference or ("equal failures" if "error" in theirs else "equal texts")] += 1
        if difference not in (None, "unstable") and shown < options.show:
            shown += 1
            print(f"--- {name} (seed {options.seed}): {difference}\n{source if len(source) < 1500 else name}")
            pathlib.Path(options.keep).write_text(source, encoding="utf-8") if options.keep else None
            print("variables:", json.dumps(variables, ensure_ascii=False)[:1500])
            print("python:", json.dumps(theirs, ensure_ascii=False)[:1500])
            print("ours:  ", json.dumps(ours, ensure_ascii=False)[:1500])
    compared = counts["equal texts"] + counts["equal failures"]
    differing = len(expected) - compared - counts["unstable"]
    print(f"{len(paths)} chat templates, {options.damaged} damaged copies of each, {options.random} random templates: {len(expected)} renderings, {compared} equal "
          f"({counts['equal texts']} texts, {counts['equal failures']} failures on both sides), "
          f"{counts['unstable']} not comparable, {differing} different")
    sys.exit(1 if differing else 0)


if __name__ == "__main__":
    main()
