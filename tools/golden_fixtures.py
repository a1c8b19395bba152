"""Makes every fixture of the Hugging Face logits gate anew: the bundled model's and those of fabricated geometries.

    .venv/bin/python tools/golden_fixtures.py --tandem build/release/tandem [NAME ...]

Fabricated checkpoints are made in a scratch folder by the same arguments that the gate's tests use; each fixture
stores them under "fabricate". gates/fixtures/README.md describes the format.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FIXTURES = ROOT / "gates/fixtures"
# R is value heads over key heads of linear attention, G query heads over kv heads of full attention.
FABRICATED = {
    "r1-g2-tied": "custom --hidden 256 --layers 8 --intermediate 512 --query-heads 4 --kv-heads 2 --key-heads 4 --value-heads 4 --vocab 4096 --seed 11",
    "r2-g4-untied": "custom --hidden 512 --layers 4 --intermediate 1024 --query-heads 8 --kv-heads 2 --key-heads 4 --value-heads 8 --vocab 5003 --untied --seed 12",
    "r3-g6-untied": "custom --hidden 384 --layers 6 --full-attention-interval 3 --intermediate 768 --query-heads 12 --kv-heads 2 --key-heads 2 --value-heads 6 --vocab 3001 --untied --seed 13",
    "soak/r2-g4-calm": "custom --hidden 512 --layers 4 --intermediate 1024 --query-heads 8 --kv-heads 2 --key-heads 4 --value-heads 8 --vocab 5003 --untied --spread 75 --seed 12",
    "r2-g2-tp4-tied": "custom --hidden 320 --layers 4 --intermediate 896 --query-heads 8 --kv-heads 4 --key-heads 4 --value-heads 8 --vocab 4096 --seed 34",
    "r2-g4-deep": "custom --hidden 192 --layers 16 --intermediate 384 --query-heads 8 --kv-heads 2 --key-heads 2 --value-heads 4 --vocab 2048 --seed 15",
    "r1-g2-shallow": "custom --hidden 256 --layers 2 --full-attention-interval 2 --intermediate 512 --query-heads 4 --kv-heads 2 --key-heads 2 --value-heads 2 --vocab 1024 --untied --seed 16",
}
# Prompts of 4097 and 8192 tokens, on the same checkpoint as the fixture of the same name without "-long".
LONG = ["r2-g2-tp4-tied-long"]


def make(model: Path, name: str, *more: str) -> None:
    subprocess.run([sys.executable, ROOT / "tools/make_golden.py", model, FIXTURES / f"{name}.json", "--name", Path(name).name, *more], check=True)


def main() -> None:
    parse = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parse.add_argument("--tandem", type=Path, default=ROOT / "build/release/tandem")
    parse.add_argument("names", nargs="*", help="default: all")
    args = parse.parse_args()
    wanted = lambda name: not args.names or name in args.names
    bundled, text = ROOT / "models/tandem-tiny", FIXTURES / "tandem-tiny.txt"
    if wanted("tandem-tiny"):
        make(bundled, "tandem-tiny", "--text", text)
    for name in [*FABRICATED, *LONG]:
        if not wanted(name):
            continue
        arguments = FABRICATED[name.removesuffix("-long")]
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / Path(name).name
            size, *flags = arguments.split()
            subprocess.run([args.tandem, "fabricate", size, folder, *flags], check=True)
            make(folder, name, "--fabricate", arguments, *(["--long"] if name in LONG else []))


if __name__ == "__main__":
    main()
