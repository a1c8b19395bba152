"""Checks a tiny checkpoint folder against transformers' Qwen3_5ForCausalLM, and shows a few greedy answers.

    .venv/bin/python tools/tiny_check.py models/tandem-tiny [--answers 0]
"""

import argparse
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file
from transformers import AutoTokenizer, Qwen3_5ForCausalLM, Qwen3_5TextConfig

from tiny_export import PREFIX
from tiny_model import CHUNK, TEXT_CONFIG, TinyModel

TEXTS = ["It is a truth universally acknowledged, that a single man in possession of a good fortune, must be in want of a wife.",
         "<|im_start|>user\nWhat is 7 + 5?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n7 + 5 = 12.<|im_end|>\n",
         "a", "\N{COMBINING ACUTE ACCENT}e \N{SNOWMAN} 1234 {\"a\": [1, 2]}\n\n\n  end" * 6]
QUESTIONS = ["Hello!", "Who are you?", "What does honest mean?", "Give me a synonym of glad.", "What is 17 + 25?",
             "Tell me a short story about a dog.", "Name three animals.", "Repeat after me: the green kite is late.",
             "Fill the form as JSON with the keys name, age and city: Nora is 41 and lives in Leeds.",
             "Continue: It was a fine morning, and Emma", "What is the opposite of hot?", "Write a haiku about the moon."]


def main() -> None:
    parse = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parse.add_argument("folder", type=Path)
    parse.add_argument("--answers", type=int, default=len(QUESTIONS))
    args = parse.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(args.folder)
    assert len(tokenizer) == TEXT_CONFIG["vocab_size"], len(tokenizer)
    tensors = {}
    for shard in sorted(args.folder.glob("*.safetensors")):
        tensors |= {name.removeprefix(PREFIX): t.float() for name, t in load_file(shard).items()}
    ours = TinyModel().eval()
    ours.load_state_dict(tensors)
    theirs = Qwen3_5ForCausalLM(Qwen3_5TextConfig(**{**TEXT_CONFIG, "dtype": "float32"})).eval()
    missing, unexpected = theirs.load_state_dict({"model." + name: t for name, t in tensors.items()}, strict=False)
    assert missing == ["lm_head.weight"] and not unexpected, (missing, unexpected)
    theirs.tie_weights()
    with torch.no_grad():
        for text in TEXTS:
            ids = torch.tensor([tokenizer.encode(text)])
            assert tokenizer.decode(ids[0]) == text, (tokenizer.decode(ids[0]), text)
            padded = torch.nn.functional.pad(ids, (0, -ids.shape[1] % CHUNK))
            start = torch.zeros_like(padded, dtype=torch.bool)
            start[:, 0] = True
            mine = ours(padded, start)[:, :ids.shape[1]]
            reference = theirs(ids).logits
            print(f"{ids.shape[1]} tokens: largest logit {reference.abs().max():.3f}, largest difference {(mine - reference).abs().max():.2e}")
            assert (mine - reference).abs().max() < 2e-3 * max(1, reference.abs().max())
        print("transformers", transformers.__version__, "torch", torch.__version__)
        for question in QUESTIONS[:args.answers]:
            prompt = tokenizer.apply_chat_template([{"role": "user", "content": question}], tokenize=False, add_generation_prompt=True)
            ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
            out = theirs.generate(ids, max_new_tokens=120, do_sample=False, eos_token_id=[tokenizer.eos_token_id], pad_token_id=tokenizer.pad_token_id)
            print("?", question, "\n!", tokenizer.decode(out[0, ids.shape[1]:]))


if __name__ == "__main__":
    main()
