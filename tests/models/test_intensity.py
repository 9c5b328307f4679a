"""Fits of where records are, and what they refuse."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy import stats
from scipy.spatial.distance import cdist

from dsstan.core.errors import CoordinateError, InputError, TableError
from dsstan.models.counts.fit import fit_counts
from dsstan.models.counts.outcomes import OUTCOMES
from dsstan.models.counts.runs import Task
from dsstan.models.intensity.fit import fit_intensity
from dsstan.models.intensity.result import Intensity
from dsstan.models.intensity.stacked import flat_columns, priors_of, stacked
from dsstan.models.intensity.surface_law import SurfaceLaw
from dsstan.table.mask.mask import Mask
from dsstan.table.mask.points import mask_of_cells

Floats = NDArray[np.float64]
SIDE = 6
EVIDENCE = 0.01
"""Relative error of chances that are weighted by the evidence of surfaces."""
QUICK = {"chains": 2, "warmup": 60, "samples": 150, "progress": False}


def grid(side: int = SIDE) -> Mask:
    """Square cells of width 1, with exposure and a covariate."""
    x, y = (a.ravel() for a in np.meshgrid(np.arange(side) + 0.5, np.arange(side) + 0.5))
    cells = pd.DataFrame({"x": x, "y": y, "people": 1.0 + (x > 3), "height": np.sin(x)})
    return mask_of_cells(cells, coords=("x", "y"), exposure="people")


def records(mask: Mask, n: int = 200, seed: int = 3) -> tuple[Floats, list[str]]:
    """Places and groups a, b and c; c is one record, and another stands alone in a corner."""
    rng = np.random.default_rng(seed)
    near = np.exp(-np.hypot(*(mask.centres - 4.0).T))
    sites = mask.draw(rng.choice(mask.n_cells, n, p=near / near.sum()), rng)
    sites[0] = [0.2, 0.2]
    return sites, ["b" if i % 4 == 0 else "a" for i in range(n - 1)] + ["c"]


@pytest.fixture(scope="module")
def shared() -> Intensity:
    mask = grid()
    sites, groups = records(mask)
    return fit_intensity(sites, mask, groups=groups, formula="height", seed=4, **QUICK)


def test_counts_are_those_of_the_table() -> None:
    mask = grid()
    sites, groups = records(mask)
    found = fit_intensity(sites, mask, groups=groups, surface="none")
    assert found.groups == ("a", "b", "c")
    assert found.counts.sum() == 200
    k, c = 1, int(mask.cell_of(sites[:1])[0])
    inside = [g == "b" for g in groups] & (mask.cell_of(sites) == c)
    assert found.counts[k, c] == inside.sum()


@pytest.mark.parametrize("held_back", [0, 1, 3])
def test_a_cell_informs_by_its_records_beyond_those_held_back(held_back: int) -> None:
    mask = grid()
    sites, groups = records(mask)
    found = fit_intensity(sites, mask, groups=groups, surface="none", held_back=held_back)
    for i, group in enumerate(groups):
        same = mask.cell_of(sites) == mask.cell_of(sites[i : i + 1])
        together = int(np.sum(same & (np.array(groups) == group)))
        informing = found.informing[found.group_index[i], found.cell_index[i]]
        assert informing == max(together - held_back, 0)
        assert found.lonely[i] == (together <= held_back)


def test_one_record_more_changes_one_informing_count_by_one_at_most() -> None:
    mask = grid()
    sites, groups = records(mask)
    found = fit_intensity(sites, mask, groups=groups, surface="none", held_back=2)
    for i in range(len(groups)):
        some = np.arange(len(groups)) != i
        fewer = replace(
            found, group_index=found.group_index[some], cell_index=found.cell_index[some]
        )
        change = found.informing - fewer.informing
        own = change[found.group_index[i], found.cell_index[i]]
        assert change.sum() == own == float(not found.lonely[i])


def test_the_surface_is_of_the_informing_counts(shared: Intensity) -> None:
    fit = shared.fits["restricted"]
    assert list(shared.fits) == ["restricted"]
    assert shared.lonely[0]  # alone in its corner
    assert shared.lonely[-1]  # alone in its group
    assert fit.problem.original().sum() == 200 - (shared.counts > 0).sum()
    assert np.ptp(fit.draws["phi"]) > 0.0
    assert "c" not in fit.problem.table["group"].unique()  # no record of it informs


def test_records_of_a_group_that_informs_nothing_are_heard_in_the_copies(shared: Intensity) -> None:
    """They come from the same draw of the chances as the others."""
    law, counts = shared.law, shared.informing
    more, others = counts.copy(), counts.copy()
    more[2, 9] += 3.0
    others[counts.sum(axis=1).argmax(), 9] += 3.0
    assert law.expected(more, 0)[9] > 1.2 * law.expected(counts, 0)[9]
    np.testing.assert_allclose(law.expected(more, 0), law.expected(others, 0), rtol=1e-9)


def test_a_record_is_taken_out_as_if_it_had_never_been_there(shared: Intensity) -> None:
    """Exactly where there are few cells, and by what the other cells keep where there are many."""
    law, counts = shared.law, shared.informing
    cells = np.flatnonzero(counts[0] > 0)[:4]
    found = law.without(counts, 0, cells)
    for row, cell in zip(found, cells, strict=True):
        less = counts.copy()
        less[0, cell] -= 1.0
        np.testing.assert_allclose(row, law.expected(less, 0), rtol=EVIDENCE)


def test_where_nobody_is_held_back_all_records_inform() -> None:
    sites = records(grid())[0]
    found = fit_intensity(sites, grid(), held_back=0, seed=4, **QUICK)
    assert list(found.fits) == ["unrestricted"]
    assert not found.lonely.any()


def test_chances_sum_to_one_and_expectations_are_those_of_the_draws(shared: Intensity) -> None:
    law, counts = shared.law, shared.informing
    draws = law.draws(counts, 300, np.random.default_rng(1))
    np.testing.assert_allclose(draws.sum(axis=2), 1.0)
    for k in range(3):
        expected = law.expected(counts, k)
        error = draws[:, k].std(axis=0) / np.sqrt(150)  # half of the draws are effective
        # phi and sigma_sq are held in the law: a twentieth for what their spread adds.
        assert np.max(np.abs(draws[:, k].mean(axis=0) - expected) / (error + 0.05 * expected)) < 4.5
        without = law.without(counts, k, np.flatnonzero(counts[k % 2])[:2])
        np.testing.assert_allclose(without.sum(axis=1), 1.0)
    # A group without an informing record has the chances of all.
    a, b = counts[0].sum(), counts[1].sum()
    pooled = (a * law.expected(counts, 0) + b * law.expected(counts, 1)) / (a + b)
    np.testing.assert_allclose(law.expected(counts, 2), pooled, rtol=1e-3)


def test_taking_a_record_away_is_the_law_of_the_counts_without_it(shared: Intensity) -> None:
    law, counts = shared.law, shared.informing
    assert isinstance(law, SurfaceLaw)
    cell = int(np.argmax(counts[1]))
    less = counts.copy()
    less[1, cell] -= 1.0
    ours = law.without(counts, 1, np.array([cell]))[0]
    np.testing.assert_allclose(ours, law.expected(less, 1), rtol=5e-3)


def test_chances_are_drawn_given_the_counts_of_the_fit_only(shared: Intensity) -> None:
    with pytest.raises(InputError, match="counts of the fit"):
        shared.law.draws(shared.counts + 1.0, 1, np.random.default_rng(0))


def test_a_surface_of_its_own_knows_no_other_group() -> None:
    mask = grid()
    sites, groups = records(mask)
    found = fit_intensity(sites, mask, groups=groups, surface="own", seed=4, **QUICK)
    assert {name.split()[1] for name in found.fits} == {"a", "b"}  # no record of c informs
    other = found.informing.copy()
    other[0] += 3.0
    np.testing.assert_array_equal(
        found.law.expected(found.informing, 1), found.law.expected(other, 1)
    )
    chances = found.law.draws(found.informing, 1, np.random.default_rng(1))[0]
    np.testing.assert_allclose(chances[2], mask.exposure / mask.exposure.sum())


def test_the_stacked_table_is_a_poisson_model_with_a_shared_surface() -> None:
    mask = grid(4)
    counts = np.random.default_rng(5).poisson(2.0, (2, 16)).astype(np.float64)
    problem = stacked(mask, counts, ("a", "b"), "height")
    fit = fit_counts(
        problem,
        offset="exposure_of_cell",
        phi=0.7,
        priors=priors_of(problem, 2),
        seed=1,
        **{**QUICK, "warmup": 10, "samples": 20},
    )
    model = Task(
        problem,
        OUTCOMES["poisson"],
        fit.shift,
        fit.A,
        fit.cov_model,
        fit.covariance,
        fit.priors,
        0.7,
        fit.settings,
        1,
        "",
        False,
    ).model()
    beta, w = fit.draws["beta"][0, -1], fit.draws["w"][0, -1]
    sill = float(fit.draws["sigma_sq"][0, -1])
    x = np.concatenate([beta, w[np.argsort(model.place_of)]])
    frame = model.frame(np.log([0.7, sill]), x)
    group = np.repeat([0.0, 1.0], 16)
    height = np.tile(mask.covariates["height"], 2)
    eta = beta @ np.stack([np.ones(32), group, height, group * height])
    eta = eta + np.log(np.tile(mask.exposure / mask.exposure.mean(), 2)) + np.tile(w, 2)
    R = sill * np.exp(-0.7 * cdist(mask.centres, mask.centres))
    ours = stats.poisson.logpmf(counts.ravel(), np.exp(eta)).sum()
    ours += stats.multivariate_normal.logpdf(w, cov=R)
    ours += stats.norm.logpdf(beta, 0.0, fit.priors.beta_scale).sum()
    constant = -16 * 0.5 * np.log(2 * np.pi) + stats.norm.logpdf(0, 0, fit.priors.beta_scale).sum()
    assert model.log_joint(frame, x) + constant == pytest.approx(ours, abs=1e-8)


def test_intercepts_are_told_from_slopes_whatever_their_coding() -> None:
    problem = stacked(grid(4), np.ones((3, 16)) + np.arange(16), ("a", "b", "c"), "height")
    X = np.asarray(problem.X).reshape(3, 16, -1)
    slopes = ["height" in term for term in problem.terms]
    assert flat_columns(X).tolist() == [not s for s in slopes]
    scale = np.array(priors_of(problem, 3).beta_scale)
    np.testing.assert_allclose(scale[slopes], 2.5 / grid(4).covariates["height"].std(ddof=0))


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"surface": "flat"}, InputError, "surface must be one of"),
        ({"surface": "none", "formula": "height"}, InputError, "leave formula out"),
        ({"held_back": -1}, InputError, "held_back must be"),
        ({"prior": 0}, InputError, "prior must be"),
        ({"groups": ["a"]}, InputError, "one label a record"),
        ({"groups": "zone"}, InputError, "does not have"),
        ({"groups": [None] + ["a"] * 199}, TableError, "missing in 1 row"),
        ({"held_back": 200, **QUICK}, InputError, "no cell holds more than 200"),
    ],
)
def test_arguments_that_cannot_be_met_are_refused(
    arguments: dict[str, object], error: type[Exception], words: str
) -> None:
    mask = grid()
    with pytest.raises(error, match=words):
        fit_intensity(records(mask)[0], mask, seed=1, **arguments)  # type: ignore[arg-type]


def test_a_record_outside_the_mask_is_named_by_its_row_only() -> None:
    mask = grid()
    sites = records(mask)[0]
    sites[7] = [100.0, 0.0]
    with pytest.raises(CoordinateError, match=r"1 row \(position 7.*outside the mask") as caught:
        fit_intensity(sites, mask)
    assert "100" not in str(caught.value)


def test_places_in_another_unit_than_the_mask_are_named_as_such() -> None:
    mask = grid()
    with pytest.raises(CoordinateError, match="outside the mask: give the mask or the addresses"):
        fit_intensity(1000.0 * records(mask)[0], mask)


def test_a_covariate_may_not_take_the_name_of_a_column_that_is_added() -> None:
    mask = Mask(grid().centres, 1.0, np.ones(36), pd.DataFrame({"group": np.arange(36.0)}))
    with pytest.raises(InputError, match="rename the covariate 'group'"):
        fit_intensity(records(grid())[0], mask, formula="group", seed=1, **QUICK)
