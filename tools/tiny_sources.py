"""Texts the bundled model learns from, taken out of Debian packages.

    apt-get download r-cran-janeaustenr wordnet-base fortunes fortunes-min
    .venv/bin/python tools/tiny_sources.py DIR_WITH_DEBS .cache/tiny/sources.json

Only files whose licence allows it are read; LICENCES says which and why.
The result is one JSON file: {"novels": {title: [paragraph]}, "words": [...], "sayings": [...]}.
"""

import json
import re
import struct
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

LICENCES = {
    "r-cran-janeaustenr": "six novels of Jane Austen (public domain), packaged by Julia Silge under the MIT licence",
    "wordnet-base": "WordNet 3.0, Princeton University, WordNet licence (use, copy, modify and distribute for any purpose)",
    "fortunes, fortunes-min": "collections 'fortunes', 'platitudes' and 'wisdom' of fortune-mod, BSD licence of the Regents of the University of California; collections quoted from single works are left out, and the offensive ones are another package",
}
SAYINGS = ("fortunes", "platitudes", "wisdom")
# WordNet marks no register in its glosses; these words never become a question.
REFUSED = re.compile(r"\b(sex\w*|rape\w*|drug\w*|kill\w*|murder\w*|suicid\w*|slave\w*|nazi\w*|nigg\w*|whore\w*|slut\w*|fuck\w*|shit\w*|cunt\w*|penis|vagina\w*|genital\w*|prostitut\w*|disparag\w*|offensive|derogatory|ethnic slur|vulgar|obscen\w*|copulat\w*|intercourse|Negro\w*|Jew\w*|gypsy)\b", re.I)


def unpack(debs: Path, scratch: Path) -> None:
    for package in ("r-cran-janeaustenr", "wordnet-base", "fortunes", "fortunes-min"):
        found = sorted(debs.glob(f"{package}_*.deb"))
        if not found:
            sys.exit(f"{debs} has no {package}_*.deb; run: apt-get download {package}")
        subprocess.run(["dpkg", "-x", found[-1], scratch], check=True)


def strings_of_r_object(data: bytes) -> list[str]:
    """The first character vector of an R object serialised in XDR form."""
    at = data.find(struct.pack(">I", 16))
    while at >= 0:
        count = struct.unpack_from(">i", data, at + 4)[0]
        head = struct.unpack_from(">I", data, at + 8)[0] if at + 12 <= len(data) else 0
        if count > 0 and head & 0xFF == 9:
            break
        at = data.find(struct.pack(">I", 16), at + 1)
    if at < 0:
        return []
    result, at = [], at + 8
    for _ in range(count):
        flags, size = struct.unpack_from(">Ii", data, at)
        if flags & 0xFF != 9:
            return []
        at += 8
        size = max(size, 0)
        result.append(data[at:at + size].decode("utf-8", "replace"))
        at += size
    return result


def novels(scratch: Path) -> dict[str, list[str]]:
    base = scratch / "usr/lib/R/site-library/janeaustenr/data/Rdata"
    data = base.with_suffix(".rdb").read_bytes()
    result, at = {}, 0
    chunks = []
    while at + 4 < len(data):  # each object: size, then one zlib stream
        stream = zlib.decompressobj()
        chunks.append(stream.decompress(data[at + 4:]))
        at = len(data) - len(stream.unused_data)
    for chunk in chunks:
        lines = strings_of_r_object(chunk)
        if len(lines) < 1000:
            continue
        title = lines[0].strip().title() or f"Novel {len(result)}"
        text = "\n".join(line.rstrip() for line in lines)
        paragraphs = []
        for part in re.split(r"\n\s*\n", text):
            part = " ".join(part.split())
            part = part.replace("--", " - ").replace("_", "")
            part = " ".join(part.split())
            if len(part) > 20 and not re.match(r"(chapter|volume|by jane)", part, re.I):
                paragraphs.append(part)
        result[title] = paragraphs
    assert len(result) == 6, list(result)
    return result


