"""Functions of z under which the posterior of ``stan/surface.stan`` is nearly standard normal.

The No-U-Turn sampler then moves as among independent normals, whatever the nugget and the range.
log phi is the quantile function of its posterior at Phi(z), log r that given phi, log sigma_sq has
the mode and the curvature of its law given both, and beta is normal given the rest, which Stan
computes. The program counts the derivatives, so these functions decide how fast it samples and
not what.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import ndtr
from threadpoolctl import threadpool_limits

from dsstan.core.arrays import Floats
from dsstan.engines.surface_posterior import PosteriorTable

NODES = np.linspace(-6.0, 6.0, 49)
"""Values of z at which the functions are computed."""

RISE = 1e-5
"""Share of the box that a quantile function climbs evenly, so that it is nowhere flat."""


def whitening(table: PosteriorTable) -> dict[str, Any]:
    """What ``surface.stan`` takes beside its surface: spline coefficients of the functions of z.

    Shapes: ``z_nodes`` (M,); ``log_phi`` (M,), or (1,) where phi is held; ``log_r``,
    ``log_sigma_sq`` and ``log_scale`` of as many rows, and M columns.
    """
    posterior, (x, y), p = table.posterior, table.axes, table.density
    weights = spline_weights(NODES, NODES)
    if posterior.held is None:
        # As coefficients, rising values give a spline that rises and stays between them.
        log_phi = _quantiles(x, p.sum(axis=1))
        at = np.clip(np.searchsorted(x, log_phi) - 1, 0, x.size - 2)
        share = ((log_phi - x[at]) / (x[at + 1] - x[at]))[:, None]
        rows, by_phi = (1 - share) * p[at] + share * p[at + 1], weights
    else:
        log_phi = np.log([posterior.held])
        rows, by_phi = p[:1], np.eye(1)
    log_r = np.stack([_quantiles(y, row) for row in rows])
    # The mode and the scale are interpolated, at the points that the splines above give.
    points = np.column_stack(
        [np.repeat(by_phi @ log_phi, NODES.size), (by_phi @ log_r @ weights.T).ravel()]
    )
    mode, sd = posterior.mode(posterior.given(points))

    def coefficients(values: Floats) -> Floats:
        with threadpool_limits(limits=1, user_api="blas"):
            by_r = np.linalg.solve(weights, values.reshape(log_r.shape).T).T
            return np.linalg.solve(by_phi, by_r)

    return {
        "M": NODES.size,
        "M_phi": log_phi.size,
        "z_nodes": NODES,
        "log_phi": log_phi,
        "log_r": log_r,
        "log_sigma_sq": coefficients(mode),
        "log_scale": coefficients(np.log(sd)),
    }


def spline_weights(z: Floats, nodes: Floats) -> Floats:
    """Weights of spline coefficients, shape (points, M): the Stan function of this name."""
    step = nodes[1] - nodes[0]
    inside = np.clip(z, nodes[1], nodes[-2])[:, None]
    x = (inside - nodes) / step
    near, far = np.maximum(1 - np.abs(x), 0), np.maximum(2 - np.abs(x), 0)
    slopes = np.sign(x) * (2 * near**2 - 0.5 * far**2) / step
    return np.asarray((far**3 - 4 * near**3) / 6 + (z[:, None] - inside) * slopes)


def _quantiles(axis: Floats, density: Floats) -> Floats:
    """Quantiles Phi(z) at the nodes of a density that is linear between points of the axis."""
    below = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    rising = np.concatenate([[True], np.diff(below) > 0])
    found = np.interp(ndtr(NODES) * below[-1], below[rising], axis[rising])
    even = np.linspace(axis[0], axis[-1], NODES.size + 2)[1:-1]
    return np.asarray((1 - RISE) * found + RISE * even)
