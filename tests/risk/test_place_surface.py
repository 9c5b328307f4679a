"""The numbers of places under a Gaussian surface against an intruder who samples."""

from __future__ import annotations

import numpy as np
import pytest
from places_by_sampling import SampledIntruder
from scipy.spatial.distance import cdist

from dsstan.models.intensity.cell_law import IndependentCells
from dsstan.models.intensity.fit import fit_intensity
from dsstan.models.intensity.held_surface import HeldSurface
from dsstan.models.intensity.posterior import CellModel, inverse
from dsstan.models.intensity.surface_law import SurfaceLaw
from dsstan.risk.places.assessment import assess_counts
from dsstan.risk.places.evidence import evidence_of
from dsstan.risk.places.known import KnownPlaces
from dsstan.table.mask.mask import Mask

TENTH = 1.1
"""No intruder may beat a printed number by more."""

SILL = 1.5

PLANTED = {
    "one lonely record": ([9, 6, 0, 0, 3, 0, 0, 1], 1.0),
    "a pair": ([9, 6, 1, 0, 3, 0, 0, 2], 1.0),
    "two side by side": ([9, 6, 1, 0, 0, 0, 2, 2], 0.4),
    "a tower": ([2, 30, 2, 0, 1, 0, 1, 0], 1.0),
    "a hole in the mask": ([5, 5, 2, 0, 0, 0, 4, 3], 1.0),
}


def surface(covariance):
    """The law of one group with a held covariance of its cells."""
    C = len(covariance)
    law = SurfaceLaw(None, np.zeros((1, C)), np.zeros(C), np.arange(1))
    model = CellModel(inverse(covariance.copy()), np.zeros(C), np.ones((1, C, 1)), np.zeros(1))
    law.__dict__["surfaces"] = (HeldSurface(model, np.zeros((1, C))),)
    return law


def compare(name, copies, draws):
    counts, phi = PLANTED[name]
    table, places = np.array(counts, float), np.arange(8.0)[:, None]
    if name == "a hole in the mask":
        places[3:, 0] += 4.0
    covariance = SILL * (np.exp(-phi * cdist(places, places)) + 1e-9 * np.eye(8))
    intruder = SampledIntruder(covariance, 1, draws)
    informing = intruder.informing(table)
    rng = np.random.default_rng(5)
    released = [
        rng.multinomial(int(table.sum()), intruder.at(informing).chances(rng)).astype(float)
        for _ in range(copies)
    ]
    cell = np.repeat(np.arange(8), table.astype(int))
    group = np.zeros(len(cell), dtype=np.intp)
    known = KnownPlaces(surface(covariance), table[None], group, cell, held_back=1)
    (found,) = evidence_of(known, np.array(released)[:, None])
    log_factor = found.of_true_cell(found.log_factor)
    for row, at in enumerate(found.pairs.cells):
        true = intruder.log_present(released, table, at)
        assert log_factor[row] >= true - np.log(TENTH)
        after = intruder.chances(released, table, at)[at]
        assert found.posterior[row, at] >= after / TENTH


@pytest.mark.parametrize("name", ["a pair", "two side by side"])
def test_who_samples_does_not_beat_two_copies(name):
    compare(name, copies=2, draws=20_000)


@pytest.mark.nightly("an intruder who samples surfaces for 20 copies, five times")
@pytest.mark.parametrize("name", PLANTED)
def test_who_samples_does_not_beat_twenty_copies(name):
    compare(name, copies=20, draws=200_000)


LINE = np.array([[0.5, 0.5], [1.5, 0.5], [2.5, 0.5], [3.5, 0.5], [8.5, 0.5]])
"""Four cells in a row and one far away."""
DRAWN = 300_000


