"""Scores a tiny checkpoint folder with transformers on the held-out questions; greedy, float32, CPU.

    .venv/bin/python tools/tiny_score.py models/tandem-tiny .cache/tiny/questions.json [--per-task 40]
"""

import argparse
import json
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from train_tiny import judge


def main() -> None:
    parse = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parse.add_argument("folder", type=Path)
    parse.add_argument("questions", type=Path)
    parse.add_argument("--per-task", type=int, default=40)
    args = parse.parse_args()
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(args.folder)
    model = AutoModelForCausalLM.from_pretrained(args.folder, dtype=torch.float32).eval()
    marks, ended, seen = {}, 0, 0
    for question in json.loads(args.questions.read_text()):
        line = marks.setdefault(question["task"], [])
        if len(line) == args.per_task:
            continue
        out = model.generate(torch.tensor([question["ids"]]), max_new_tokens=96, do_sample=False,
                             eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)[0, len(question["ids"]):].tolist()
        done = out[-1] == tokenizer.eos_token_id
        ended, seen = ended + done, seen + 1
        line.append(done and judge(question, tokenizer.decode(out[:-1])))
    for task, line in marks.items():
        print(f"{task:15} {sum(line):3} of {len(line)}")
    print(f"{'all':15} {sum(map(sum, marks.values())):3} of {seen}; {ended} ended their turn")


if __name__ == "__main__":
    main()
