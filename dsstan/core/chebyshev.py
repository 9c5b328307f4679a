"""Chebyshev nodes in the logs of positive numbers, and the interpolant through values there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.polynomial.chebyshev import chebvander

from dsstan.core.arrays import Floats

Bounds = tuple[float, float]


def chebyshev_nodes(n: int) -> Floats:
    """Chebyshev nodes of the first kind on [-1, 1], ascending, shape (n,)."""
    return np.asarray(-np.cos((np.arange(n) + 0.5) * np.pi / n))


def chebyshev_polynomials(x: float, n: int) -> Floats:
    """T_0 .. T_{n-1} at x, shape (n,)."""
    return np.asarray(chebvander(x, n - 1)[0])


def chebyshev_map(n: int) -> Floats:
    """Map from values at the nodes to series coefficients, shape (n, n)."""
    b = chebvander(chebyshev_nodes(n), n - 1).T * 2.0 / n
    b[0] *= 0.5
    return np.asarray(b)


def log_position(v: float, bounds: Bounds) -> float:
    """Position of log v between the logs of the bounds, from -1 to 1; 0 if they are equal."""
    low, high = np.log(bounds[0]), np.log(bounds[1])
    return 0.0 if high <= low else float(2.0 * (np.log(v) - low) / (high - low) - 1.0)


def log_position_inv(x: Floats, bounds: Bounds) -> Floats:
    """Values at positions x, the inverse of :func:`log_position`."""
    low, high = np.log(bounds[0]), np.log(bounds[1])
    return np.asarray(bounds[0] * np.exp(0.5 * (np.asarray(x) + 1.0) * (high - low)))


@dataclass(frozen=True)
class ChebyshevGrid:
    """A grid over the logs of two positive numbers; here the decay phi and the nugget ratio r.

    Attributes
    ----------
    nodes
        Numbers of nodes (G, H).
    bounds
        Range of each number; equal ends mean one value, and one node.
    """

    nodes: tuple[int, int]
    bounds: tuple[Bounds, Bounds]

    @property
    def points(self) -> tuple[Floats, Floats]:
        """Values at the nodes, shapes (G,) and (H,)."""
        phi, r = (
            log_position_inv(chebyshev_nodes(n), ends)
            for n, ends in zip(self.nodes, self.bounds, strict=True)
        )
        return phi, r

    def coefficients(self, values: Floats) -> Floats:
        """Series coefficients, shape (G, H, ...), from values at the nodes, shape (G, H, ...)."""
        by_r = np.tensordot(values, chebyshev_map(self.nodes[1]), (1, 1))
        return np.tensordot(chebyshev_map(self.nodes[0]), np.moveaxis(by_r, -1, 1), 1)

    def on(self, coefficients: Floats, phi: Floats, r: Floats) -> Floats:
        """The interpolant at every pair of values within the bounds, shape (A, B, ...)."""
        t_phi, t_r = (
            chebvander(np.clip([log_position(float(v), ends) for v in values], -1, 1), n - 1)
            for values, n, ends in zip((phi, r), self.nodes, self.bounds, strict=True)
        )
        by_phi = np.tensordot(t_phi, coefficients, 1)
        return np.moveaxis(np.tensordot(t_r, by_phi, (1, 1)), 0, 1)

    def at(self, coefficients: Floats, phi: float, r: float) -> Floats:
        """The interpolant at one point, shape (...)."""
        return np.asarray(self.on(coefficients, np.array([phi]), np.array([r]))[0, 0])
