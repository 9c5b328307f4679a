"""Points of ``surface.stan`` in the coordinates that it samples, from natural parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from dsstan.covariance.surface_statistics import matrix_of
from dsstan.engines.surface_posterior import SurfacePosterior
from dsstan.engines.whitening import spline_weights

Floats = NDArray[np.float64]


def even(data: Mapping[str, Any]) -> dict[str, Any]:
    """Data for functions of z that are straight lines over the whole range of phi and r."""
    nodes = np.linspace(-6.0, 6.0, 5)
    ends = [float(np.log(data[name])) for name in ("phi_lower", "phi_upper")]
    r_ends = [float(np.log(data[name])) for name in ("r_lower", "r_upper")]
    log_phi = (
        np.array(ends[:1]) if ends[0] == ends[1] else np.linspace(ends[0], ends[1], nodes.size)
    )
    shape = (log_phi.size, nodes.size)
    return {
        **data,
        "M": nodes.size,
        "M_phi": log_phi.size,
        "z_nodes": nodes,
        "log_phi": log_phi,
        "log_r": np.tile(np.linspace(r_ends[0], r_ends[1], nodes.size), (shape[0], 1)),
        "log_sigma_sq": np.zeros(shape),
        "log_scale": np.zeros(shape),
    }


def whitened(data: Mapping[str, Any], point: Mapping[str, Any]) -> tuple[Floats, float]:
    """The z of natural parameters, and the log determinant of their derivatives by z.

    Parameters
    ----------
    data
        Of ``surface.stan``, the functions of z among them.
    point
        ``beta``, ``sigma_sq``, ``tau_sq`` and, where it is free, ``phi``.
    """
    nodes, log_phi = data["z_nodes"], data["log_phi"]
    log_r = float(np.log(point["tau_sq"] / point["sigma_sq"]))
    row, jacobian, places = np.ones(1), 0.0, []

    def solve(coefficients: Floats, value: float) -> float:
        at = lambda z: float(spline_weights(np.array([z]), nodes)[0] @ coefficients) - value  # noqa: E731
        return float(brentq(at, -60, 60, xtol=1e-14, rtol=1e-14))

    def slope(coefficients: Floats, z: float) -> float:
        # Exact where the spline is a line, else a difference of high order.
        h = 1e-3
        f = [spline_weights(np.array([z + k * h]), nodes)[0] @ coefficients for k in (-2, -1, 1, 2)]
        return float(f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * h)

    if len(log_phi) > 1:
        z_phi = solve(log_phi, float(np.log(point["phi"])))
        row = spline_weights(np.array([z_phi]), nodes)[0]
        jacobian += np.log(slope(log_phi, z_phi) * point["phi"])
        places = [z_phi]
    z_r = solve(row @ data["log_r"], log_r)
    col = spline_weights(np.array([z_r]), nodes)[0]
    scale = float(row @ data["log_scale"] @ col)
    z_sigma = (np.log(point["sigma_sq"]) - row @ data["log_sigma_sq"] @ col) / np.exp(scale)
    jacobian += np.log(slope(row @ data["log_r"], z_r) * point["tau_sq"])
    jacobian += scale + np.log(point["sigma_sq"])
    posterior = SurfacePosterior.of(data)
    log_place = np.array([[np.log(point.get("phi", data["phi_lower"])), log_r]])
    s = posterior.statistics(log_place)[0]
    P = posterior.b.size
    full = matrix_of(s)
    metric = posterior.factor * posterior.scale
    precision = metric.T @ full[:P, :P] @ metric / ((1 + np.exp(log_r)) * point["sigma_sq"])
    root = np.linalg.cholesky(precision + np.eye(P))
    gls = posterior.b + np.linalg.solve(
        posterior.factor, np.linalg.solve(full[:P, :P], full[:P, P])
    )
    gls = gls / posterior.scale
    away = np.asarray(point["beta"]) / posterior.scale - gls
    z_beta = root.T @ away + np.linalg.solve(root, gls)
    jacobian += float(np.sum(np.log(posterior.scale)) - np.sum(np.log(np.diag(root))))
    return np.array([*z_beta, float(z_sigma), z_r, *places]), float(jacobian)