def on_the_line(counts, **how):
    """An intensity of records on these cells, one row a group, and its groups."""
    counts = np.array(counts)
    group, cell = (np.repeat(at, counts.ravel()) for at in np.indices(counts.shape).reshape(2, -1))
    mask = Mask(LINE, 1.0, np.ones(5))
    groups = [f"g{k}" for k in group] if len(counts) > 1 else None
    return fit_intensity(LINE[cell], mask, groups=groups, seed=1, progress=False, **how)


def test_who_knows_neither_range_nor_sill_does_not_beat_the_printed_numbers():
    """Against draws of range, sill and surface from their priors, weighted by the counts."""
    counts = np.array([5, 3, 0, 2, 2])
    where = on_the_line(counts[None])
    (fit,) = where.fits.values()
    rng = np.random.default_rng(3)
    phi = rng.uniform(*fit.priors.phi_bounds, DRAWN)
    sigma = np.abs(rng.standard_normal(DRAWN)) * fit.priors.sigma[0]
    R = np.exp(-phi[:, None, None] * cdist(LINE, LINE)) + 1e-9 * np.eye(5)
    z = rng.standard_normal((DRAWN, 5))
    u = np.einsum("sij,sj->si", np.linalg.cholesky(R), z) * sigma[:, None]
    chances = np.exp(u - u.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)

    def expected(n):
        weight = np.exp(np.log(chances) @ n)
        return weight @ chances / weight.sum()

    copies = where.law.draws(where.informing, 3, rng)[:, 0]
    released = [rng.multinomial(counts.sum(), one / one.sum()) for one in copies]
    (found,) = evidence_of(KnownPlaces.of(where), np.array(released, float)[:, None])
    for row, cell in enumerate(found.pairs.cells):
        others, table = where.informing[0].copy(), counts.astype(float)
        others[cell] -= 1.0
        table[cell] -= 1.0
        factor = np.sum([np.log(expected(others + one)) for one in released], axis=0)
        factor -= len(released) * np.log(expected(others))
        factor[table < 1.0] = 0.0
        chance = expected(table) * np.exp(factor)
        assert found.log_factor[row, cell] == pytest.approx(factor[cell], abs=np.log(TENTH))
        assert found.posterior[row, cell] == pytest.approx(
            chance[cell] / chance.sum(), rel=TENTH - 1.0
        )


def test_the_only_person_who_informs_a_group_with_a_surface_of_its_own_is_certain_to_be_there():
    """Without them the group would be drawn from the exposure alone."""
    where = on_the_line([[4, 3, 2, 3, 2], [1, 2, 1, 0, 0]], surface="own")
    known = KnownPlaces.of(where)
    released = np.array([[[3, 3, 3, 3, 2], [1, 1, 1, 1, 0]]], float)
    found = assess_counts(known, released, places="population", number="drawn", presence=3.0)
    only = (known.group_index == 1) & (known.cell_index == 1)
    assert np.isinf(found.bayes_factor[only]).all()
    assert np.isfinite(found.bayes_factor[~only]).all()
    assert found.found.cell[only].min() > found.found.cell_before[only].max()


def test_a_group_that_nobody_informs_rules_out_the_cells_where_the_person_would():
    where = on_the_line([[4, 3, 2, 3, 2], [1, 1, 1, 0, 0]], surface="own")
    found = evidence_of(
        KnownPlaces.of(where), np.array([[[3, 3, 3, 3, 2], [1, 1, 1, 0, 0]]], float)
    )
    for row, cell in enumerate(found[1].pairs.cells):
        beside = np.array([1, 1, 1, 0, 0])
        beside[cell] = 0
        assert (found[1].posterior[row][beside == 1] == 0.0).all()
        assert (found[1].log_factor[row][beside == 0] == 0.0).all()


def test_independent_cells_need_nobody_to_inform_them():
    where = on_the_line([[1, 1, 1, 0, 0]], surface="none")
    assert isinstance(where.law, IndependentCells)
    (found,) = evidence_of(KnownPlaces.of(where), np.array([[[1, 1, 1, 0, 0]]], float))
    assert np.isfinite(found.log_factor).all()
