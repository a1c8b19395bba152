"""Reads what gates/trace recorded with TANDEM_TRACE_GRAPHS=1: the steps outside recorded graphs, which are those with prompt chunks.

    python3 tools/step_table.py TRACE.csv [--list 40]

A step begins with the embedding's kernel. Steps are grouped by their time; for each group prints the time from the first
kernel's start to the last one's end, the time kernels run, the longest wait between two, and every kernel's share. --list
also prints single steps in order, with the time that the device waited since the one before. Needs no packages.
"""

import argparse
import collections
import statistics
from pathlib import Path

from plot_timeline import kind, read

FEWEST_KERNELS = 100  # start-up and cut-off steps have fewer


def steps_of(activities: list[dict]) -> list[list[dict]]:
    """The kernels of each step; a graph's launch ends one."""
    steps: list[list[dict]] = []
    current: list[dict] | None = None
    for activity in activities:
        if activity["kind"] == "graph":
            current = None
        elif activity["kind"] == "kernel":
            if "embed" in activity["name"].lower():
                current = []
                steps.append(current)
            if current is not None:
                current.append(activity)
    return [step for step in steps if len(step) >= FEWEST_KERNELS]


def span_ms(step: list[dict]) -> float:
    return (step[-1]["end"] - step[0]["start"]) / 1e6


def busy_ms(step: list[dict]) -> float:
    """The time in which at least one kernel runs."""
    total, until = 0, 0
    for kernel in step:
        total += max(0, kernel["end"] - max(kernel["start"], until))
        until = max(until, kernel["end"])
    return total / 1e6


def longest_wait_us(step: list[dict]) -> float:
    return max(b["start"] - a["end"] for a, b in zip(step, step[1:])) / 1e3


def print_group(group: list[list[dict]]) -> None:
    median = lambda of: statistics.median(of(step) for step in group)  # noqa: E731
    print(f"\n{len(group)} steps of {median(span_ms):.2f} ms, kernels {median(busy_ms):.2f} ms, longest wait {median(longest_wait_us):.0f} us (medians)")
    time, count = collections.Counter(), collections.Counter()
    for kernel in (kernel for step in group for kernel in step):
        time[kernel["name"]] += kernel["end"] - kernel["start"]
        count[kernel["name"]] += 1
    for name, nanoseconds in time.most_common(20):
        print(f"  {nanoseconds / len(group) / 1e3:9.1f} us  {count[name] / len(group):6.1f} x  {kind(name):18}  {name[:56]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--list", type=int, default=0, metavar="N", help="also print the first N steps one by one")
    options = parser.parse_args()
    activities = read(options.trace)
    steps = steps_of(activities)
    if not steps:
        raise SystemExit(f"{options.trace}: no step outside recorded graphs; was it recorded with TANDEM_TRACE_GRAPHS=1?")
    print(f"{len(steps)} steps with prompt chunks")
    ends = sorted(a["end"] for a in activities)
    at = 0
    for step in steps[: options.list]:
        while at < len(ends) and ends[at] <= step[0]["start"]:
            at += 1
        idle = (step[0]["start"] - ends[at - 1]) / 1e3 if at else 0.0
        print(f"  at {(step[0]['start'] - steps[0][0]['start']) / 1e6:9.2f} ms  {span_ms(step):8.2f} ms  kernels {busy_ms(step):8.2f} ms  {len(step)} kernels  "
              f"longest wait {longest_wait_us(step):6.0f} us  idle before {idle:6.0f} us")
    groups = collections.defaultdict(list)
    for step in steps:
        groups[round(span_ms(step) / 2)].append(step)
    for key in sorted(groups):
        if len(groups[key]) >= 3:
            print_group(groups[key])


if __name__ == "__main__":
    main()
