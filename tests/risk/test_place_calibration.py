"""Chances of finding somebody's cell come true: under a surface, over many simulated tables."""

from __future__ import annotations

import numpy as np
import pytest
from places_by_sampling import SampledIntruder
from scipy.spatial.distance import cdist
from scipy.stats import norm
from test_place_surface import SILL, surface

from dsstan.risk.places.evidence import evidence_of
from dsstan.risk.places.known import KnownPlaces

SIDE, OTHERS, COPIES, TABLES, DRAWS = 4, 30, 5, 600, 10_000
PHI = 0.5
FALSE_ALARM = 1e-4
"""Of each of the two comparisons, both sides."""


def one_table(covariance, rng):
    """By how much the intruder's guesses beat what is printed: a drawn one, and the best one."""
    C = len(covariance)
    logs = np.linalg.cholesky(covariance) @ rng.standard_normal(C)
    others = rng.multinomial(OTHERS, np.exp(logs) / np.exp(logs).sum()).astype(float)
    law, intruder = surface(covariance), SampledIntruder(covariance, 1, DRAWS)
    cell = rng.choice(C, p=law.expected(others[None], 0))  # as the intruder believes
    table = others + np.eye(C)[cell]
    chances = intruder.at(intruder.informing(table))
    released = [rng.multinomial(OTHERS + 1, chances.chances(rng)) for _ in range(COPIES)]
    cells = np.repeat(np.arange(C), table.astype(int))
    known = KnownPlaces(law, table[None], np.zeros(len(cells), dtype=np.intp), cells, held_back=1)
    (found,) = evidence_of(known, np.array(released, dtype=float)[:, None])
    said = found.posterior[found.pairs.cells == cell][0]
    return said[cell] - said @ said, float(said.argmax() == cell) - said.max()


@pytest.mark.nightly("600 simulated tables")
def test_the_printed_chance_of_the_right_cell_is_the_rate_of_hits():
    """Range and sill are known, and the person's cell is drawn from the intruder's own prior, so
    that the posterior is calibrated exactly. A guess that is drawn from it hits with the chance of
    the right cell, and claims to hit with the sum of squares; the best one claims the largest."""
    grid = np.stack(np.meshgrid(*[np.arange(SIDE)] * 2), axis=-1).reshape(-1, 2)
    covariance = SILL * (np.exp(-PHI * cdist(grid, grid)) + 1e-9 * np.eye(SIDE**2))
    rng = np.random.default_rng(12)
    beaten = np.array([one_table(covariance, rng) for _ in range(TABLES)])
    error = beaten.std(axis=0, ddof=1) / np.sqrt(TABLES)
    assert np.all(np.abs(beaten.mean(axis=0)) < norm.isf(FALSE_ALARM / 2) * error)
