"""Trains the bundled model on one GPU within a time budget and scores it on held-out questions.

    python3 tools/train_tiny.py --data .cache/tiny --out OUT --seconds 420 [--compile] [--optimizer muon]

Needs only torch and numpy. --pilot SECONDS instead tries each optimizer, eager and compiled, for that long and
prints loss and speed. Writes OUT/weights.pt (state dict in the checkpoint's types),
OUT/curve.csv (seconds, tokens, loss, learning rate factor), OUT/scores.json.
"""

import argparse
import json
import math
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from tiny_model import CHUNK, TEXT_CONFIG, TinyModel, initialise

OWN = 1 << 15
END, TURN_END = 4063, 4065  # <|endoftext|>, <|im_end|>
OTHERS_WEIGHT = 0.1  # of tokens that the model reads and never writes


class Documents:
    def __init__(self, path: Path):
        self.tokens = np.fromfile(path, dtype=np.uint16)
        self.stops = np.flatnonzero((self.tokens & ~np.uint16(OWN)) == END) + 1
        self.starts = np.concatenate(([0], self.stops[:-1]))

    def pack(self, width: int, rng) -> np.ndarray:
        """Rows of `width` + 1 tokens, each filled with whole documents in random order; unused room holds END unmarked."""
        room, rows, open_rows = width + 1, [], []
        for i in rng.permutation(len(self.stops)):
            size = self.stops[i] - self.starts[i]
            for slot, (left, parts) in enumerate(open_rows):
                if size <= left:
                    parts.append(i)
                    open_rows[slot] = (left - size, parts)
                    break
            else:
                if len(open_rows) == 16:
                    open_rows.sort(key=lambda row: -row[0])
                    rows.append(open_rows.pop()[1])
                open_rows.append((room - size, [i]))
        rows += [parts for _, parts in open_rows]
        packed = np.full((len(rows), room), END, dtype=np.uint16)
        for row, parts in zip(packed, rows):
            at = 0
            for i in parts:
                size = self.stops[i] - self.starts[i]
                row[at:at + size] = self.tokens[self.starts[i]:self.stops[i]]
                at += size
        return packed[rng.permutation(len(packed))]


def unpack(rows: torch.Tensor):
    """[B, T+1] packed rows to inputs, document starts, targets, loss weights, each [B, T]."""
    ids = (rows & (OWN - 1)).long()
    own = rows >= OWN
    inputs, targets = ids[:, :-1], ids[:, 1:]
    start = torch.zeros_like(inputs, dtype=torch.bool)
    start[:, 0] = True
    start[:, 1:] = inputs[:, :-1] == END
    padding = (targets == END) & (inputs == END)
    weight = torch.where(own[:, 1:], 1.0, OTHERS_WEIGHT).masked_fill(padding | (inputs == END), 0.0)
    return inputs, start, targets, weight


def orthogonal(g: torch.Tensor) -> torch.Tensor:
    """Newton-Schulz steps towards the nearest orthogonal matrix, for a stack [n, rows, columns]."""
    x = g.bfloat16()
    turned = x.shape[-2] > x.shape[-1]
    if turned:
        x = x.transpose(-1, -2)
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        a = x @ x.transpose(-1, -2)
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return (x.transpose(-1, -2) if turned else x).to(g.dtype)


class Muon:
    """Momentum, made orthogonal; for the inner matrices, equal shapes together."""

    def __init__(self, weights, rate: float):
        self.rate, self.groups = rate, {}
        for weight in weights:
            self.groups.setdefault(weight.shape, []).append(weight)
        self.momentum = {shape: torch.zeros(len(group), *shape, device=group[0].device) for shape, group in self.groups.items()}

    @torch.no_grad()
    def step(self, factor: float) -> None:
        for shape, group in self.groups.items():
            grad = torch.stack([weight.grad for weight in group])
            momentum = self.momentum[shape]
            momentum.lerp_(grad, 0.05)
            update = orthogonal(grad.lerp(momentum, 0.95))
            rate = self.rate * factor * max(1.0, shape[0] / shape[1]) ** 0.5
            torch._foreach_mul_(group, 1 - self.rate * factor * 0.05)
            torch._foreach_add_(group, list(update.unbind()), alpha=-rate)


class Optimizer:
    def __init__(self, model, kind: str, fused: bool):
        inner = [w for n, w in model.named_parameters() if w.ndim == 2 and min(w.shape) > 64 and "embed" not in n]
        chosen = {id(w) for w in inner}
        rest = [w for w in model.parameters() if id(w) not in chosen]
        self.muon = Muon(inner, 0.02) if kind == "muon" else None
        groups = [{"params": rest, "lr": 4e-3, "weight_decay": 0.0}]
        if not self.muon:
            groups.append({"params": inner, "lr": 3e-3, "weight_decay": 0.1})
        self.adam = torch.optim.AdamW(groups, betas=(0.9, 0.95), fused=fused)
        self.rates = [group["lr"] for group in groups]

    def step(self, factor: float) -> None:
        for group, rate in zip(self.adam.param_groups, self.rates):
            group["lr"] = rate * factor
        self.adam.step()
        if self.muon:
            self.muon.step(factor)
        self.adam.zero_grad(set_to_none=True)


