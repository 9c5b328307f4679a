"""Records that share a site and a smoothing, as one row and what is left of them.

Within such a group of k records a Helmert rotation leaves sqrt(k) times their mean, whose variance
in M is k times that of a record's effect, and k - 1 contrasts without a spatial effect. So a table
has as many rows as it has sites, exactly, and the contrasts hold tau_sq alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dsstan.core.arrays import Floats, Indices
from dsstan.covariance.protection import removed_variance

__all__ = ["Contrasts", "SiteMeans", "site_means"]


@dataclass(frozen=True)
class Contrasts:
    """Rows without a spatial effect, such as what records at a site say beside their mean.

    Attributes
    ----------
    noise
        Their variance beside r: the share of the sill that smoothing turns into noise.
    count
        Number of rows.
    squares
        Lower triangle, row by row, of their Z'Z.
    """

    noise: float
    count: int
    squares: Floats

    @classmethod
    def of(cls, noise: float, count: int, z: Floats) -> Contrasts:
        """Of rows that have the sums of squares of ``z``, shape (any, k)."""
        return cls(noise, count, (z.T @ z)[np.tril_indices(z.shape[1])])

    def statistics(self, r: Floats) -> Floats:
        """Their part of the scaled statistics at each r, shape (H, K)."""
        variance = r + self.noise
        log_det = self.count * (np.log(variance) - np.log1p(r))
        return np.column_stack([log_det, np.outer((1.0 + r) / variance, self.squares)])


@dataclass(frozen=True, eq=False)
class SiteMeans:
    """Groups of records that share a site and a smoothing.

    Attributes
    ----------
    first
        Position of the first record of each group, shape (q,).
    root
        Square root of the number of its records, shape (q,).
    scale
        Diagonal of A of the scaled means, sqrt(k) times that of a record, shape (q,).
    noise
        Variance of each in M beside that of its effect, shape (q,).
    means
        The rows of Z of the groups: sqrt(k) times their means, shape (q, columns).
    contrasts
        What is left of the records within the groups.
    """

    first: Indices
    root: Floats
    scale: Floats
    noise: Floats
    means: Floats
    contrasts: tuple[Contrasts, ...]


def site_means(site: Indices, a_diag: Floats, protection: str, Z: Floats) -> SiteMeans:
    """One row for all records that share a site and a smoothing.

    Parameters
    ----------
    site
        The first of the records at each record's site, shape (n,).
    a_diag, protection
        See :func:`dsstan.covariance.surface_statistics.smoothed_correlation`.
    Z
        Data of the records, shape (n, columns).
    """
    _, first, group, k = np.unique(
        np.column_stack([site, a_diag]),
        axis=0,
        return_index=True,
        return_inverse=True,
        return_counts=True,
    )
    group, root = group.ravel(), np.sqrt(k)
    means = np.zeros((k.size, Z.shape[1]))
    np.add.at(means, group, Z)
    means /= root[:, None]
    noise = removed_variance(a_diag, protection)
    away = Z - (means / root[:, None])[group]
    contrasts = tuple(
        Contrasts.of(
            float(value),
            int(np.sum(noise == value) - np.sum(noise[first] == value)),
            away[noise == value],
        )
        for value in np.unique(noise[(k > 1)[group]])
    )
    return SiteMeans(first, root, root * a_diag[first], noise[first], means, contrasts)
