"""Python's side of ``distances.R``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from dsstan.models.priors import Priors
from dsstan.models.weights import neighbour_distances

from .cases import Case, case, stan_function
from .golden import Floats, Values


def values() -> Values:
    """Each quantity by its key."""
    out: dict[str, Callable[[], ArrayLike]] = {
        "pairs/dist/hand": lambda: stan_distances(case("hand")),
        "pairs/rdist/hand": lambda: stan_distances(case("hand")),
    }
    for name in ("hand", "simulated", "baltimore"):
        out |= _of_case(name)
    return out


def _of_case(name: str) -> dict[str, Callable[[], ArrayLike]]:
    c = case(name)
    p = c.problem
    out: dict[str, Callable[[], ArrayLike]] = {
        f"largest/{name}": lambda: p.d_max,
        f"decay/{name}": lambda: Priors().resolve(p.y, p.X, p.d_max).phi_bounds,
        f"site/{name}": lambda: p.site_index + 1,
        f"shared/{name}": lambda: p.n_coincident,
    }
    if name != "hand":
        out[f"sums/{name}"] = lambda: stan_distances(c).sum(axis=1)
    for k in (1, 2, 3):
        for kind in ("record", "site"):
            out[f"{kind}/{k}/{name}"] = partial(
                neighbour_distances, p, neighbour=k, by_site=kind == "site"
            )
    return out


def stan_distances(c: Case) -> Floats:
    """Distances among the records by Stan."""
    return stan_function("distances", s=np.array(c.problem.sites), t=np.array(c.problem.sites))
