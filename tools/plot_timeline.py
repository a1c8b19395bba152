"""Reads what gates/trace recorded of a decoding stream: where a step's time goes, and a picture of one step.

    python3 tools/plot_timeline.py TRACE.csv [--graphs GRAPHS.csv] [--svg docs/images/decode-step.svg] [--json OUT.json]

A step is one launch of a recorded graph (a CUDA graph); what the host sends between two of them (the step's metadata and
the page table's updates) stands in the gap. Prints launches a step, the time its kernels are busy, the idle time between
them, the gap to the next step and the idle part of it, and every kernel's share. Gaps are read off GRAPHS.csv, a trace
in which a step is one activity, since tracing every kernel makes launches slow. Needs no packages.

A kernel that is launched early (programmatic launch) waits beside the one before it, or fetches what does not depend on it.
Its own time begins when those launched before it have ended: that is what is summed, and drawn at full height; the time
before is a thin strip. So the own times of a step add up to the time in which something ran.
"""

import argparse
import collections
import csv
import json
import re
import statistics
from pathlib import Path

COLOURS = {"linear": "#4269d0", "delta": "#3ca951", "attention": "#ff725c", "norm": "#efb118", "head and sampling": "#a463f2",
           "copy, fill": "#9c6b4e", "other": "#9498a0"}


def short(name: str) -> str:
    """The kernel's own name, without namespaces, template arguments and parameters; mangled or not."""
    if name.startswith("_Z"):
        parts, at = [], 0
        text = re.sub(r"^_ZN?K?", "", name)
        while (found := re.match(r"(\d+)", text[at:])):
            begin = at + len(found.group(1))
            size = int(found.group(1))
            parts.append(text[begin:begin + size])
            at = begin + size
        return next((part for part in reversed(parts) if not part.startswith("_GLOBAL")), name)
    name = name.replace("(anonymous namespace)::", "").removeprefix("void ")
    return re.sub(r"<.*|\(.*", "", name).split("::")[-1].split(" ")[-1] or name


def kind(name: str) -> str:
    low = name.lower()
    for words, group in ((("nvjet", "splitkreduce"), "linear"), (("delta", "gated", "conv"), "delta"),
                         (("attention", "attn", "rotary", "split", "combine", "prepare"), "attention"),
                         (("sample", "logit", "argmax", "head", "gather", "widen", "penal", "count", "store_last", "note"), "head and sampling"),
                         (("nvjet", "gemm", "cublas", "cutlass", "linear", "gemv", "stream", "block", "swiglu", "product"), "linear"),
                         (("norm", "embed"), "norm")):
        if any(word in low for word in words):
            return group
    return "copy, fill" if low in ("fill", "host to device", "device to host", "on the device") else "other"


def read(path: Path) -> list[dict]:
    with path.open(encoding="utf-8", errors="replace") as file:
        rows = [row for row in csv.reader(file) if len(row) >= 6]
    made = [{"start": int(r[0]), "end": int(r[1]), "kind": r[2], "graph": int(r[3]), "launch": int(r[4]), "name": short(",".join(r[5:]))}
            for r in rows]
    return sorted(made, key=lambda a: a["start"])


def steps_of(activities: list[dict]) -> list[list[dict]]:
    launches = collections.OrderedDict()
    for activity in activities:
        if activity["graph"]:
            launches.setdefault(activity["launch"], []).append(activity)
    steps = sorted(launches.values(), key=lambda step: step[0]["start"])
    for step in steps:
        until = 0
        for activity in step:
            activity["alone"] = min(max(activity["start"], until), activity["end"])
            until = max(until, activity["end"])
    return steps


def middle(values) -> float:
    return statistics.median(values) if values else 0.0


def busy(activities: list[dict]) -> int:
    """Nanoseconds in which at least one runs."""
    total, until = 0, 0
    for a in activities:
        total += max(0, a["end"] - max(a["start"], until))
        until = max(until, a["end"])
    return total


def figures(activities: list[dict], steps: list[list[dict]]) -> dict:
    starts = [step[0]["start"] for step in steps]
    ends = [max(a["end"] for a in step) for step in steps]
    between, at = [], 0
    for end, start in zip(ends, starts[1:]):
        while at < len(activities) and activities[at]["start"] < end:
            at += 1
        inside = []
        while at < len(activities) and activities[at]["start"] < start:
            inside.append(activities[at])
            at += 1
        between.append({"gap": (start - end) / 1000, "sent": len(inside), "idle": (start - end - busy(inside)) / 1000})
    # A pause in which nothing was asked for (between two streams) is no gap of the host's.
    decode = [b for b in between if b["gap"] < 5000]
    spans = [(end - start) / 1000 for start, end in zip(starts, ends)]
    works = [busy(step) / 1000 for step in steps]
    gaps = sorted(b["gap"] for b in decode)
    by_name = collections.defaultdict(list)
    for step in steps:
        for a in step:
            by_name[a["name"]].append((a["end"] - a["alone"]) / 1000)
    return {
        "steps": len(steps),
        "activities_a_step": middle([len(step) for step in steps]),
        "sent_between_two_steps": middle([b["sent"] for b in decode]),
        "step_us": middle(spans),
        "busy_us": middle(works),
        "idle_inside_us": middle([span - work for span, work in zip(spans, works)]),
        "gap_us": middle(gaps),
        "gap_p99_us": gaps[int(0.99 * (len(gaps) - 1))] if gaps else 0.0,
        "idle_between_us": middle([b["idle"] for b in decode]),
        "kernels": sorted(({"name": name, "kind": kind(name), "a_step": len(times) / len(steps), "us_each": middle(times),
                            "us_a_step": sum(times) / len(steps)} for name, times in by_name.items()), key=lambda k: -k["us_a_step"]),
    }


