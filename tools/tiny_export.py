"""Writes a trained (or untrained) tiny model as a Hugging Face checkpoint folder of the family's published layout.

    .venv/bin/python tools/tiny_export.py --tokenizer .cache/tiny/tokenizer.json --out DIR [--weights trained.pt]

Text weights are bf16 under "model.language_model."; A_log and linear_attn.norm.weight are float32, as published.
Tokenizer, chat template and generation settings are written beside them.
"""

import argparse
import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file

from tiny_model import TEXT_CONFIG, TinyModel, initialise
from tiny_tokenizer import ADDED, CONFIG_ONLY, FIRST_ADDED

TEMPLATE = Path(__file__).resolve().parent.parent / "models/tandem-tiny/chat_template.jinja"
PREFIX = "model.language_model."


def is_float32(name: str) -> bool:
    return name.endswith((".A_log", ".linear_attn.norm.weight"))


def write_json(path: Path, value) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def token_id(text: str) -> int:
    return FIRST_ADDED + [name for name, _ in ADDED].index(text)


def write_config(out: Path) -> None:
    write_json(out / "config.json", {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "image_token_id": token_id("<|image_pad|>"),
        "model_type": "qwen3_5",
        "text_config": TEXT_CONFIG,
        "tie_word_embeddings": True,
        "transformers_version": "5.24.0",
        "video_token_id": token_id("<|video_pad|>"),
        "vision_end_token_id": token_id("<|vision_end|>"),
        "vision_start_token_id": token_id("<|vision_start|>"),
    })
    write_json(out / "generation_config.json", {
        "do_sample": True,
        "eos_token_id": [token_id("<|im_end|>"), token_id("<|endoftext|>")],
        "pad_token_id": token_id("<|endoftext|>"),
        "temperature": 0.5,
        "top_k": 20,
        "top_p": 0.9,
        "transformers_version": "5.24.0",
    })


def write_tokenizer(source: Path, out: Path) -> None:
    """Seven of the added tokens stand in tokenizer_config.json only, as in the published files."""
    tokenizer = json.loads(source.read_text(encoding="utf-8"))
    tokenizer["added_tokens"] = [t for t in tokenizer["added_tokens"] if t["content"] not in CONFIG_ONLY]
    (out / "tokenizer.json").write_text(json.dumps(tokenizer, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    write_json(out / "tokenizer_config.json", {
        "add_bos_token": False,
        "add_prefix_space": False,
        "added_tokens_decoder": {str(FIRST_ADDED + i): {"content": name, **flags, "special": special}
                                 for i, (name, special) in enumerate(ADDED)},
        "bos_token": None,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>",
        "errors": "replace",
        "model_max_length": TEXT_CONFIG["max_position_embeddings"],
        "pad_token": "<|endoftext|>",
        "split_special_tokens": False,
        "tokenizer_class": "Qwen2Tokenizer",
        "unk_token": None,
    })
    if (out / "chat_template.jinja").resolve() != TEMPLATE:
        shutil.copyfile(TEMPLATE, out / "chat_template.jinja")


def write_weights(model: TinyModel, out: Path) -> None:
    tensors = {PREFIX + name: (weight.detach().float() if is_float32(name) else weight.detach().bfloat16()).contiguous()
               for name, weight in model.named_parameters()}
    shard = "model.safetensors-00001-of-00001.safetensors"
    save_file(tensors, out / shard)
    total = sum(t.numel() * t.element_size() for t in tensors.values())
    write_json(out / "model.safetensors.index.json",
               {"metadata": {"total_size": total}, "weight_map": {name: shard for name in sorted(tensors)}})
    print(sum(t.numel() for t in tensors.values()), "parameters,", total, "bytes of tensors")


def main() -> None:
    parse = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parse.add_argument("--tokenizer", type=Path, required=True)
    parse.add_argument("--out", type=Path, required=True)
    parse.add_argument("--weights", type=Path, help="state dict; without it the weights are the seeded start values")
    parse.add_argument("--seed", type=int, default=1)
    args = parse.parse_args()
    model = TinyModel()
    initialise(model, args.seed)
    if args.weights:
        model.load_state_dict(torch.load(args.weights, map_location="cpu", weights_only=True))
    args.out.mkdir(parents=True, exist_ok=True)
    write_config(args.out)
    write_tokenizer(args.tokenizer, args.out)
    write_weights(model, args.out)


if __name__ == "__main__":
    main()
