#!/usr/bin/env python3
"""Given the list of rooms in src/meson.build, a room includes only itself and rooms above it in the list; every public
header compiles alone, in C11 and in C++17; only base/alloc.c calls malloc; no files of the library need each other in a circle.

usage: check_rooms.py SOURCE_ROOT CC CXX ARCHIVE...
CC and CXX are commands, so "ccache gcc" is one.
"""
import pathlib
import re
import shlex
import subprocess
import sys

root = pathlib.Path(sys.argv[1])
cc, cxx, archives = shlex.split(sys.argv[2]), shlex.split(sys.argv[3]), sys.argv[4:]
failures = []

order = re.findall(r"^subdir\('(\w+)'\)", (root / "src/meson.build").read_text(), re.M)
files = [f for f in (root / "src").rglob("*") if f.suffix in (".c", ".h", ".cpp", ".inc")]
for file in files:
    room = file.relative_to(root / "src").parts[0]
    text = file.read_text()
    for included in re.findall(r'^#include "([^"]+)"', text, re.M):
        other = included.split("/")[0]
        if "/" in included and other in order and order.index(other) > order.index(room):
            failures.append(f"{file.relative_to(root)}: room {room} includes {included}, which is below it")
    if file.name != "alloc.c" and re.search(r"(?<![\w>.])(malloc|calloc|realloc|aligned_alloc|posix_memalign)\(", re.sub(r"/\*.*?\*/", "", text, flags=re.S)):
        failures.append(f"{file.relative_to(root)}: calls the heap; base/alloc.h is its only door")

for header in sorted((root / "include/octet").glob("*.h")):
    for command in (cc + ["-std=c11", "-x", "c"], cxx + ["-std=c++17", "-x", "c++"]):
        source = f"#include <octet/{header.name}>\n"
        run = subprocess.run(command + ["-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{root / 'include'}", "-"],
                             input=source, text=True, capture_output=True)
        if run.returncode:
            failures.append(f"{header.name}: {' '.join(command[:2])}: {run.stderr.strip().splitlines()[0]}")


def needs(archives):
    """Which objects of the archives take names from which others."""
    owner, wanted, unit = {}, {}, None
    for line in subprocess.run(["nm", *archives], text=True, capture_output=True, check=True).stdout.splitlines():
        words = line.split()
        if line.endswith(".o:"):
            unit = line[:-1]
            wanted[unit] = set()
        elif unit is None:
            continue
        elif len(words) == 2 and words[0] == "U":
            wanted[unit].add(words[1])
        elif len(words) == 3 and words[1] in "TDBRVWC":
            owner.setdefault(words[2], unit)
    return {unit: {owner[name] for name in names if name in owner} - {unit} for unit, names in wanted.items()}


graph = needs(archives)
while free := [unit for unit, others in graph.items() if not others & graph.keys()]:
    for unit in free:  # it needs nobody who is left
        del graph[unit]
while free := [unit for unit in graph if not any(unit in others for others in graph.values())]:
    for unit in free:  # nobody who is left needs it
        del graph[unit]
if graph:
    failures.append("these need each other in a circle: " + ", ".join(sorted(graph)))

print("\n".join(failures) or f"{len(order)} rooms, {len(files)} files: in order")
sys.exit(1 if failures else 0)
