#!/usr/bin/env python3
"""The house rules that a machine can check; prints every breach and exits 1 if there is one.

- A room includes only itself and the rooms above it (docs/architecture.md).
- No source file is over 40 KB.
- No absolute path of one machine stands in a tracked file.
- A test, gate or tested file that docs/rfc.md names exists.
"""

import pathlib
import re
import subprocess
import sys

ROOMS = ["base", "text", "comm", "ops", "model", "memory", "rank", "executor", "scheduler", "engine",
         "server", "cli"]
SOURCE = {".cc", ".h", ".cu", ".cuh", ".py", ".js", ".html", ".sh", ".cmake"}
LIMIT_BYTES = 40_000
MACHINE_PATH = re.compile(r"(^|[^A-Za-z0-9_.])/(work|root|farm)/")
TEXT = SOURCE | {".md", ".txt", ".json", ".toml", ".yml", ""}


def tracked(root):
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, check=True).stdout
    return [root / name for name in listed.decode().split("\0") if name]


def include_breaches(root, file):
    parts = file.relative_to(root).parts
    if len(parts) < 3 or parts[0] != "src" or parts[1] not in ROOMS:
        return
    own = ROOMS.index(parts[1])
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        found = re.match(r'\s*#\s*include\s+"([a-z_]+)/', line)
        if found and found[1] in ROOMS and ROOMS.index(found[1]) > own:
            yield f"{file.relative_to(root)}:{number}: {parts[1]} may not include {found[1]}, a room below it"


def missing_tests(root, files):
    names = set()
    for file in files:
        if file.suffix in {".cc", ".cu"} and file.is_file():
            names |= {".".join(found) for found in re.findall(r"TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)", file.read_text(encoding="utf-8"))}
    for number, line in enumerate((root / "docs/rfc.md").read_text(encoding="utf-8").splitlines(), 1):
        for quoted in re.findall(r"`([^`]+)`", line):
            word = quoted.split()[0]
            if re.fullmatch(r"[A-Z]\w+\.\w+", word) and word not in names:
                yield f"docs/rfc.md:{number}: there is no test {word}"
            if re.match(r"(gates|tests|docs|scripts)/", word) and not (root / word).exists():
                yield f"docs/rfc.md:{number}: there is no {word}"


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    files = tracked(root)
    breaches = list(missing_tests(root, files))
    checked = 0
    for file in files:
        name = file.relative_to(root)
        if file.suffix not in TEXT or not file.is_file() or file.is_symlink():
            continue
        if name.parts[0] == "models" or name.parts[:2] == ("gates", "fixtures"):
            continue
        checked += 1
        if file.suffix in SOURCE:
            breaches += include_breaches(root, file) if file.suffix in {".cc", ".h", ".cu", ".cuh"} else []
            size = file.stat().st_size
            if size > LIMIT_BYTES:
                breaches.append(f"{name}: {size} bytes, over {LIMIT_BYTES}: split it")
        if name == pathlib.Path("scripts/check_house.py"):
            continue
        for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            if MACHINE_PATH.search(line):
                breaches.append(f"{name}:{number}: an absolute path of one machine")
    print("\n".join(breaches) if breaches else f"house: {checked} files keep the rules")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