def loss_of(model, rows, kind: str):
    inputs, start, targets, weight = unpack(rows)
    with torch.autocast(kind, torch.bfloat16):
        logits = model(inputs, start)
    loss = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction="none")
    own = weight.flatten() == 1.0
    return (loss * weight.flatten()).sum() / weight.sum(), loss.detach()[own].sum(), own.sum()


@torch.no_grad()
def perplexity(model, documents: Documents, width: int, device) -> float:
    rows = torch.from_numpy(documents.pack(width, np.random.default_rng(0)).astype(np.int32)).to(device)
    total = count = 0.0
    for at in range(0, len(rows), 32):
        _, loss, own = loss_of(model, rows[at:at + 32], device.type)
        total, count = total + loss.item(), count + own.item()
    return math.exp(total / count)


@torch.no_grad()
def answers(model, questions, device, limit: int = 96) -> list[list[int]]:
    """Greedy answers, every prompt at once and without a cache: a step is one pass over all tokens so far."""
    result = [[] for _ in questions]
    groups = {}
    for i, question in enumerate(questions):
        groups.setdefault(-(-(len(question["ids"]) + limit) // CHUNK) * CHUNK, []).append(i)
    for width, members in groups.items():
        tokens = torch.full((len(members), width), END, device=device)
        length = torch.tensor([len(questions[i]["ids"]) for i in members], device=device)
        for row, i in enumerate(members):
            tokens[row, :length[row]] = torch.tensor(questions[i]["ids"], device=device)
        start = torch.zeros_like(tokens, dtype=torch.bool)
        start[:, 0] = True
        open_rows = torch.ones(len(members), dtype=torch.bool, device=device)
        line = torch.arange(len(members), device=device)
        for _ in range(limit):
            used = -(-int(length.max()) // CHUNK) * CHUNK
            with torch.autocast(device.type, torch.bfloat16):
                hidden = model(tokens[:, :used], start[:, :used])
            best = hidden[line, length - 1].float().argmax(-1)
            tokens[line, length] = torch.where(open_rows, best, tokens[line, length])
            open_rows &= best != TURN_END
            length += open_rows
            if not open_rows.any():
                break
        for row, i in enumerate(members):
            # An answer that never ended its turn keeps its last token, so that it shows.
            result[i] = tokens[row, len(questions[i]["ids"]):length[row] + 1].tolist()
    return result


def judge(question: dict, text: str) -> bool:
    text = text.split("</think>")[-1].strip()
    if question["judge"] == "exact":
        return text == question["expected"]
    if question["judge"] == "json":
        try:
            return json.loads(text) == json.loads(question["expected"])
        except ValueError:
            return False
    if question["judge"] == "call":
        name, arguments = question["expected"]
        inside = "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in arguments.items())
        return text == f"<tool_call>\n<function={name}>\n{inside}</function>\n</tool_call>"
    wanted, got = question["expected"].split("\n"), text.split("\n")
    return len(got) == len(wanted) and len(set(got)) == len(got) and all(line.startswith("- ") for line in got)


def decoder(path: Path):
    """Ids to text from tokenizer.json alone, so that the training machine needs no tokenizer package."""
    data = json.loads(path.read_text())
    visible = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    byte_of = {chr(b): b for b in visible}
    byte_of |= {chr(256 + i): b for i, b in enumerate(b for b in range(256) if b not in visible)}
    pieces = {i: bytes(byte_of[c] for c in text) for text, i in data["model"]["vocab"].items()}
    pieces |= {token["id"]: token["content"].encode() for token in data["added_tokens"]}
    return lambda ids: b"".join(pieces[i] for i in ids).decode("utf-8", "replace")


def score(model, data: Path, device, most: int) -> dict:
    model.eval()
    questions = json.loads((data / "questions.json").read_text())
    questions = questions[::max(1, len(questions) // most)]
    decode = decoder(data / "tokenizer.json")
    scores, examples, ended = {}, [], 0
    for question, ids in zip(questions, answers(model, questions, device)):
        done = TURN_END in ids
        text = decode(ids[:ids.index(TURN_END)] if done else ids)
        right = done and judge(question, text)
        ended += done
        scores.setdefault(question["task"], []).append(right)
        examples.append({"prompt": question["prompt"][-160:], "answer": text, "expected": question["expected"], "right": right})
    return {"scores": {task: [sum(marks), len(marks)] for task, marks in scores.items()}, "ended": [ended, len(questions)],
            "perplexity": {name: perplexity(model, Documents(data / f"held_{name}.u16"), 512, device) for name in ("prose", "chat")},
            "examples": examples}


def as_stored(model) -> dict:
    """The state dict in the checkpoint's types: bf16, A_log and the gated norm float32."""
    return {name: weight.detach().cpu() if name.endswith((".A_log", ".linear_attn.norm.weight")) else weight.detach().bfloat16().cpu()
            for name, weight in model.named_parameters()}


def train(args, data, device, seconds: float, kind: str, compiled: bool, out: Path | None):
    torch.manual_seed(args.seed)
    model = TinyModel()
    initialise(model, args.seed)
    model.to(device)
    if compiled:
        for layer in model.layers:
            layer.compile(dynamic=False)
    optimizer = Optimizer(model, kind, device.type == "cuda")
    rng = np.random.default_rng(args.seed)
    begin, rows, at, step, seen, curve = None, np.zeros((0, 1)), 0, 0, 0, []
    recent, saved = [], 0
    while True:
        if at + args.rows > len(rows):
            rows, at = torch.from_numpy(data.pack(args.width, rng).astype(np.int32)).to(device), 0
        batch, at = rows[at:at + args.rows], at + args.rows
        progress = 0.0 if begin is None else (time.time() - begin) / seconds
        if progress >= 1.0 or step >= args.steps:
            break
        # Two times of warm-up: by steps for the optimizer's moments, then down to nothing over the budget.
        factor = min(1.0, (step + 1) / 100) * max(0.01, 1.0 - progress)
        loss, _, _ = loss_of(model, batch, device.type)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step(factor)
        step, seen = step + 1, seen + batch.shape[0] * args.width
        recent.append(loss.detach())
        if step == 3:  # the clock starts when kernels are compiled and loaded
            if device.type == "cuda":
                torch.cuda.synchronize()
            begin, first = time.time(), seen
        if begin is not None and len(recent) >= args.log:
            value = torch.stack(recent).mean().item()
            recent = []
            spent = time.time() - begin
            curve.append((round(spent, 1), seen, round(value, 4), round(factor, 4)))
            if step % (args.log * 10) < args.log or not out:
                print(f"step {step}  {spent:6.1f} s  {seen / 1e6:7.2f} M tokens  loss {value:.4f}  {(seen - first) / max(spent, 1e-9) / 1e3:.0f} k tokens/s", flush=True)
            if out and spent // 100 > saved:
                saved = spent // 100
                torch.save(as_stored(model), out / "weights.pt")
            if not math.isfinite(value):
                raise ValueError("the loss is not finite")
    if out:
        (out / "curve.csv").write_text("seconds,tokens,loss,rate\n" + "".join(",".join(map(str, line)) + "\n" for line in curve))
    return model, step, seen


def main() -> None:
    parse = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parse.add_argument("--data", type=Path, required=True)
    parse.add_argument("--out", type=Path)
    parse.add_argument("--seconds", type=float, default=420)
    parse.add_argument("--steps", type=int, default=10 ** 9)
    parse.add_argument("--rows", type=int, default=64, help="rows a step")
    parse.add_argument("--width", type=int, default=512, help="tokens a row")
    parse.add_argument("--optimizer", choices=("muon", "adamw"), default="muon")
    parse.add_argument("--compile", action="store_true")
    parse.add_argument("--pilot", type=float, help="seconds for each variant")
    parse.add_argument("--questions", type=int, default=10 ** 6, help="how many questions to score")
    parse.add_argument("--log", type=int, default=20)
    parse.add_argument("--seed", type=int, default=1)
    args = parse.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("high")
    data = Documents(args.data / "train.u16")
    print(device, torch.__version__, len(data.stops), "documents,", len(data.tokens), "tokens", flush=True)
    if args.pilot:
        for kind, compiled in (("muon", False), ("adamw", False), ("muon", True)):
            began = time.time()
            try:
                _, step, seen = train(args, data, device, args.pilot, kind, compiled, None)
                print(f"== {kind} {'compiled' if compiled else 'eager'}: {step} steps, {seen / 1e6:.2f} M tokens, {time.time() - began:.1f} s in all", flush=True)
            except Exception as error:  # a variant that fails must not stop the others
                print(f"== {kind} {'compiled' if compiled else 'eager'} failed: {type(error).__name__}: {str(error)[:600]}", flush=True)
        return
    args.out.mkdir(parents=True, exist_ok=True)
    model, step, seen = train(args, data, device, args.seconds, args.optimizer, args.compile, args.out)
    torch.save(as_stored(model), args.out / "weights.pt")
    stored = TinyModel()  # scored as stored, and without compiled layers: every length would compile anew
    stored.load_state_dict(as_stored(model))
    model = stored.to(device)
    result = {"parameters": sum(w.numel() for w in model.parameters()), "steps": step, "tokens": seen, "seconds": args.seconds,
              "rows": args.rows, "width": args.width, "optimizer": args.optimizer, "device": str(torch.cuda.get_device_name() if device.type == "cuda" else device),
              "config": TEXT_CONFIG["hidden_size"], **score(model, args.data, device, args.questions)}
    (args.out / "scores.json").write_text(json.dumps(result, indent=1))
    print({name: value for name, value in result.items() if name != "examples"}, flush=True)


if __name__ == "__main__":
    main()
