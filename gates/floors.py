"""The figures that a GPU machine must reach, against what gates/device.sh left in a folder.

    python3 gates/floors.py FOLDER

Prints a line for each figure at hand: gate, pass or FAIL, figure and floor, with tabs between. Floors are for the
fabricated Qwen3.5-4B geometry on one H200; the targets beyond them stand in docs/benchmarks.
"""

import json
import re
import sys
from pathlib import Path

# file, workload, what, where in its report, unit, floor. A throughput must be at least its floor, a time at most.
DEFAULTS, THROUGHPUT = "workloads.json", "workloads-2048.json"
WORKLOADS = [
    (DEFAULTS, "solo", "TPOT", ("tpot_ms", "p50"), "ms", 2.6),
    (DEFAULTS, "solo", "TTFT", ("ttft_ms", "p50"), "ms", 20),
    (DEFAULTS, "prompt-8k", "TTFT", ("ttft_ms", "p50"), "ms", 120),
    (DEFAULTS, "batch-8", "step", ("decode_step_ms",), "ms", 3.92),
    (DEFAULTS, "batch-64", "step", ("decode_step_ms",), "ms", 5.5),
    (DEFAULTS, "mixed", "ITL p99.9", ("itl_ms", "p99_9"), "ms", 20),
    (DEFAULTS, "mixed", "long prompt TTFT", ("long_prompt_ttft_ms", "mean"), "ms", 185),
    (THROUGHPUT, "batch-128", "output", ("output_tokens_per_second",), "tok/s", 10500),
    (THROUGHPUT, "saturate", "total", ("total_tokens_per_second",), "tok/s", 33000),
    (DEFAULTS, "batch-128", "output, steps of 512", ("output_tokens_per_second",), "tok/s", None),
    (DEFAULTS, "saturate", "total, steps of 512", ("total_tokens_per_second",), "tok/s", None),
]
# row of cuda_operators_bench, its column, unit, floor
OPERATORS = [
    (r"delta decode rows:64\b", "us", 80),
    (r"delta prefill T:8192\b", "us", 600),
    (r"attention prefill T:8192 past:0\b", "TFLOP/s", 450),
]


def line(gate: str, figure: float, unit: str, floor: float | None) -> None:
    if floor is None:
        print(f"{gate}\tnote\t{figure:.0f} {unit}")
        return
    at_least = unit in ("tok/s", "TFLOP/s")
    good = figure >= floor if at_least else figure <= floor
    print(f"{gate}\t{'pass' if good else 'FAIL'}\t{figure:.{0 if figure >= 1000 else 2}f} {unit} ({'at least' if at_least else 'at most'} {floor:g})")


def main() -> None:
    folder = Path(sys.argv[1])
    for name in (DEFAULTS, THROUGHPUT):
        if (folder / "workloads.txt").exists() and not (folder / name).exists():
            print(f"{name}\tFAIL\tno figures; see workloads.txt")
    for name, workload, what, path, unit, floor in WORKLOADS:
        if not (folder / name).exists():
            continue
        reports = {report["workload"]: report for report in json.loads((folder / name).read_text())}
        value = reports.get(workload)
        for key in path if value else ():
            value = value[key]
        if value is not None:
            line(f"{workload} {what}", value, unit, floor)
    if (folder / "operators.txt").exists():
        text = (folder / "operators.txt").read_text()
        for pattern, unit, floor in OPERATORS:
            found = re.search(rf"^({pattern}).*?([\d.]+) {unit}", text, re.MULTILINE)
            if found:
                line(found.group(1), float(found.group(2)), unit, floor)
            else:
                print(f"{pattern}\tFAIL\tno such row in operators.txt")
    for smoke in sorted(folder.glob("smoke-4b.txt")):
        if found := re.search(r"ready in ([\d.]+) s", smoke.read_text()):
            line("start to ready", float(found.group(1)), "s", 5)
    if (folder / "trace.json").exists():
        trace = json.loads((folder / "trace.json").read_text())
        line("host gap per decode step", trace["idle_between_us"], "us", 100)
        print(f"launches of a decode step\tnote\t{trace['activities_a_step']:.0f} in one graph, {trace['sent_between_two_steps']:.0f} sent before it; "
              f"kernels {trace['busy_us']:.0f} of {trace['step_us']:.0f} us")


if __name__ == "__main__":
    main()
