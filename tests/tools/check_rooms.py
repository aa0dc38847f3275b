#!/usr/bin/env python3
"""Given the graph of rooms in docs/architecture.md, a room includes exactly the rooms that its row names, and rooms above it alone.

A room is a folder of src/, or cli or bench. A public header belongs to the room that implements it, so including <octet/tensor.h> is
including that room; octet.h, which is all of them, is for programs outside. The drawing above the table has the same edges, without
those that follow from others. The files that the page names are there. Besides: every public header compiles alone, in C11 and in
C++17; only base/alloc.c calls malloc; no files of the libraries need each other in a circle.

usage: check_rooms.py SOURCE_ROOT CC CXX ARCHIVE...
CC and CXX are commands, so "ccache gcc" is one.
"""
import pathlib
import re
import shlex
import subprocess
import sys

HEAP = re.compile(r"(?<![\w>.])(malloc|calloc|realloc|aligned_alloc|posix_memalign)\(")


class Rooms:
    """What docs/architecture.md says: `includes` and `headers` by room, in the table's order, and the edges that it draws."""

    def __init__(self, text):
        self.includes, self.headers = {}, {}
        table = re.search(r"^\| room \| includes \| public headers \|\n\|[-| ]+\|\n((?:\|.*\n)+)", text, re.M)
        for row in table[1].splitlines():
            room, includes, headers = (re.findall(r"`([\w./]+)`", cell) for cell in row.strip("|").split("|"))
            self.includes[room[0]], self.headers[room[0]] = includes, headers
        drawing = re.search(r"^```mermaid\n(.*?)^```", text, re.M | re.S)
        self.drawn = {(a, b) for a, others in re.findall(r"^ +(\w+) --> (.*)$", drawing[1], re.M) for b in others.split(" & ")}

    def of_header(self, name):
        return next((room for room, headers in self.headers.items() if name in headers), None)

    def reached(self, room):
        return set(self.includes[room]).union(*(self.reached(other) for other in self.includes[room]))

    def to_draw(self):
        return {(room, other) for room, includes in self.includes.items() for other in includes
                if not any(other in self.reached(between) for between in includes)}

    def failures(self, root):
        """What is wrong with the graph by itself."""
        folders = re.findall(r"^subdir\('(\w+)'\)", (root / "src/meson.build").read_text(), re.M)
        if [room for room in self.includes if room not in ("bench", "cli")] != folders:
            yield f"the rooms are {' '.join(self.includes)}; src/meson.build has {' '.join(folders)}"
        above = set()
        for room, includes in self.includes.items():
            yield from (f"{room} may include {other}, which isn't above it" for other in includes if other not in above)
            above.add(room)
        public = {header.name for header in (root / "include/octet").glob("*.h")} - {"octet.h"}
        owned = [header for headers in self.headers.values() for header in headers]
        if sorted(owned) != sorted(public):
            yield f"the public headers of rooms are {' '.join(owned)}; include/octet has {' '.join(sorted(public))}"


def room_of(file, root):
    parts = file.relative_to(root).parts
    return parts[1] if parts[0] == "src" else parts[0]


def included_room(rooms, file, name, public, root):
    """The room that an include leads to; None: the system's."""
    if public:
        return rooms.of_header(name[len("octet/"):]) or name if name.startswith("octet/") else None
    for folder in (root / "src", file.parent, root / "bench"):
        if (folder / name).exists():
            return room_of(folder / name, root)
    return name.split("/")[0]  # made by the build, next to its room's files


def source_files(root):
    return [file for folder in ("src", "cli", "bench") for file in sorted((root / folder).rglob("*"))
            if file.suffix in (".c", ".h", ".cpp", ".inc")]


def edges(rooms, root):
    """{(room, room it includes): the first file that does}"""
    found = {}
    owned = [(rooms.of_header(header.name), header) for header in sorted((root / "include/octet").glob("*.h"))]
    for room, file in [(room_of(file, root), file) for file in source_files(root)] + owned:
        for bracket, name in re.findall(r'^#include ([<"])([^">]+)', file.read_text(), re.M):
            other = included_room(rooms, file, name, bracket == "<", root)
            if room and other and other != room:
                found.setdefault((room, other), file.relative_to(root))
    return found


