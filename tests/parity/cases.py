"""The shared cases as dsstan sees them: problems, fits with given draws, Stan's functions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dsstan.core.resources import stan_folder
from dsstan.covariance.base import Parameters
from dsstan.models.result import Fit
from dsstan.models.weights import Weights
from dsstan.table.prepare import prepare
from dsstan.table.problem import Problem
from factory import fit_from

from .golden import FOLDER

Floats = NDArray[np.float64]

GAMMAS = {"0": 0.0, "4": 4.0, "infinite": np.inf}
PROTECTIONS = ("paper", "preserving", "cut")


@dataclass(frozen=True)
class Case:
    """A data set with risk weights and parameter points."""

    problem: Problem
    a: Floats
    phi_bounds: tuple[float, float]
    at_nodes: tuple[Parameters, ...] = ()
    off_nodes: tuple[Parameters, ...] = ()
    places: Floats | None = None

    @property
    def points(self) -> tuple[Parameters, ...]:
        """All points, those at nodes first."""
        return self.at_nodes + self.off_nodes


@cache
def inputs(name: str) -> Any:
    """One inputs file."""
    return json.loads((FOLDER / "inputs" / f"{name}.json").read_text(encoding="utf-8"))


def points_of(raw: Any) -> tuple[Parameters, ...]:
    """Parameter points as the inputs hold them."""
    return tuple(
        Parameters(np.array(beta), sigma_sq, tau_sq, phi)
        for beta, sigma_sq, tau_sq, phi in zip(
            raw["beta"], raw["sigma_sq"], raw["tau_sq"], raw["phi"], strict=True
        )
    )


def case_of(raw: Any) -> Case:
    """A case from its raw form."""
    problem = prepare(
        pd.DataFrame(raw["columns"]), raw["formula"], coords=tuple(raw["coords"]), distance="planar"
    )
    given = {k: points_of(raw[k]) for k in ("at_nodes", "off_nodes") if k in raw}
    places = np.array(raw["places"], dtype=np.float64) if "places" in raw else None
    bounds = (float(raw["phi_bounds"][0]), float(raw["phi_bounds"][1]))
    return Case(problem, np.array(raw["a"], dtype=np.float64), bounds, places=places, **given)


@cache
def case(name: str) -> Case:
    """A shared case by name."""
    return case_of(inputs("cases")[name])


def restricted_fit(
    c: Case,
    protection: str,
    gamma: float,
    point: Parameters,
    shape: tuple[int, int] = (1, 1),
    cov_model: str = "exponential",
) -> Fit:
    """A restricted fit whose every draw is one point."""
    weights = Weights(c.a, "own", np.nan, np.nan, c.a, c.a)
    return fit_from(
        c.problem,
        {
            "beta": np.broadcast_to(point.beta, (*shape, point.beta.size)),
            "sigma_sq": np.full(shape, point.sigma_sq),
            "tau_sq": np.full(shape, point.tau_sq),
            "phi": np.full(shape, point.phi),
        },
        protection=protection,
        weights=weights,
        gamma=gamma,
        phi_held=point.phi,
        cov_model=cov_model,
    )


@cache
def _functions() -> str:
    """All function files, read by the embedded compiler."""
    import stanli

    names = sorted((stan_folder() / "functions").glob("*.stanfunctions"))
    includes = "".join(f"  #include functions/{path.name}\n" for path in names)
    source = f"functions {{\n{includes}}}\nmodel {{}}\n"
    return str(stanli.stan_to_mir(source, include_paths=[str(stan_folder())]))


def stan_function(name: str, **arguments: Any) -> Floats:
    """Value of a function of ``stan/functions`` at given arguments."""
    import stanli

    return np.asarray(stanli.Function(name, mir=_functions())(**arguments), dtype=np.float64)
