"""Makes the tokenizer, the token files and the scored questions of the bundled model.

    .venv/bin/python tools/tiny_data.py .cache/tiny/sources.json .cache/tiny

Writes tokenizer.json; train.u16, held_prose.u16 and held_chat.u16: token ids as little-endian uint16, bit 15 set where
the token is something the model itself writes (an assistant's turn, or prose), documents one after another, each closed
by <|endoftext|>; questions.json: held-out questions with the prompt's ids and the expected answer.
"""

import argparse
import json
import random
from pathlib import Path

import jinja2
import numpy as np
from jinja2.sandbox import ImmutableSandboxedEnvironment

import tiny_tasks
import tiny_tokenizer
from tiny_export import TEMPLATE

OWN = 1 << 15
LONGEST = 512


def template():
    def refuse(message):
        raise jinja2.exceptions.TemplateError(message)
    world = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    world.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    world.globals["raise_exception"] = refuse
    return world.from_string(TEMPLATE.read_text())


def mark_own(tokenizer, ids: list[int]) -> np.ndarray:
    """Ids of a rendered conversation with the assistant's own tokens marked: the end of turn too, but not an empty
    think block, which the prompt gives."""
    ids = np.array(ids, dtype=np.uint16)
    begin, end, who, line, gap, think = (tokenizer.token_to_id(t) for t in ("<|im_start|>", "<|im_end|>", "assistant", "Ċ", "ĊĊ", "<think>"))
    at = 0
    while at + 2 < len(ids):
        if ids[at] == begin and ids[at + 1] == who and ids[at + 2] == line:
            stop = at + 3
            while stop < len(ids) and ids[stop] != end:
                stop += 1
            empty = stop > at + 7 and ids[at + 3] == think and ids[at + 4] == gap
            first = at + 3 if ids[at + 3] != think else at + 7 if empty else at + 5
            ids[first:stop + 1] |= OWN
            at = stop
        at += 1
    return ids


def prose_documents(tokenizer, sources: dict, held_out: bool):
    end = tokenizer.token_to_id("<|endoftext|>")
    for paragraphs in sources["novels"].values():
        cut = int(len(paragraphs) * 0.95)
        room, document = LONGEST - 2, []
        for paragraph in paragraphs[cut:] if held_out else paragraphs[:cut]:
            ids = tokenizer.encode(paragraph + "\n\n", add_special_tokens=False).ids
            if len(document) + len(ids) > room and document:
                yield np.array(document[:room] + [end], dtype=np.uint16) | OWN
                document = []
            document += ids
        if document:
            yield np.array(document[:room] + [end], dtype=np.uint16) | OWN


def gloss_documents(tokenizer, sources: dict, rng):
    end = tokenizer.token_to_id("<|endoftext|>")
    words = sources["words"][:8000]
    rng.shuffle(words)
    for at in range(0, len(words), 12):
        text = "".join(f"{w['word']}: {w['gloss']}.\n" for w in words[at:at + 12])
        yield np.array(tokenizer.encode(text, add_special_tokens=False).ids[:LONGEST - 2] + [end], dtype=np.uint16) | OWN


def main() -> None:
    parse = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parse.add_argument("sources", type=Path)
    parse.add_argument("out", type=Path)
    parse.add_argument("--tokens", type=int, default=22_000_000, help="about how many training tokens of conversations")
    parse.add_argument("--questions", type=int, default=40, help="scored questions a task")
    args = parse.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    sources = json.loads(args.sources.read_text())
    texts = tiny_tasks.Texts(sources)
    render = template().render
    rng = random.Random(20)

    def chats(held_out):
        messages, tools = tiny_tasks.conversation(rng, texts, held_out)
        return render(messages=messages, tools=tools or None, add_generation_prompt=False)

    sample = [chats(False) for _ in range(12000)]
    novels = [p for parts in sources["novels"].values() for p in parts[:int(len(parts) * 0.95)]]
    glosses = [f"{w['word']}: {w['gloss']}." for w in sources["words"][:8000]]
    tokenizer = tiny_tokenizer.train(sample + novels + glosses)
    tokenizer.save(str(args.out / "tokenizer.json"))
    end = np.array([tokenizer.token_to_id("<|endoftext|>")], dtype=np.uint16)

    documents = list(prose_documents(tokenizer, sources, False)) + list(gloss_documents(tokenizer, sources, rng))
    print("prose and glosses:", sum(map(len, documents)), "tokens in", len(documents), "documents")
    total = 0
    while total < args.tokens:
        for coded in tokenizer.encode_batch([chats(False) for _ in range(1000)], add_special_tokens=False):
            if len(coded.ids) < LONGEST:
                documents.append(np.concatenate((mark_own(tokenizer, coded.ids), end)))
                total += len(coded.ids) + 1
    held = {"prose": list(prose_documents(tokenizer, sources, True)), "chat": []}
    while len(held["chat"]) < 600:
        ids = mark_own(tokenizer, tokenizer.encode(chats(True), add_special_tokens=False).ids)
        if len(ids) < LONGEST:
            held["chat"].append(np.concatenate((ids, end)))
    rng.shuffle(documents)
    np.concatenate(documents).tofile(args.out / "train.u16")
    for name, parts in held.items():
        np.concatenate(parts).tofile(args.out / f"held_{name}.u16")

    questions = []
    for task, _, judge in tiny_tasks.TASKS:
        got = 0
        while judge and got < args.questions:
            turn = task(rng, texts)
            if not turn.held_out():
                continue
            head = ([{"role": "system", "content": turn.system}] if turn.system else []) + [{"role": "user", "content": turn.user}]
            prompt = render(messages=head, tools=turn.tools or None, add_generation_prompt=True, enable_thinking=bool(turn.thought))
            expected = turn.call if judge == "call" else turn.answer
            questions.append({"task": task.__name__, "judge": judge, "prompt": prompt, "expected": expected,
                              "ids": tokenizer.encode(prompt, add_special_tokens=False).ids})
            got += 1
    (args.out / "questions.json").write_text(json.dumps(questions, ensure_ascii=False))
    sizes = [len(d) for d in documents]
    print(len(documents), "documents,", sum(sizes), "tokens, mean", sum(sizes) / len(sizes), ";",
          {name: sum(map(len, parts)) for name, parts in held.items()}, "held-out tokens;", len(questions), "questions")


if __name__ == "__main__":
    main()
