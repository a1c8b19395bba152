"""Draws the loss curve of train_tiny.py as a small SVG: tools/tiny_curve.py curve.csv OUT.svg"""

import csv
import math
import sys
from pathlib import Path

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 640, 300, 46, 34, 14


def main() -> None:
    rows = list(csv.DictReader(Path(sys.argv[1]).open()))
    tokens = [int(row["tokens"]) / 1e6 for row in rows]
    loss = [float(row["loss"]) for row in rows]
    smooth = [sum(loss[max(0, i - 9):i + 1]) / len(loss[max(0, i - 9):i + 1]) for i in range(len(loss))]
    low, high, last = math.log(0.25), math.log(8), max(tokens)
    x = lambda t: LEFT + (WIDTH - LEFT - 12) * t / last
    y = lambda v: TOP + (HEIGHT - TOP - BOTTOM) * (high - math.log(min(max(v, 0.25), 8))) / (high - low)
    path = lambda values: "M" + "L".join(f"{x(t):.1f} {y(v):.1f}" for t, v in zip(tokens, values))
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12">',
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for v in (0.25, 0.5, 1, 2, 4, 8):
        parts.append(f'<path d="M{LEFT} {y(v):.1f}H{WIDTH - 12}" stroke="#ddd"/><text x="{LEFT - 6}" y="{y(v) + 4:.1f}" text-anchor="end">{v}</text>')
    for t in range(0, int(last) + 1, 50):
        parts.append(f'<text x="{x(t):.1f}" y="{HEIGHT - 18}" text-anchor="middle">{t}</text>')
    parts += [f'<path d="{path(loss)}" fill="none" stroke="#bcd" stroke-width="1"/>', f'<path d="{path(smooth)}" fill="none" stroke="#06c" stroke-width="2"/>',
              f'<text x="{WIDTH / 2}" y="{HEIGHT - 3}" text-anchor="middle">training tokens, millions; weighted loss (nats, log scale), light: 20 steps, dark: 200 steps</text></svg>']
    Path(sys.argv[2]).write_text("\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
