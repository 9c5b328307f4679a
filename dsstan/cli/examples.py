"""The worked examples: a real geocoded table becomes a checked release."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from dsstan.analysis.utility import Utility, utility
from dsstan.copies.protect import protect
from dsstan.copies.result import Synthesis
from dsstan.core.errors import InputError
from dsstan.core.progress import phase
from dsstan.release.pictures.draw import draw_pictures
from dsstan.release.whole_folder import check_target
from dsstan.release.write import write_release
from dsstan.risk.assessment import Assessment, assess
from dsstan.risk.disclosure import Disclosure
from dsstan.risk.floors import FloorLike
from dsstan.table.datasets import (
    load_baltimore,
    load_san_francisco,
    load_simulated,
    load_simulated_truth,
)


@dataclass(frozen=True)
class Example:
    """How one example is run.

    Attributes
    ----------
    load
        Loads the table.
    formula, coords, distance
        For :func:`dsstan.prepare`.
    threshold
        M, in the coordinates' unit; None for the paper's rule by correlation.
    analysis
        The analyst's regression.
    absolute
        Absolute tolerance of the disclosure measure, in the response's unit.
    """

    load: Callable[[], pd.DataFrame]
    formula: str
    coords: tuple[str, str]
    distance: str | None
    threshold: float | None
    analysis: str
    absolute: float


PUBLIC = "the table is public"
"""Why an example may miss its floor."""

EXAMPLES = {
    "simulated": Example(
        load_simulated,
        "log(income) ~ 1",
        ("s1", "s2"),
        None,
        0.13,
        "log(income) ~ abs(s1 - 0.25) + abs(s2 - 0.5)",
        10_000.0,
    ),
    "san-francisco": Example(
        load_san_francisco,
        "log(price) ~ scale(log(squarefeet))",
        ("longitude", "latitude"),
        "degrees",
        0.01,
        "log(price) ~ scale(log(squarefeet))",
        10_000.0,
    ),
    "baltimore": Example(
        load_baltimore,
        "log(price) ~ scale(log(squarefeet))",
        ("x", "y"),
        None,
        10.0,
        "log(price) ~ scale(log(squarefeet))",
        10_000.0,
    ),
}


@dataclass(frozen=True, eq=False)
class DemoResult:
    """What one example gave."""

    release: Synthesis
    assessment: Assessment
    kept: Utility
    folder: Path
    pictures: tuple[Path, ...]

    @property
    def risks(self) -> Disclosure:
        """Copies near the truth."""
        return self.assessment.shares


def run_example(
    name: str,
    folder: str | os.PathLike[str],
    *,
    copies: int = 20,
    seed: int | None = None,
    floor: FloorLike = "10%",
    engine: str = "auto",
    pictures: bool = True,
    progress: bool | None = None,
) -> DemoResult:
    """Run one example from its table to a release with pictures.

    Raises InputError if there is no example of that name.

    Parameters
    ----------
    name
        ``"simulated"``, ``"san-francisco"`` or ``"baltimore"``.
    folder
        Where the release goes; must not exist.
    copies, seed, engine, progress
        See :func:`dsstan.protect`.
    floor
        See :func:`dsstan.assess`. A release that misses it is written all the same: the tables are
        public.
    pictures
        Draw the maps and histograms into the release's ``confidential/pictures``.
    """
    if name not in EXAMPLES:
        raise InputError(f"there is no example {name!r}; choose from {', '.join(EXAMPLES)}")
    example = EXAMPLES[name]
    check_target(folder)
    release = protect(
        example.load(),
        example.formula,
        coords=example.coords,
        distance=example.distance,
        name=name,
        copies=copies,
        threshold=example.threshold,
        publish=(),
        engine=engine,
        seed=seed,
        workers=os.cpu_count() or 1,
        progress=progress,
    )
    found = assess(release, absolute=example.absolute, floor=floor, progress=progress)
    with phase("writing"):
        kept = utility(release, example.analysis)
        missed = found.verdict == "missed"
        target = write_release(
            *(release, folder),
            assessment=found,
            analysis=kept,
            accept_below_floor=missed,
            reason=PUBLIC if missed else None,
        )
        place = target / "confidential" / "pictures"
        truth = {"true": load_simulated_truth()} if name == "simulated" else None
        drawn = draw_pictures(release, found, kept, place, surfaces=truth) if pictures else ()
    return DemoResult(release, found, kept, target, drawn)


def outlier(release: Synthesis) -> int:
    """Position of the flagged record farthest from its neighbour (of any, if none is flagged)."""
    weights = release.fit.weights
    assert weights is not None
    distance = np.where(weights.flagged, weights.nearest, -1.0)
    return int(np.argmax(distance if weights.n_flagged else weights.nearest))