def wrong_edges(rooms, root):
    found = edges(rooms, root)
    for (room, other), file in found.items():
        if other not in rooms.includes.get(room, []):
            yield f"{file}: {room} includes {other}, which docs/architecture.md doesn't allow"
    for room, includes in rooms.includes.items():
        yield from (f"docs/architecture.md: {room} may include {other}, but doesn't" for other in includes if (room, other) not in found)


def missing_files(root):
    """Files that docs/architecture.md names and that aren't there; the kernels' are named from their room."""
    text = (root / "docs/architecture.md").read_text()
    for name in sorted(set(re.findall(r"`([\w.]+/[\w./]+\.(?:c|h|py))`", text))):
        if not any((folder / name).is_file() for folder in (root, root / "src", root / "src/kernel")):
            yield f"docs/architecture.md: there is no {name}"


def heap_calls(root):
    for file in source_files(root):
        if file.is_relative_to(root / "src") and file.name != "alloc.c":
            if HEAP.search(re.sub(r"/\*.*?\*/", "", file.read_text(), flags=re.S)):
                yield f"{file.relative_to(root)}: calls the heap; base/alloc.h is its only door"


def headers_that_need_more(root, cc, cxx):
    for header in sorted((root / "include/octet").glob("*.h")):
        for command in (cc + ["-std=c11", "-x", "c"], cxx + ["-std=c++17", "-x", "c++"]):
            run = subprocess.run(command + ["-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{root / 'include'}", "-"],
                                 input=f"#include <octet/{header.name}>\n", text=True, capture_output=True)
            if run.returncode:
                yield f"{header.name}: {' '.join(command[:2])}: {run.stderr.strip().splitlines()[0]}"


class Objects:
    """What the objects of archives define and want."""

    def __init__(self, archives):
        self.owner, self.wanted, unit = {}, {}, None
        for line in subprocess.run(["nm", *archives], text=True, capture_output=True, check=True).stdout.splitlines():
            words = line.split()
            if line.endswith(".o:"):
                unit = line[:-1]
                self.wanted[unit] = set()
            elif unit and len(words) == 2 and words[0] == "U":
                self.wanted[unit].add(words[1])
            elif unit and len(words) == 3 and words[1] in "TDBRVWC":
                self.owner.setdefault(words[2], unit)

    def circle(self):
        """Objects that need each other in a circle."""
        graph = {unit: {self.owner[name] for name in names if name in self.owner} - {unit} for unit, names in self.wanted.items()}
        while free := [unit for unit, others in graph.items() if not others & graph.keys()]:
            for unit in free:  # it needs nobody who is left
                del graph[unit]
        while free := [unit for unit in graph if not any(unit in others for others in graph.values())]:
            for unit in free:  # nobody who is left needs it
                del graph[unit]
        if graph:
            yield "these need each other in a circle: " + ", ".join(sorted(graph))

    def strangers(self, rooms, root):
        """Public functions that another room than their header's implements."""
        for room, headers in rooms.headers.items():
            for header in headers:
                text = re.sub(r"/\*.*?\*/", "", (root / "include/octet" / header).read_text(), flags=re.S)
                for name in re.findall(r"^OCT_API [\w *]*?\b(oct_\w+)\(", text, re.M):
                    if not self.owner.get(name, "").startswith(f"src_{room}_"):
                        yield f"{header}: {name} isn't implemented in {room}"


def main():
    root = pathlib.Path(sys.argv[1])
    cc, cxx, archives = shlex.split(sys.argv[2]), shlex.split(sys.argv[3]), sys.argv[4:]
    rooms = Rooms((root / "docs/architecture.md").read_text())
    failures = list(rooms.failures(root))
    if not failures:
        failures += [f"docs/architecture.md draws {a} --> {b}, which {'the table lacks' if (a, b) in rooms.drawn else 'it should'}"
                     for a, b in sorted(rooms.drawn ^ rooms.to_draw())]
    objects = Objects(archives)
    for found in (wrong_edges(rooms, root), missing_files(root), heap_calls(root), headers_that_need_more(root, cc, cxx),
                  objects.circle(), objects.strangers(rooms, root)):
        failures += found
    print("\n".join(failures) or f"{len(rooms.includes)} rooms, {len(source_files(root))} files: in order")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
