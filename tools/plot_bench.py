#!/usr/bin/env python3
"""Draws what `tandem bench --json` wrote, as SVG; no library beyond Python's own.

    python3 tools/plot_bench.py one.json [other.json ...] -o bench.svg

One picture a file's worth of workloads: TTFT, TPOT and output tokens per second, a bar for each file, named like it.
"""

import argparse
import html
import json
import pathlib

COLOURS = ("#2a6a58", "#c77b30", "#4a6fa5", "#9a4f8c", "#7d7d3a")
PANELS = (("TTFT, ms (p50, whisker p99)", "ttft_ms"), ("TPOT, ms (p50, whisker p99)", "tpot_ms"), ("output tokens/s", "output_tokens_per_second"))
ROW, BAR, LEFT, WIDTH, GAP = 16, 13, 130, 420, 34


def value_of(report, key):
    """(value, whisker or None)"""
    found = report.get(key)
    if isinstance(found, dict):
        return found.get("p50", 0), found.get("p99")
    return (found or 0), None


def shown(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def panel(title, key, names, files, top):
    lines = [f'<text x="8" y="{top + 13}" class="title">{html.escape(title)}</text>']
    y = top + 24
    values = [value_of(report, key) for reports in files.values() for report in reports.values()]
    largest = max((max(value, whisker or 0) for value, whisker in values), default=0) or 1
    for name in names:
        lines.append(f'<text x="{LEFT - 8}" y="{y + ROW * len(files) / 2 + 4:.0f}" class="name">{html.escape(name)}</text>')
        for colour, reports in zip(COLOURS * 9, files.values()):
            if name in reports:
                value, whisker = value_of(reports[name], key)
                long = value / largest * WIDTH
                end = long
                lines.append(f'<rect x="{LEFT}" y="{y}" width="{long:.1f}" height="{BAR}" fill="{colour}"/>')
                if whisker and whisker > value:
                    end = whisker / largest * WIDTH
                    lines.append(f'<path d="M{LEFT + long:.1f} {y + BAR / 2}H{LEFT + end:.1f}m0 -4v8" class="whisker"/>')
                lines.append(f'<text x="{LEFT + end + 5:.1f}" y="{y + 11}" class="value">{shown(value)}</text>')
            y += ROW
        y += 6
    return lines, y + GAP - 20


def draw(files):
    names = []
    for reports in files.values():
        names += [name for name in reports if name not in names]
    body, y = [], 34
    x = LEFT
    for colour, label in zip(COLOURS * 9, files):
        body.append(f'<rect x="{x}" y="10" width="12" height="12" fill="{colour}"/><text x="{x + 17}" y="20" class="value">{html.escape(label)}</text>')
        x += 40 + 7 * len(label)
    for title, key in PANELS:
        lines, y = panel(title, key, names, files, y)
        body += lines
    style = ("text{font:12px system-ui,sans-serif;fill:#222}.title{font-weight:600}.name{text-anchor:end}.value{font-size:11px}"
             ".whisker{stroke:#555;fill:none}svg{background:#fff}")
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 90}" height="{y}" viewBox="0 0 {LEFT + WIDTH + 90} {y}">'
            f"<style>{style}</style><rect width='100%' height='100%' fill='#fff'/>" + "".join(body) + "</svg>\n")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("files", nargs="+", type=pathlib.Path)
    arguments.add_argument("-o", "--out", type=pathlib.Path, default=pathlib.Path("bench.svg"))
    options = arguments.parse_args()
    files = {}
    for file in options.files:
        try:
            files[file.stem] = {report["workload"]: report for report in json.loads(file.read_text())}
        except (OSError, ValueError) as error:
            arguments.error(f"{file}: {getattr(error, 'strerror', None) or f'not JSON: {error}'}")
        except (TypeError, KeyError):
            arguments.error(f"{file} has no reports as `tandem bench --json` writes them")
    options.out.write_text(draw(files))
    print(f"{options.out}: {sum(map(len, files.values()))} reports")


if __name__ == "__main__":
    main()
