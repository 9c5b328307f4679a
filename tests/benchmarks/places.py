"""Synthetic places beside masks at equal risk: the table of docs/explain/places.md.

``python tests/benchmarks/places.py`` fits three public tables and makes releases with moved places.
The setting of each mask is then looked for at which the mean chance that an intruder gives the
right cell is that of the release, all by the same prior. Numbers are means over ``--seeds``
releases and maskings, of one copy and of five; masks publish one table, trees as many copies as the
release. ``--write`` puts the table into the page between its markers.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

import dsstan as ds
from dsstan.analysis.places.marked import MarkedPlaces, marked
from dsstan.comparison.places.compare import at_equal_risk, compare_places
from dsstan.comparison.places.fixed import aggregate
from dsstan.comparison.places.radial import displace, donut
from dsstan.comparison.places.released import prior_of, released
from dsstan.comparison.places.result import ProtectedPlaces
from dsstan.comparison.places.trees import grow
from dsstan.copies.places.draw import move_places
from dsstan.models.intensity.fit import fit_intensity
from dsstan.table.mask.mask import Mask
from dsstan.table.mask.points import mask_of_addresses, mask_of_table
from dsstan.table.problem import Problem

PAGE = Path(__file__).resolve().parents[2] / "docs" / "explain" / "places.md"
BEGIN = "<!-- table: python tests/benchmarks/places.py --write -->"
END = "<!-- end of table -->"
CELLS, COPIES = (60, 150), (1, 5)
SHOWN = {
    "finding mean": "right cell found, mean",
    "finding max": "largest",
    "K": "K",
    "variogram": "variogram",
    "bias": "bias (se)",
}
Method = Callable[[float, int], ProtectedPlaces]


def problems(cells: int) -> Iterator[tuple[Problem, Mask]]:
    """The three tables and their study areas: public addresses, or the cells around records."""
    place = {"coords": ("longitude", "latitude"), "distance": "projected"}
    formula = "log(price) ~ scale(log(squarefeet))"
    homes = ds.prepare(ds.load_san_francisco(), formula, name="San Francisco", **place)
    every = ds.prepare(ds.load_san_francisco(bedrooms=None), "log(price) ~ 1", **place)
    yield homes, mask_of_addresses(every.sites, homes, cells=cells)
    for table, formula, coords, name in (
        (
            ds.load_baltimore(),
            "log(price) ~ scale(log(squarefeet)) + age",
            ("x", "y"),
            "Baltimore",
        ),
        (ds.load_simulated(), "log(income) ~ 1", ("s1", "s2"), "simulated"),
    ):
        problem = ds.prepare(table, formula, coords=coords, distance="planar", name=name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the mask is drawn from the table
            mask = mask_of_table(problem, cells=cells)
        yield problem, replace(mask, exposure=np.ones(mask.n_cells))


def methods(
    original: MarkedPlaces, mask: Mask, prior: np.ndarray, extent: float, copies: int
) -> list[tuple[Method, tuple[float, float], bool]]:
    """Each method as a function of its setting and seed, its bounds, whether it is whole."""
    n, same = len(original.places), {"prior": prior}
    radii = (0.05 * mask.width, 2.0 * extent)
    return [
        (lambda r, s: displace(original, mask, r, seed=s, **same), radii, False),
        (
            lambda k, s: donut(original, mask, int(k), seed=s, **same),
            (1, 5 * mask.exposure.sum()),
            True,
        ),
        (lambda k, s: aggregate(original, mask, int(k), **same), (1, 40), True),
        (lambda k, s: grow(original, mask, int(k), copies=copies, seed=s, **same), (1, n), True),
    ]


def at_risk(
    method: tuple[Method, tuple[float, float], bool], aim: float, seeds: int
) -> list[ProtectedPlaces]:
    """A method at the risk of the release on the mean over seeds, once a seed."""
    make, bounds, whole = method
    made: dict[float, list[ProtectedPlaces]] = {}

    def mean(setting: float) -> ProtectedPlaces:
        made[setting] = [make(setting, s) for s in range(seeds)]
        finding = np.mean([m.finding for m in made[setting]], axis=0)
        return replace(made[setting][0], finding=finding, setting=f"{setting:.17g}")

    return made[float(at_equal_risk(mean, aim, bounds, whole=whole).setting)]


def compared(problem: Problem, mask: Mask, seeds: int) -> pd.DataFrame:
    """One row a method, means over the seeds."""
    original = marked(problem)
    intensity = fit_intensity(problem, mask, seed=1, progress=False)
    fit = ds.fit(problem, seed=2, progress=False)
    prior = prior_of(intensity)
    rows = []
    for copies in COPIES:
        releases = [
            released(move_places(intensity, fit, copies, seed=s, progress=False))
            for s in range(seeds)
        ]
        aim = float(np.mean([r.mean_finding for r in releases]))
        every = [releases]
        for method in methods(original, mask, prior, problem.d_max, copies):
            every.append(at_risk(method, aim, seeds))
        for group in every:
            tables = [compare_places(original, mask, [one]).table for one in group]
            numbers = pd.concat(t[list(SHOWN)] for t in tables).mean()
            name, setting = group[0].method, group[0].setting
            rows.append({"copies": copies, "method": name, "setting": setting, **numbers})
    found = pd.DataFrame(rows)
    found.insert(0, "table", problem.name)
    return found


def page_table(found: pd.DataFrame) -> str:
    """The table as the page has it."""
    head = ["table", "copies", "method", "setting", *SHOWN.values()]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in found.to_dict("records"):
        shares = [f"{100 * row[c]:.1f}%" for c in ("finding mean", "finding max")]
        numbers = [f"{row[c]:.3f}" for c in ("K", "variogram")] + [
            f"{row['bias']:.1f}".replace("nan", "none")
        ]
        cells = [row["table"], str(row["copies"]), row["method"], row["setting"], *shares, *numbers]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def verdicts(found: pd.DataFrame) -> str:
    """Where the release is nearer to the original than each method, in words."""
    lines = []
    for name in ("displacement", "donut", "CART"):
        for curve in ("K", "variogram"):
            better, worse = [], []
            for (table, copies), rows in found.groupby(["table", "copies"], sort=False):
                values = rows.set_index("method")[curve]
                where = better if values["synthetic"] < values[name] else worse
                where.append(f"{table} ({copies})")
            said = f"nearer on {', '.join(better) or 'none'}"
            said += f"; **not on {', '.join(worse)}**" if worse else ""
            lines.append(f"- {curve}, against {name}: {said}.")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    parts = []
    for cells in CELLS:
        every = [compared(p, m, options.seeds) for p, m in problems(cells)]
        found = pd.concat(every, ignore_index=True)
        parts += [f"On about {cells} cells:", page_table(found), verdicts(found)]
        print("\n\n".join(parts[-3:]), flush=True)
    text = "\n\n".join(parts)
    if options.write:
        page = PAGE.read_text(encoding="utf-8")
        before, rest = page.split(BEGIN)
        after = rest.split(END)[1]
        PAGE.write_text(f"{before}{BEGIN}\n{text}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
