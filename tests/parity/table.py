"""Write the table of claims in ``tests/parity/README.md`` between its markers.

``python tests/parity/table.py``. Needs no R: it holds Python's values against the golden files.
Without the San Francisco file the differences that need it stay as they are.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

if __package__ in (None, ""):
    sys.path[:0] = [str(Path(__file__).resolve().parents[k]) for k in (1, 2)]

from mc import FALSE_ALARM
from parity.golden import (
    FOLDER,
    SAN_FRANCISCO,
    TOPICS,
    Golden,
    difference,
    load,
    python_values,
    san_francisco_file,
)
from parity.posterior import (
    COMPARED,
    LIMIT,
    POSTERIORS,
    load_runs,
    needs_file,
    ours,
    theirs,
    z_scores,
)

README = FOLDER / "README.md"
BEGIN, END = "<!-- table: python tests/parity/table.py -->", "<!-- end of table -->"
HEAD = ("topic", "claim", "R", "quantities", "tolerance", "why this tolerance", "largest seen")
_PACKAGE = re.compile(r"([\w.]+)::")


@dataclass(frozen=True)
class Row:
    """A claim that several quantities share."""

    topic: str
    claim: str
    system: str
    count: int
    tolerance: str
    reason: str
    largest: str = ""

    @property
    def claimed(self) -> tuple[str, ...]:
        """All cells but the last, whose digits depend on the machine."""
        return (
            self.topic,
            self.claim,
            self.system,
            str(self.count),
            self.tolerance,
            self.reason,
        )

    @property
    def text(self) -> str:
        """The row in Markdown."""
        return f"| {' | '.join((*self.claimed, self.largest))} |"


def shown(largest: float) -> str:
    """The power of ten above a difference; its digits depend on the machine."""
    return "0" if largest == 0 else f"< 1e{int(np.floor(np.log10(largest))) + 1}"


def system(source: str, golden: Golden) -> str:
    """R functions with the versions of their packages; base packages go with R."""
    names = dict.fromkeys(_PACKAGE.findall(source))
    versions = [
        f"{name} {golden.packages[name]}" if name in golden.packages else f"R {golden.r}"
        for name in names
    ]
    return f"{source} ({', '.join(dict.fromkeys(versions or [f'R {golden.r}']))})"


def rows(measured: Mapping[str, Callable[[str], float]] | None = None) -> list[Row]:
    """All rows; with a function for each topic the largest differences too."""
    out: dict[tuple[str, ...], Row] = {}
    worst: dict[tuple[str, ...], float] = {}
    for topic in TOPICS:
        golden = load(topic)
        for key, q in golden.quantities.items():
            tolerance = f"{q.tolerance:.0e} {q.measure}"
            label = system(q.source, golden)
            group = (topic, q.claim, label, tolerance, q.reason)
            before = out.get(group)
            out[group] = (
                replace(before, count=before.count + 1)
                if before
                else Row(topic, q.claim, label, 1, tolerance, q.reason)
            )
            if measured and topic in measured:
                worst[group] = max(worst.get(group, 0.0), measured[topic](key))
    exact = [
        replace(row, largest=shown(worst[group])) if group in worst else row
        for group, row in out.items()
    ]
    return exact + posterior_rows(measured is not None)


def posterior_rows(measured: bool = False) -> list[Row]:
    """One row a posterior; with its largest difference where it can be measured."""
    out = []
    for name, (topic, case, model) in POSTERIORS.items():
        run, system_ = theirs(name), load_runs(topic).system
        gamma = {"unrestricted": "unrestricted"}.get(model, f"restricted, gamma {model}")
        parameters = dict.fromkeys(key.split()[1].split("_")[0] for key in run.estimates)
        what = ", ".join(_WORDS[p] for p in parameters)
        row = Row(
            topic,
            f"means, sds and 2.5, 50 and 97.5% quantiles of {what}: {run.about['case']}, {gamma}",
            system_,
            len(run.estimates),
            f"{LIMIT:.2f} Monte Carlo standard errors",
            f"both sides' Monte Carlo errors; false alarm {FALSE_ALARM:.0e} over all {COMPARED} "
            f"quantities; R has {min(run.ess.values()):.0f} effective draws or more",
        )
        if measured and not needs_file(case):
            row = replace(row, largest=f"{max(z_scores(ours(name), run.estimates).values()):.1f}")
        out.append(row)
    return out


_WORDS = {
    "beta": "beta",
    "sigma": "sigma_sq",
    "tau": "tau_sq",
    "phi": "phi",
    "w": "w at five sites",
    "copy": "the outlier's synthetic value",
}


def written() -> list[tuple[str, ...]]:
    """Cells of the rows that the README holds."""
    text = README.read_text(encoding="utf-8")
    table = text.split(BEGIN)[1].split(END)[0].strip().splitlines()
    return [tuple(c.strip() for c in line.strip("| ").split(" | ")) for line in table[2:]]


def measure(topic: str) -> Callable[[str], float]:
    """A function from a quantity's key to its difference."""
    golden, values = load(topic), python_values(topic)

    def of(key: str) -> float:
        q = golden.quantities[key]
        return difference(values[key](), q.value, q.measure)

    return of


def main(_: list[str]) -> int:
    """Rewrite the table."""
    missing = {SAN_FRANCISCO} if san_francisco_file() is None else set()
    fresh = rows({topic: measure(topic) for topic in TOPICS if topic not in missing})
    old = {cells[:-1]: cells[-1] for cells in written()}
    kept = [
        row if row.largest else replace(row, largest=old.get(row.claimed, "not run"))
        for row in fresh
    ]
    lines = [f"| {' | '.join(HEAD)} |", f"|{'---|' * len(HEAD)}", *(row.text for row in kept)]
    before, rest = README.read_text(encoding="utf-8").split(BEGIN)
    after = rest.split(END)[1]
    README.write_text(
        before + "\n\n".join([BEGIN, "\n".join(lines), END]) + after, encoding="utf-8"
    )
    print(f"{README.name}: {len(kept)} claims, {sum(row.count for row in kept)} quantities")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
