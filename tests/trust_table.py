"""Write ``docs/trust-table.md``: faults injected, bad input tried, and what happened.

``python tests/faults.py`` injects the faults first; ``python tests/trust_table.py`` writes the page
from those done last, from ``tests/kills.py`` and from ``tests/memory.py``.
"""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from faults import FAULTS, LeftOut, inject
from test_bad_tables import BAD
from test_formula import REFUSED
from test_fuzz import CASES
from test_reading import BAD_JOBS, JOB

from dsstan.cli.command_line import synthesise
from dsstan.cli.job import read_job
from dsstan.core.errors import DsstanError
from dsstan.table.formulas.formula import parse
from dsstan.table.prepare import prepare

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "docs" / "trust-table.md"
DONE = ROOT / "tests" / "benchmarks" / "faults.json"
KILLS = ROOT / "tests" / "benchmarks" / "kills.json"
MEMORY = ROOT / "tests" / "benchmarks" / "memory.json"

HEAD = """# Faults injected and bad input tried

Made by `make trust`: each row was done to a real run on this machine, or to the function named. The
promises are in [explain/trust.md](explain/trust.md).

"""


def cell(text: Any) -> str:
    """Text for a cell of a table."""
    return str(text).replace("|", "\\|").replace("\n", " ").replace("<", "\\<")


def inject_all(folder: Path) -> None:
    """Do every fault and keep what happened."""
    found = []
    for number, name in enumerate(FAULTS):
        try:
            done = inject(name, folder / str(number))
            row = [name, str(done.code), done.release, str(done.left), done.said]
        except LeftOut as reason:
            row = [name, "", "", "", f"left out: {reason}"]
        print(" | ".join(row), flush=True)
        found.append(row)
    DONE.write_text(json.dumps(found, indent=1) + "\n")


def faults() -> list[str]:
    """A row for each fault."""
    head = ["fault", "exit code", "release", "files left", "message"]
    rows = [head, ["---"] * 5, *json.loads(DONE.read_text())]
    return ["| " + " | ".join(map(cell, row)) + " |" for row in rows]


def told(call: Any, *arguments: Any, **options: Any) -> str:
    """What came of a call: an error's class and first sentence."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            call(*arguments, **options)
        except DsstanError as error:
            return f"{type(error).__name__}: {str(error).split('. ')[0].rstrip('.')}"
        except Exception as error:
            return f"**{type(error).__name__}**"
    return "**accepted**"


def bad_input(folder: Path) -> list[str]:
    """A row for each bad table, formula and job."""
    rows = ["| input | what is wrong | what happened |", "|---|---|---|"]
    for name, (make, options, _, _) in BAD.items():
        rows.append(f"| table | {cell(name)} | {cell(told(prepare, make(), **options))} |")
    for piece, _ in REFUSED:
        said = told(parse, f"y ~ {piece}")
        rows.append(f"| formula | `{cell(piece)}` | {cell(said)} |")
    path = folder / "job.toml"
    for text, _ in BAD_JOBS:
        path.write_text(text)
        own = text.removeprefix(JOB).strip()
        wrong = "another kind of value" if own.startswith("table") else own
        wrong = wrong if len(wrong) < 100 else f"{wrong[:20]}... ({len(wrong):,} characters)"
        rows.append(f"| job | `{cell(wrong)}` | {cell(told(read_job, path, synthesise))} |")
    return rows


def write_table(folder: Path) -> None:
    """Write the page from the faults done last, and try the bad input."""
    lines = ["## Faults", "", *faults(), ""]
    if KILLS.is_file():
        tally = json.loads(KILLS.read_text())
        lines += [
            "## Kills at random moments",
            "",
            f"`python tests/kills.py`: {tally['runs']} calls of {tally['commands']}, "
            f"{tally['killed']} of them killed by SIGKILL before their end. Whole releases "
            f"{tally['whole']}, none {tally['none']}, **half releases {tally['half']}**. Files "
            f"left outside releases {tally['leftovers']}; after `dsstan doctor --clean` "
            f"**{tally['left_after_clean']}**.",
            "",
        ]
    if MEMORY.is_file():
        memory = json.loads(MEMORY.read_text())
        lines += [
            "## Memory",
            "",
            f"A whole release with N = {memory['records']} records and {memory['copies']} copies, "
            f"both fits, disclosure and writing included: peak {memory['peak_mib']:.0f} MiB of the "
            "larger of the two processes (embedded engine). `DSSTAN_NIGHTLY=1 pytest "
            "tests/project/test_memory.py` measures it again and holds it to 20%.",
            "",
        ]
    lines += ["## Bad input", "", *bad_input(folder), "", "## Generated input", ""]
    lines += [
        f"`tests/project/test_fuzz.py` generates {sum(CASES.values()):,} cases in each run of the "
        f"suite and {10 * sum(CASES.values()):,} with `DSSTAN_NIGHTLY=1`: "
        + ", ".join(f"{name} {count}" for name, count in CASES.items())
        + ". Each must end in a dsstan error or a valid result.",
        "",
    ]
    OUT.write_text(HEAD + "\n".join(lines))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        write_table(Path(name))
