#!/usr/bin/env python3
"""Given the list of what API 1 gives (api-1.txt), the headers and the shared library still give all of it, unchanged, and nothing that
the list doesn't have: API 1 only grows, and the list grows with it.

usage: check_api.py SOURCE_ROOT LIBRARY [--write]

A line of the list is a declaration, a struct's field in its order, an enumerator with its value, a macro.
"""
import pathlib
import re
import subprocess
import sys

ROOT, LIBRARY = pathlib.Path(sys.argv[1]), sys.argv[2]
LIST = ROOT / "tests/api/api-1.txt"


def bare(text):
    """Without comments and what only the preprocessor reads."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S).replace("\\\n", " ")
    text = re.sub(r'#ifdef __cplusplus\n(?:extern "C" \{|\})\n#endif', "", text)
    return re.sub(r"^#(?!define OCT_).*$", "", text, flags=re.M)


def statements(text):
    """Up to a semicolon outside of braces, in one line each."""
    start = depth = 0
    for i, letter in enumerate(text):
        depth += (letter == "{") - (letter == "}")
        if letter == ";" and depth == 0:
            yield " ".join(text[start:i + 1].split())
            start = i + 1


def members(kind, body, name):
    separator = "," if kind == "enum" else ";"
    for i, member in enumerate(part.strip() for part in body.split(separator)):
        if member and kind == "enum":
            yield f"enum {name}: {member}" + ("" if "=" in member else " has no value of its own")
        elif member:
            yield f"struct {name}: {i + 1}: {member}"


def given():
    for header in sorted((ROOT / "include/octet").glob("*.h")):
        text = bare(header.read_text())
        for macro in re.findall(r"^#define (OCT_\w+(?: .*)?)$", text, re.M):
            if macro not in ("OCT_API",) and not macro.startswith("OCT_API __"):
                yield "macro " + " ".join(macro.split())
        for statement in statements(re.sub(r"^#.*$", "", text, flags=re.M)):
            typedef = re.fullmatch(r"typedef (enum|struct) \w+ \{(.*)\} (\w+);", statement)
            if typedef:
                yield from members(typedef[1], typedef[2], typedef[3])
            else:
                yield statement


def main():
    lines = [line for line in given() if "OCT_N_DTYPES" not in line and "OCT_QUIRKS_ALL" not in line]
    if "--write" in sys.argv:
        LIST.write_text("\n".join(lines) + "\n")
        return 0
    held = LIST.read_text().splitlines()
    wrong = [f"gone or changed: {line}" for line in held if line not in lines]
    wrong += [f"not in {LIST.name}: {line}" for line in lines if line not in held]
    shown = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], check=True, text=True, capture_output=True).stdout
    shown = {line.split()[-1] for line in shown.splitlines()}
    declared = {match[1] for line in held for match in [re.match(r"OCT_API .*?\b(oct_\w+)\(", line)] if match}
    wrong += [f"the library doesn't show {name}" for name in sorted(declared - shown)]
    wrong += [f"the library shows {name}" for name in sorted(shown - declared)]
    if len(declared) < 40:
        wrong.append(f"{len(declared)} functions in {LIST}")
    print("\n".join(wrong) or f"API 1: {len(held)} lines, {len(declared)} functions")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