def words(scratch: Path) -> list[dict]:
    """Lemmas with the gloss of their most frequent sense, most frequent lemma first."""
    base = scratch / "usr/share/wordnet"
    synsets, order = {}, {}
    for kind, letter in (("noun", "n"), ("verb", "v"), ("adj", "a"), ("adv", "r")):
        for line in (base / f"data.{kind}").read_text("latin-1").splitlines():
            if line.startswith("  "):
                continue
            fields, _, gloss = line.partition(" | ")
            parts = fields.split()
            count = int(parts[3], 16)
            lemmas = [re.sub(r"\(.*\)", "", w).replace("_", " ") for w in parts[4:4 + 2 * count:2]]
            pointers = parts[5 + 2 * count:]
            links = [(pointers[4 * i], pointers[4 * i + 2] + pointers[4 * i + 1], pointers[4 * i + 3])
                     for i in range(int(parts[4 + 2 * count]))]
            synsets[letter + parts[0]] = {"lemmas": lemmas, "gloss": gloss.strip(), "links": links, "topic": parts[1]}
        for line in (base / f"index.{kind}").read_text("latin-1").splitlines():
            if not line.startswith("  "):
                parts = line.split()
                order[letter, parts[0].replace("_", " ")] = [letter + o for o in parts[-int(parts[2]):]]
    uses = {}
    for line in (base / "cntlist.rev").read_text("latin-1").splitlines():
        key, sense, count = line.split()
        lemma, rest = key.split("%")
        letter = {"1": "n", "2": "v", "3": "a", "4": "r", "5": "a"}[rest[0]]
        slot = uses.setdefault((letter, lemma.replace("_", " ")), {})
        slot[int(sense)] = slot.get(int(sense), 0) + int(count)
    best = {}
    for (letter, lemma), senses in uses.items():
        if not re.fullmatch(r"[a-z]{3,14}", lemma) or (letter, lemma) not in order:
            continue
        total = sum(senses.values())
        if total > best.get(lemma, (0,))[0]:
            top = min(s for s in senses if senses[s] == max(senses.values()))
            offsets = order[letter, lemma]
            best[lemma] = (total, letter, offsets[min(top, len(offsets)) - 1])
    result = []
    for lemma, (total, letter, offset) in sorted(best.items(), key=lambda item: (-item[1][0], item[0])):
        synset = synsets[offset]
        gloss = synset["gloss"].split('; "')[0].split(";")[0]
        gloss = re.sub(r"\([^)]*\)", "", gloss)
        gloss = " ".join(gloss.replace("`", "'").split()).strip(" :,")
        if not 8 <= len(gloss) <= 110 or REFUSED.search(gloss) or REFUSED.search(lemma):
            continue
        like = [w for w in synset["lemmas"] if w.lower() != lemma and re.fullmatch(r"[a-z ]{3,16}", w)]
        kinds = [w for sign, target, _ in synset["links"] if sign == "@" for w in synsets[target]["lemmas"]
                 if re.fullmatch(r"[a-z ]{3,18}", w)]
        opposite = []
        for sign, target, pair in synset["links"]:
            if sign == "!":
                source, to = int(pair[:2], 16), int(pair[2:], 16)
                if source == 0 or synset["lemmas"][source - 1].lower() == lemma:
                    opposite.append(synsets[target]["lemmas"][max(to, 1) - 1])
        result.append({"word": lemma, "kind": letter, "uses": total, "gloss": gloss, "like": like[:3],
                       "is_a": kinds[:1], "opposite": [w for w in opposite if re.fullmatch(r"[a-z]{2,14}", w)][:1]})
    return result


def sayings(scratch: Path) -> list[str]:
    result = []
    for name in SAYINGS:
        for text in (scratch / "usr/share/games/fortunes" / name).read_text("utf-8", "replace").split("\n%\n"):
            text = " ".join(text.replace("\b", "").split())
            if 12 <= len(text) <= 140 and "--" not in text and text.isascii() and not REFUSED.search(text):
                result.append(text)
    return sorted(set(result))


def main() -> None:
    debs, out = Path(sys.argv[1]), Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        unpack(debs, scratch)
        data = {"licences": LICENCES, "novels": novels(scratch), "words": words(scratch), "sayings": sayings(scratch)}
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(data, ensure_ascii=False))
    print({title: sum(map(len, parts)) for title, parts in data["novels"].items()},
          len(data["words"]), "words", len(data["sayings"]), "sayings")


if __name__ == "__main__":
    main()
