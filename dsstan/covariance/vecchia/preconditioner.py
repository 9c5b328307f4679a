"""An approximation of V^-1 that conjugate gradients start from.

Vecchia's approximation given few neighbours takes a response that is smooth over many records for
less likely than it is: each record's mean is drawn towards zero by a little, and N times a little
is much. The smooth responses then cost as many iterations as there are of them. So the effect at
some knots is put before all records, and each record given the nearest knots as well as its
neighbours (Katzfuss and Guinness 2021, *Statistical Science* 36, call this a general Vecchia
approximation). The knots are integrated out again, by one matrix of their own number.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_array
from scipy.spatial import cKDTree

from dsstan.core.arrays import Floats
from dsstan.covariance.vecchia.factor_kernels import conditional_weights, wind, wind_transposed
from dsstan.covariance.vecchia.kernels import PARALLEL

__all__ = ["NearPrecision"]

RECORDS_EACH, MOST_KNOTS = 200, 2000
"""Records for each knot, and most knots."""

GIVEN = 4
"""Knots that each record is given."""

_LEAST = 1e-12
"""Least conditional variance of a knot, of 1."""


class NearPrecision:
    """The precision of the response, all but; the partial sill is 1.

    Parameters
    ----------
    sites, a, own
        Of the records in an order: places (n, 2), diagonals of A and of M (n,).
    earlier
        Neighbours of each record before it, see
        :class:`dsstan.covariance.vecchia.neighbours.Neighbours`.
    places, places_earlier
        Distinct places in max-min order, of which the first are the knots, and their neighbours.
    phi, r, code
        Decay, nugget ratio and code of the correlation function.
    """

    def __init__(
        self,
        sites: Floats,
        a: Floats,
        own: Floats,
        earlier: NDArray[np.int32],
        places: Floats,
        places_earlier: NDArray[np.int32],
        phi: float,
        r: float,
        code: int,
    ) -> None:
        self.earlier = earlier
        n, m = earlier.shape
        count = min(MOST_KNOTS, n // RECORDS_EACH, len(places))
        given = min(GIVEN, count)
        if given:
            knots = places[:count]
            near = cKDTree(knots).query(sites, k=np.arange(1, given + 1), workers=-1)[1]
        else:
            near = np.empty((n, 0), dtype=np.int32)
        # One table of knots and records. The nugget is added to all: a knot's own is 1 without.
        both = np.full((count + n, given + m), -1, dtype=np.int32)
        both[:count, :m] = places_earlier[:count]
        both[count:, :given] = near
        both[count:, given:] = np.where(earlier >= 0, earlier + count, -1)
        with PARALLEL:
            weights, variance = conditional_weights(
                np.vstack([places[:count], sites]),
                np.concatenate([np.ones(count), a]),
                np.concatenate([np.full(count, 1.0 - r), own]),
                *(both, phi, r, code),
            )
        self.weights = np.ascontiguousarray(weights[count:, given:])
        self.variance = variance[count:]
        ends = np.arange(n + 1) * given
        self.on_knots = csr_array(
            (weights[count:, :given].ravel(), near.ravel(), ends), shape=(n, count)
        )
        self._factor = None
        if count:
            rows = np.eye(count)
            number, column = np.nonzero(both[:count] >= 0)
            rows[number, both[number, column]] -= weights[number, column]
            rows /= np.sqrt(np.maximum(variance[:count], _LEAST))[:, None]
            scaled = self.on_knots * (1.0 / np.sqrt(self.variance))[:, None]
            inner = rows.T @ rows + (scaled.T @ scaled).toarray()
            self._factor = cho_factor(inner, lower=True, overwrite_a=True, check_finite=False)

    def times(self, x: Floats) -> Floats:
        """The precision times x, shape (n,)."""
        out = wind(self.weights, self.earlier, x)
        if self._factor is not None:
            inner = self.on_knots.T @ (out / self.variance)
            out += self.on_knots @ -cho_solve(self._factor, inner, check_finite=False)
        out /= self.variance
        wind_transposed(self.weights, self.earlier, out)
        return np.asarray(out)
