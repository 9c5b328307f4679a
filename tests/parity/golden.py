"""Golden files: what R wrote, whether it is current, and how far Python is from it."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Values = Mapping[str, Callable[[], ArrayLike]]
"""Python's side of one topic: a function for each quantity, run when it is asked for."""

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]

SAN_FRANCISCO = "san_francisco"
COUNTS = {
    "distances": 34,
    "correlation": 45,
    "weights": 24,
    "density": 125,
    "latent": 192,
    "likelihood": 27,
    "regression": 21,
    "survey": 8,
    "diagnostics": 31,
    "truncated": 18,
    "bracketed": 20,
    "multivariate": 12,
    "counts": 54,
    "adaptive": 36,
    "panel": 9,
    "places": 6,
    SAN_FRANCISCO: 25,
}
"""Quantities of each topic, so that none is lost unseen."""

TOPICS = tuple(COUNTS)


@dataclass(frozen=True)
class Quantity:
    """One thing that R computed, and how close Python must come to it."""

    claim: str
    case: str
    source: str
    kind: str
    measure: str
    tolerance: float
    reason: str
    value: Floats


@dataclass(frozen=True)
class Golden:
    """One topic as R wrote it."""

    topic: str
    sha256: Mapping[str, str]
    r: str
    packages: Mapping[str, str]
    quantities: Mapping[str, Quantity]

    @property
    def stale(self) -> list[str]:
        """Files that are no longer those that this golden was made from."""
        return [
            name
            for name, digest in self.sha256.items()
            if hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() != digest
        ]


def golden_path(topic: str) -> Path:
    """The committed golden file of a topic."""
    return FOLDER / "golden" / f"{topic}.json"


@cache
def load(topic: str) -> Golden:
    """The committed golden of a topic."""
    return read(golden_path(topic))


def read(path: Path) -> Golden:
    """A golden file; numbers that JSON lacks are there as text."""
    raw = json.loads(path.read_text(encoding="utf-8"))
    quantities = {
        key: Quantity(
            **{name: item for name, item in entry.items() if name != "value"},
            value=np.array([float(v) for v in entry["value"]]),
        )
        for key, entry in raw["quantities"].items()
    }
    return Golden(raw["topic"], raw["sha256"], raw["r"], raw["packages"], quantities)


def python_values(topic: str) -> Values:
    """Python's side of a topic, the module of the same name."""
    module = importlib.import_module(f"parity.{topic}")
    values: Values = module.values()
    return values


def difference(ours: ArrayLike, theirs: Floats, measure: str) -> float:
    """Largest difference between two arrays read row by row; NaN counts as infinite.

    Parameters
    ----------
    ours, theirs
        Python's numbers and R's.
    measure
        ``"relative"``: each element by itself, a zero must be met exactly;
        ``"scaled"``: by R's largest element; ``"absolute"``.

    Raises
    ------
    AssertionError
        If there are not as many numbers on both sides.
    """
    a = np.asarray(ours, dtype=np.float64).ravel()
    b = np.asarray(theirs, dtype=np.float64).ravel()
    assert a.size == b.size, f"Python has {a.size} numbers, R {b.size}"
    assert a.size > 0
    scale = {
        "relative": np.abs(b),
        "scaled": np.full(b.size, np.max(np.abs(b))),
        "absolute": np.ones(b.size),
    }[measure]
    with np.errstate(invalid="ignore", divide="ignore"):
        gap = np.abs(a - b) / scale
    gap = np.where(a == b, 0.0, gap)
    return float(np.max(np.where(np.isnan(gap), np.inf, gap)))


def run_r(rscript: str, topic: str, output: Path | None = None, *, short: bool = False) -> None:
    """Run a twin; without an output it rewrites the golden. Only posteriors have a short run.

    Raises
    ------
    RuntimeError
        If R fails, with what it said.
    """
    words = [*(["short"] if short else []), *([str(output)] if output else [])]
    command = [rscript, f"tests/parity/{topic}.R", *words]
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env=environment, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{topic}.R failed: {done.stderr.strip()}")


def san_francisco_file() -> Path | None:
    """The file of the San Francisco homes, looked for as the twin looks for it."""
    name = "sanfrancisco.home.sales.rda"
    places = []
    if os.environ.get("DSSTAN_DATA"):
        folder = Path(os.environ["DSSTAN_DATA"])
        places = [folder / SAN_FRANCISCO / name, folder / name]
    places += sorted(ROOT.parent.glob(f"*/data/{SAN_FRANCISCO}/{name}"))
    return next((place for place in places if place.is_file()), None)