def picture(step: list[dict], title: str) -> str:
    begin, end = step[0]["start"], max(a["end"] for a in step)
    width, left, lane_height, rows = 1200, 10, 34, 4
    part = (end - begin) / rows
    used = [group for group in COLOURS if any(kind(a["name"]) == group for a in step)]
    total = 64 + rows * (lane_height + 30)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width + 2 * left} {total}" font-family="sans-serif" font-size="13">',
           f'<rect width="100%" height="100%" fill="white"/><text x="{left}" y="20" font-size="15">{title}</text>']
    for i, group in enumerate(used):
        out.append(f'<rect x="{left + i * 165}" y="32" width="12" height="12" fill="{COLOURS[group]}"/><text x="{left + 17 + i * 165}" y="43">{group}</text>')
    for row in range(rows):
        y, low = 58 + row * (lane_height + 30), begin + row * part
        out.append(f'<rect x="{left}" y="{y}" width="{width}" height="{lane_height}" fill="#f2f2f2"/>')
        for a in step:
            for first, last, height, top in ((a["start"], a["alone"], 5, lane_height + 1), (a["alone"], a["end"], lane_height, 0)):
                x0 = max(first, low) - low
                x1 = min(last, low + part) - low
                if x1 > x0:
                    early = (a["alone"] - a["start"]) / 1000
                    note = f"{a['name']} {(a['end'] - a['alone']) / 1000:.1f} us" + (f", launched {early:.1f} us before" if early > 0 else "")
                    out.append(f'<rect x="{left + x0 / part * width:.2f}" y="{y + top}" width="{max((x1 - x0) / part * width, 0.4):.2f}" height="{height}" '
                               f'fill="{COLOURS[kind(a["name"])]}"><title>{note}</title></rect>')
        for tick in range(5):
            x = left + tick / 4 * width
            anchor = "start" if tick == 0 else "end" if tick == 4 else "middle"
            out.append(f'<text x="{x:.0f}" y="{y + lane_height + 19}" text-anchor="{anchor}" fill="#555">{(low - begin + tick / 4 * part) / 1000:.0f} us</text>')
    return "\n".join(out) + "\n</svg>\n"


def main() -> None:
    parse = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parse.add_argument("trace", type=Path)
    parse.add_argument("--graphs", type=Path, help="a trace of the same made with TANDEM_TRACE_GRAPHS=1")
    parse.add_argument("--svg", type=Path)
    parse.add_argument("--json", type=Path)
    parse.add_argument("--title", default="One decode step")
    args = parse.parse_args()
    activities = read(args.trace)
    launches = steps_of(activities)
    # Steps of the commonest shape: those recorded for fewer or more rows, and start-up's, are others.
    shape = collections.Counter(len(step) for step in launches).most_common(1)
    steps = [step for step in launches if shape and len(step) == shape[0][0]]
    if not steps:
        raise SystemExit(f"{args.trace}: {len(activities)} activities, none in a recorded step")
    result = figures(activities, steps)
    if args.graphs:
        whole = read(args.graphs)
        light = figures(whole, steps_of(whole))
        result |= {key: light[key] for key in ("sent_between_two_steps", "step_us", "gap_us", "gap_p99_us", "idle_between_us")}
        result["idle_inside_us"] = max(0.0, result["step_us"] - result["busy_us"])
    print(f"{result['steps']} steps of {result['activities_a_step']:.0f} activities, {result['sent_between_two_steps']:.0f} more sent before each; "
          f"step {result['step_us']:.0f} us, its kernels {result['busy_us']:.0f}; "
          f"gap {result['gap_us']:.1f} us (p99 {result['gap_p99_us']:.1f}), idle in it {result['idle_between_us']:.1f}")
    for k in result["kernels"]:
        print(f"  {k['us_a_step']:8.1f} us a step  {k['a_step']:5.1f} x {k['us_each']:7.2f} us  {k['kind']:<17} {k['name'][:70]}")
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if args.svg:
        middle_one = sorted(steps, key=lambda step: max(a["end"] for a in step) - step[0]["start"])[len(steps) // 2]
        args.svg.write_text(picture(middle_one, f"{args.title}: {result['activities_a_step']:.0f} launches, {result['step_us'] / 1000:.2f} ms"), encoding="utf-8")


if __name__ == "__main__":
    main()
