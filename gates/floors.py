"""The figures that a GPU machine must reach, against what gates/device.sh left in a folder.

    python3 gates/floors.py FOLDER

Prints a line for each figure at hand: gate, pass or FAIL, figure and floor, with tabs between. Floors are for the
fabricated Qwen3.5-4B geometry on one H200; the targets beyond them stand in docs/benchmarks.
"""

import json
import re
import sys
from pathlib import Path

# workload, what, where in its report, unit, floor. A throughput must be at least its floor, a time at most. All of them
# with the same settings, the defaults.
REPORTS = "workloads.json"
WORKLOADS = [
    ("solo", "TPOT", ("tpot_ms", "p50"), "ms", 2.6),
    ("solo", "TTFT", ("ttft_ms", "p50"), "ms", 20),
    ("prompt-8k", "TTFT", ("ttft_ms", "p50"), "ms", 120),
    ("batch-8", "step", ("decode_step_ms",), "ms", 3.92),
    ("batch-64", "step", ("decode_step_ms",), "ms", 5.5),
    ("mixed", "ITL p99.9", ("itl_ms", "p99_9"), "ms", 20),
    ("mixed", "long prompt TTFT", ("long_prompt_ttft_ms", "mean"), "ms", 185),
    ("batch-128", "output", ("output_tokens_per_second",), "tok/s", 10500),
    ("saturate", "total", ("total_tokens_per_second",), "tok/s", 33000),
]
# row of cuda_operators_bench, its column, unit, floor
OPERATORS = [
    (r"delta decode rows:64\b", "us", 80),
    (r"delta prefill T:8192\b", "us", 600),
    (r"attention prefill T:8192 past:0\b", "TFLOP/s", 450),
]


def line(gate: str, figure: float, unit: str, floor: float) -> None:
    at_least = unit in ("tok/s", "TFLOP/s")
    good = figure >= floor if at_least else figure <= floor
    print(f"{gate}\t{'pass' if good else 'FAIL'}\t{figure:.{0 if figure >= 1000 else 2}f} {unit} ({'at least' if at_least else 'at most'} {floor:g})")


def main() -> None:
    folder = Path(sys.argv[1])
    if (folder / REPORTS).exists():
        reports = {report["workload"]: report for report in json.loads((folder / REPORTS).read_text())}
        for workload, what, path, unit, floor in WORKLOADS:
            value = reports.get(workload)
            for key in path if value else ():
                value = value[key]
            if value is None:
                print(f"{workload} {what}\tFAIL\tno such figure in {REPORTS}")
            else:
                line(f"{workload} {what}", value, unit, floor)
    elif (folder / "workloads.txt").exists():
        print("workloads\tFAIL\tno figures; see workloads.txt")
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
