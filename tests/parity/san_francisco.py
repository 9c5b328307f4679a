"""Python's side of ``san_francisco.R``."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import numpy as np
from numpy.typing import ArrayLike

from dsstan.analysis.utility import ols
from dsstan.covariance.latent import LatentModel
from dsstan.models.flagging.flags import flag_isolated
from dsstan.models.weights import Weights
from dsstan.table.datasets import load_san_francisco
from dsstan.table.prepare import prepare
from factory import fit_from

from .cases import GAMMAS, PROTECTIONS, Case, inputs, points_of, restricted_fit
from .density import cholesky, response, unrestricted
from .golden import Floats, Values, san_francisco_file


@cache
def homes() -> Case:
    """The one-bedroom homes with the flags of the inputs' distance."""
    own = inputs("san_francisco")
    problem = prepare(
        load_san_francisco(san_francisco_file()),
        "log(price) ~ scale(log(squarefeet))",
        coords=("longitude", "latitude"),
        distance="degrees",
    )
    fit = fit_from(problem, {"phi": [[own["phi_bounds"][0]]]})
    return Case(
        problem,
        flag_isolated(fit, distance=own["distance"]).a,
        (own["phi_bounds"][0], own["phi_bounds"][1]),
        points_of(own["at_nodes"]),
        points_of(own["off_nodes"]),
    )


def values() -> Values:
    """Each quantity by its key; nothing is read before it is asked for."""
    own = inputs("san_francisco")
    out: dict[str, Callable[[], ArrayLike]] = {
        "records": records,
        "moments": moments,
        "ols": lambda: np.concatenate(ols(homes().problem.X, homes().problem.y)),
        "largest": lambda: homes().problem.d_max,
        "flags": flags,
        "unrestricted": lambda: unrestricted(homes(), own=own),
        "latent": latent,
    }
    for gamma_name, gamma in GAMMAS.items():
        for protection in PROTECTIONS:
            key = f"{protection}/{gamma_name}"
            out[f"response/{key}"] = partial(
                lambda g, kind: response(homes(), g, kind), gamma, protection
            )
            out[f"cholesky/{key}"] = partial(
                lambda g, kind: cholesky(homes(), g, kind, own), gamma, protection
            )
    return out


def records() -> tuple[int, int, int]:
    """Records, distinct sites, records that share one."""
    p = homes().problem
    return p.n_records, p.n_sites, p.n_coincident


def moments() -> Floats:
    """Mean and sd of the response and of the covariate before scaling."""
    p = homes().problem
    x = np.log(p.table["squarefeet"].to_numpy(dtype=np.float64))
    return np.array([p.y.mean(), p.y.std(ddof=1), x.mean(), x.std(ddof=1)])


def flags() -> Floats:
    """Number of flagged records, and the mean distance to the nearest neighbour."""
    p = homes().problem
    weights: Weights = flag_isolated(
        fit_from(p, {"phi": [[1.0]]}), distance=inputs("san_francisco")["distance"]
    )
    return np.array([weights.n_flagged, weights.nearest.mean()])


def latent() -> Floats:
    """Mean and sd of E[w | y] over the records, and the mean of Var[w | y]."""
    c = homes()
    p = c.points[-1]
    model = LatentModel(restricted_fit(c, "paper", np.inf, p))
    mean = model.mean(p)
    return np.array([mean.mean(), mean.std(ddof=1), np.diag(model.covariance(p)).mean()])
