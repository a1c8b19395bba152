#!/usr/bin/env python3
"""llama.cpp and Tandem on the same fabricated checkpoint, in turn, on this machine's CPU; prints ratios.

    python3 tools/bench_llama_cpp.py --work FOLDER [--rounds 5] [--json out.json]

FOLDER, outside the repository, keeps what takes long: llama.cpp, built there from the source package llama-cpp-python
0.3.36; the fabricated checkpoint; the same weights as a GGUF file in bfloat16. The conversion is llama.cpp's own and
needs a Python with torch and transformers (--python). Both programs use the same threads, the same prompt length and
greedy decoding of 64 tokens after a short prompt. The prompt is also measured with Tandem's instruction set capped
(--below-amx), since llama.cpp's bfloat16 path has no AMX. Measure on a quiet machine: the median of the rounds' ratios
counts, and the load average stands beside each round.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGE = "llama-cpp-python==0.3.36"
PROMPT, DECODE = 512, 64
WANTED = {"decode": 1.7, "prompt": 5.0, "prompt capped": 1.2}

CONVERT = """
import runpy, sys
source, model, out = sys.argv[1:]
sys.path[:0] = [source, source + "/gguf-py"]
import conversion.base
# A fabricated tokenizer is none that the converter knows; the family's rule is named instead.
conversion.base.TextModel.get_vocab_base_pre = lambda self, tokenizer: "qwen35"
sys.argv = ["convert", model, "--outfile", out, "--outtype", "bf16", "--no-mtp"]
runpy.run_path(source + "/convert_hf_to_gguf.py", run_name="__main__")
"""


def run(command, **more):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **more)
    if done.returncode:
        sys.exit(f"failed ({done.returncode}): {' '.join(map(str, command))}\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


def build_llama(work):
    program = work / "b/bin/llama-bench"
    source = work / "llama_cpp_python-0.3.36/vendor/llama.cpp"
    if not source.exists():
        print("fetching", PACKAGE, flush=True)
        run([sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", "llama-cpp-python", "-d", work, PACKAGE])
        run(["tar", "-xzf", next(work.glob("llama_cpp_python-*.tar.gz")), "-C", work])
    if not program.exists():
        print("building llama.cpp (long)", flush=True)
        run(["cmake", "-S", source, "-B", work / "b", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON", "-DLLAMA_CURL=OFF",
             "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_SERVER=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF", "-DLLAMA_OPENSSL=OFF"])
        run(["ninja", "-C", work / "b", "llama-bench"])
    return source, program


def prepare(work, options):
    model, gguf = work / "m08", work / "m08.gguf"
    if not (model / "config.json").exists():
        run([options.tandem, "fabricate", "0.8B", model])
    source, program = build_llama(work)
    if not gguf.exists():
        part = work / "m08.part.gguf"
        run([options.python, "-c", CONVERT, source, model, part])
        part.rename(gguf)
    return model, gguf, program


def tandem(options, model, work, isa, decode=True):
    """{"decode": tokens/s, "prompt": tokens/s}"""
    out = work / "tandem.json"
    common = [options.tandem, "bench", model, "--device", "cpu", "--cpu-threads", options.threads, "--max-requests", 1, "--max-context", 2048,
              "--repetitions", 1, "--json", out, *(["--cpu-isa", isa] if isa else [])]
    speed = {}
    if decode:
        run([*common, "--workload", "solo", "--prompt-tokens", 16, "--output-tokens", DECODE])
        speed["decode"] = 1000 / json.loads(out.read_text())[0]["tpot_ms"]["p50"]
    run([*common, "--workload", "prompt-2k", "--prompt-tokens", PROMPT, "--output-tokens", 1])
    speed["prompt"] = PROMPT / (json.loads(out.read_text())[0]["ttft_ms"]["p50"] / 1000)
    return speed


def llama(options, gguf, program):
    rows = json.loads(run([program, "-m", gguf, "-t", options.threads, "-p", PROMPT, "-n", DECODE, "-r", 1, "-o", "json"]))
    speed = {row["n_gen"] > 0: row["avg_ts"] for row in rows}
    return {"decode": speed[True], "prompt": speed[False]}


def shares(options, model):
    """Where Tandem's steps spend their time, and the read bandwidth measured beside them."""
    out = []
    for flags in (["--workload", "prompt-2k", "--prompt-tokens", PROMPT, "--output-tokens", 1],
                  ["--workload", "solo", "--prompt-tokens", 16, "--output-tokens", DECODE]):
        out.append(run([options.tandem, "bench", model, "--device", "cpu", "--cpu-threads", options.threads, "--max-requests", 1,
                        "--max-context", 2048, "--repetitions", 1, "--shares", *(["--cpu-isa", options.isa] if options.isa else []), *flags]))
    return "".join(out)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--work", type=pathlib.Path, required=True, help="folder outside the repository")
    arguments.add_argument("--tandem", type=pathlib.Path, default=ROOT / "build/release/tandem")
    arguments.add_argument("--python", default=sys.executable, help="with torch and transformers, for the conversion")
    arguments.add_argument("--threads", type=int, default=os.cpu_count())
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--isa", help="cap Tandem's instruction set in everything, as in avx512bf16 (llama.cpp uses what it was built for)")
    arguments.add_argument("--below-amx", default="avx512bf16", help="caps under which the prompt is measured again, with commas; empty: none")
    arguments.add_argument("--json", type=pathlib.Path)
    options = arguments.parse_args()
    options.work = options.work.resolve()
    if ROOT in (options.work, *options.work.parents):
        arguments.error("--work lies inside the repository")
    options.work.mkdir(parents=True, exist_ok=True)
    model, gguf, program = prepare(options.work, options)

    caps = [cap for cap in options.below_amx.split(",") if cap]
    rounds = []
    for number in range(options.rounds):
        load = os.getloadavg()[0]
        one = {"load": load, "tandem": tandem(options, model, options.work, options.isa), "llama.cpp": llama(options, gguf, program)}
        for cap in caps:
            one["tandem, " + cap] = tandem(options, model, options.work, cap, decode=False)
        rounds.append(one)
        ours, theirs = one["tandem"], one["llama.cpp"]
        print(f"round {number + 1} (load {load:.1f}): decode {ours['decode']:.2f} against {theirs['decode']:.2f} tokens/s, prompt {ours['prompt']:.1f} "
              f"against {theirs['prompt']:.1f}" + "".join(f"; {cap} {one['tandem, ' + cap]['prompt']:.1f}" for cap in caps), flush=True)

    def ratio(name, what):
        return statistics.median(one[name][what] / one["llama.cpp"][what] for one in rounds)

    def best(name, what):
        return max(one[name][what] for one in rounds)

    weights = gguf.stat().st_size
    ratios = {"decode": ratio("tandem", "decode"), "prompt": ratio("tandem", "prompt")}
    ratios.update({"prompt, " + cap: ratio("tandem, " + cap, "prompt") for cap in caps})
    print(f"SUMMARY 0.8B bf16, {options.threads} threads, median ratio of {options.rounds} rounds: decode {ratios['decode']:.2f}x (wanted >= "
          f"{WANTED['decode']}), {PROMPT}-token prompt {ratios['prompt']:.2f}x (wanted >= {WANTED['prompt']})"
          + "".join(f", with {cap} only {ratios['prompt, ' + cap]:.2f}x (wanted >= {WANTED['prompt capped']} without AMX)" for cap in caps))
    print(f"best: decode {best('tandem', 'decode'):.2f} tokens/s (about {best('tandem', 'decode') * weights / 1e9:.1f} GB/s of weights) against "
          f"{best('llama.cpp', 'decode'):.2f}, prompt {best('tandem', 'prompt'):.1f} against {best('llama.cpp', 'prompt'):.1f}")
    print(shares(options, model), end="")
    if options.json:
        options.json.write_text(json.dumps({"threads": options.threads, "prompt": PROMPT, "decode": DECODE, "rounds": rounds,
                                            "median_ratios": ratios}, indent=1) + "\n")


if __name__ == "__main__":
    main()
