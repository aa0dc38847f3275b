"""The program's commands from Python: they run `octet` and give its results back as tables."""
from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any, Dict, List, Optional, Union

Job = Union[str, "os.PathLike[str]"]


def _find() -> str:
    path = os.environ.get("OCTET_PROGRAM") or shutil.which("octet")
    if not path:
        raise FileNotFoundError("the program octet is not in PATH: make install, or name it in OCTET_PROGRAM")
    return path


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ",".join(_word(item) for item in value)
    return str(value)


def _options(overrides: Dict[str, Any]) -> List[str]:
    """training__steps=3 is --training.steps=3, as {"training.steps": 3} given with ** is."""
    return [f"--{key.replace('__', '.')}={_word(value)}" for key, value in overrides.items()]


def _run(arguments: List[str], quiet: bool, allowed: tuple = (0,)) -> subprocess.CompletedProcess:
    """ValueError for a job that makes no sense (status 2), RuntimeError for a run that failed, with the program's own line."""
    result = subprocess.run([_find(), *arguments], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE if quiet else None)
    if result.returncode not in allowed:
        line = result.stderr.strip() if quiet else f"octet {arguments[0]}: status {result.returncode}"
        raise (ValueError if result.returncode == 2 else RuntimeError)(line)
    if not quiet:
        sys.stderr.flush()
    return result


def table(rows: List[Dict[str, Any]]) -> Any:
    """A pandas.DataFrame where pandas is installed, else the rows."""
    try:
        import pandas
    except ImportError:
        return rows
    return pandas.DataFrame(rows)


def _dump_folder(job: Job, options: List[str]) -> pathlib.Path:
    """Where the job's files go, as `octet plan --json` says."""
    return pathlib.Path(json.loads(_run(["plan", str(job), "--json", *options], True).stdout)["dump_folder"])


def plan(job: Job, **overrides: Any) -> Dict[str, Any]:
    """What the job would convert to 8 bits: what `octet plan --json` prints; "modules" is a table."""
    result = json.loads(_run(["plan", str(job), "--json", *_options(overrides)], True).stdout)
    if isinstance(result.get("modules"), list):
        result["modules"] = table(result["modules"])
    return result


def train(job: Job, quiet: bool = True, **overrides: Any) -> Any:
    """Trains, and gives the run's metrics as a table: a row a line of metrics.jsonl."""
    options = _options(overrides)
    folder = _dump_folder(job, options)
    _run(["train", str(job), *options], quiet)
    return table([json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()])


def compare(job: Job, recipes: Optional[List[str]] = None, seeds: Optional[int] = None, quiet: bool = True, **overrides: Any) -> Any:
    """Trains once a recipe, and gives the program's table, a row a recipe; the report is in the job's dump folder."""
    options = _options(overrides)
    if recipes is not None:
        options += ["--recipes", ",".join(recipes)]
    if seeds is not None:
        options += ["--seeds", str(seeds)]
    result = _run(["compare", str(job), *options], quiet, allowed=(0, 3, 4))
    return table(_read_table(result.stdout))


def _read_table(text: str) -> List[Dict[str, Any]]:
    """Columns are apart by two spaces or more, their heads are right-aligned over numbers."""
    import re
    lines = text.splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith("recipe "))
    heads = re.split(r"\s{2,}", lines[begin].strip())
    rows = []
    for line in lines[begin + 1:]:
        cells = re.split(r"\s{2,}", line.strip())
        if len(cells) != len(heads):
            break
        rows.append(dict(zip(heads, (_number(cell) for cell in cells))))
    return rows


def _number(cell: str) -> Any:
    try:
        return float(cell.rstrip("%")) if cell.endswith("%") else float(cell) if "." in cell else int(cell)
    except ValueError:
        return cell
