"""How far the coefficients' sds hang on the low end of the decay's default range.

The default prior of the decay ends where the effective range is the largest distance of the table.
Where the posterior reaches that end, a longer range is as likely, and under it the coefficients are
less certain: 95% intervals of an intercept then hold the truth less often than they say.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dsstan.core.arrays import Floats
from dsstan.core.errors import EngineError, SurfaceError
from dsstan.core.seeds import stan_seed
from dsstan.covariance.likelihood_surface import interpolate
from dsstan.engines.direct import independent_points
from dsstan.engines.surface_posterior import PosteriorTable
from dsstan.models.request import Request

WIDER = 10.0
"""By which factor the range begins earlier."""

NODES, DRAWS = (12, 56), 4000
NEAR, SHARE = 1.5, 0.002
"""The share of draws within this factor of the low end, below which no longer range counts."""


def sd_under_wider_range(
    request: Request, draws: Mapping[str, Floats], log_mass: float
) -> tuple[str, float] | None:
    """The coefficient whose sd grows most under a range that begins at a tenth of the low end.

    Parameters
    ----------
    request, draws
        Of a Gaussian fit whose decay is free, under the exact covariance.
    log_mass
        Log integral over the range of the fit; see
        :attr:`dsstan.engines.surface_posterior.PosteriorTable.log_mass`.

    Returns
    -------
    tuple or None
        Its term and by how much; None where nothing would move, or where a posterior of longer
        ranges can't be had.
    """
    low = request.priors.phi_bounds[0]
    if np.mean(draws["phi"] < NEAR * low) < SHARE:
        return None
    bounds = low / WIDER, low
    source = request.covariance.statistics(request)
    rng = np.random.default_rng(stan_seed(request.seed))
    try:
        surface = interpolate(source, bounds, request.priors.r_bounds, NODES, checks=2)
        beyond = PosteriorTable.of(request.priors.on_surface(surface))
        points, _ = independent_points(beyond, DRAWS, rng)
    except (SurfaceError, EngineError):  # the fit stands without it
        return None
    outside, _ = beyond.posterior.draw_beta(points, rng)
    share = 1.0 / (1.0 + np.exp(log_mass - beyond.log_mass))
    inside = draws["beta"].reshape(-1, outside.shape[1])
    apart = outside.mean(axis=0) - inside.mean(axis=0)
    variance = (1.0 - share) * inside.var(axis=0) + share * outside.var(axis=0)
    variance += share * (1.0 - share) * apart**2
    rise = np.sqrt(variance / inside.var(axis=0))
    most = int(np.argmax(rise))
    return request.problem.terms[most], float(rise[most])
