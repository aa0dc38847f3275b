"""The signal-to-noise ratio of ordinary elements beside a few outliers, over the size of those: a table, and a plot as SVG.

usage: sqnr_curve.py [OUT.svg]"""
import sys

import numpy as np

import octet

RECIPES = {"mxfp8": "#1f77b4", "hif8": "#d62728", "e4m3:tensor": "#2ca02c", "e4m3:1x128": "#9467bd"}
x = np.random.default_rng(0).standard_normal((256, 1024)).astype(np.float32)
outliers = np.random.default_rng(1).random(x.shape) < 1e-4
sizes = [2.0 ** k for k in range(0, 15, 2)]


def sqnr_db(recipe, size):
    y = np.where(outliers, x * np.float32(size), x)
    noise = (y - octet.quantize(y, recipe).dequantize())[~outliers]
    return 10 * np.log10(np.sum(y[~outliers].astype(np.float64) ** 2) / np.sum(noise.astype(np.float64) ** 2))


curves = {recipe: [sqnr_db(recipe, size) for size in sizes] for recipe in RECIPES}
print("outliers times  " + "".join(f"{recipe:>14}" for recipe in curves))
for i, size in enumerate(sizes):
    print(f"{size:14g}  " + "".join(f"{curve[i]:11.2f} dB" for curve in curves.values()))

if len(sys.argv) > 1:
    low, high = min(map(min, curves.values())), max(map(max, curves.values()))
    lines = []
    for row, (recipe, curve) in enumerate(curves.items()):
        points = " ".join(f"{40 + 70 * i},{280 - 250 * (db - low) / (high - low):.1f}" for i, db in enumerate(curve))
        lines.append(f'<polyline points="{points}" fill="none" stroke="{RECIPES[recipe]}" stroke-width="2"/>'
                     f'<text x="450" y="{30 + 18 * row}" fill="{RECIPES[recipe]}">{recipe}</text>')
    with open(sys.argv[1], "w") as file:
        file.write('<svg xmlns="http://www.w3.org/2000/svg" width="580" height="310" font-family="sans-serif" font-size="12">'
                   f'{"".join(lines)}<text x="40" y="305">outliers 1 to {sizes[-1]:g} times; {low:.1f} to {high:.1f} dB</text></svg>\n')
