"""How near to the truth an intruder gets, in shares of a value and counts of records."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

import dsstan as ds
from conftest import small_table
from dsstan.risk.assessment import assess, measured, unassessed
from dsstan.risk.floors import Floor
from dsstan.risk.intruder.public_files import PublicFiles, _plain, public_files
from dsstan.risk.placing import NEAR, chance_near, half_width, placed_within

ALIKE = 1e-9
"""Rounding of an exponential and its logarithm."""


def problem_of(formula, values=None):
    table = small_table(40, shared=2)
    if values is not None:
        table = table.assign(value=values)
    return ds.prepare(table, formula, coords=("east", "north"))


def test_under_log_the_half_width_is_one_number_for_one_sd():
    problem = problem_of("log(value) ~ x")
    found = half_width(problem, np.full(40, 0.058))
    np.testing.assert_allclose(found, np.tanh(1.96 * 0.058), rtol=ALIKE)


@pytest.mark.parametrize(
    "response", ["value", "log(value)", "log2(value)", "log10(value)", "log1p(value)"]
)
def test_a_floor_that_is_just_met_is_printed_as_itself(response):
    problem = problem_of(f"{response} ~ x")
    width = half_width(problem, Floor.parse("15%").least_sd(problem))
    np.testing.assert_allclose(width, 0.15, rtol=ALIKE)


@pytest.mark.parametrize("formula", ["value ~ x", "log(value) ~ x", "log1p(value) ~ x"])
def test_the_chance_is_that_of_estimates_drawn_around_the_truth(formula):
    problem = problem_of(formula)
    rng = np.random.default_rng(5)
    sd = 0.05 + 0.2 * rng.random(40)
    draws = 40_000
    estimates = problem.transform.inverse(problem.y + sd * rng.standard_normal((draws, 40)))
    truth = problem.original()
    share = np.mean(np.abs(estimates - truth) <= NEAR * np.abs(truth), axis=0)
    expected = chance_near(problem, sd)
    error = np.sqrt(expected * (1 - expected) / draws)
    # 40 records and three formulas at a false alarm of 1e-5 in all: 5.3 errors.
    np.testing.assert_array_less(np.abs(share - expected), 5.3 * error + 1e-4)


def test_a_value_of_zero_is_placed_within_no_share_of_it():
    values = np.linspace(-2.0, 3.0, 40)
    values[7] = 0.0
    problem = problem_of("value ~ x", values)
    sd = np.full(40, 0.1)
    assert np.isinf(half_width(problem, sd)[7])
    assert chance_near(problem, sd)[7] == 0.0
    assert placed_within(np.inf) == "no limit"


def test_the_table_follows_the_weakest_record_of_each_group_through_the_stages(kept):
    release = ds.synthesise(kept, 5, seed=1, progress=False)
    found = assess(release, exact=0, draws=50)
    table = found.placing().set_index(["group", "stage"])
    width = half_width(kept.problem, found.sd)
    for group, members in (("flagged", kept.flagged), ("unflagged", ~kept.flagged)):
        assert table.loc[(group, "restricted"), "within"] == width[members].min()
        weakest = np.flatnonzero(members)[np.argmin(width[members])]
        alone = half_width(kept.problem, found.after.leave_one_out)
        assert table.loc[(group, "no_release"), "within"] == alone[weakest]
        before = half_width(kept.problem, found.sd_before)
        assert table.loc[(group, "unrestricted"), "within"] == before[weakest]
        expected = chance_near(kept.problem, found.sd)[members].mean()
        assert table.loc[(group, "restricted"), "near"] == expected


def test_the_record_of_which_most_is_learnt_is_found_among_all(kept):
    release = ds.synthesise(kept, 5, seed=1, progress=False)
    found = assess(release, exact=0, draws=50)
    within, alone = (half_width(kept.problem, sd) for sd in (found.sd, found.after.leave_one_out))
    shorter = within / alone
    one = found.most_learnt
    assert one["position"] == np.argmin(shorter)
    assert one["flagged"] == kept.flagged[one["position"]]
    assert one["within"] < one["alone"]
    assert placed_within(one["within"]) in found.most_learnt_in_words()
    assert unassessed(release, "none").most_learnt is None


def test_copies_with_noise_alone_count_as_protected(kept):
    bare = ds.synthesise(kept.start, 5, seed=1, noise=0.5, progress=False)
    assert bare.protected
    assert bare.protection == "noise"
    assert set(assess(bare, exact=0, draws=50).placing()["stage"]) == {"no_release", "restricted"}
    both = ds.synthesise(kept, 5, seed=1, noise=0.5, progress=False)
    assert both.protection == "paper and noise"
    assert not ds.synthesise(kept.start, 5, seed=1, progress=False).protected


def test_what_protection_did_is_counted(kept):
    release = ds.synthesise(kept, 5, seed=1, progress=False)
    found = assess(release, exact=0, draws=50)
    quiet = dataclasses.replace(found.after, error=np.zeros(60), leave_one_out_error=None)
    before = dataclasses.replace(quiet, information=1.5 * quiet.information)
    most = np.argmax(quiet.information * quiet.leave_one_out**2)  # of which copies tell most
    before.information[most] = 0.2 * quiet.information[most]
    made = dataclasses.replace(found, after=quiet, before=before)
    said = made.effect_of_protection()
    assert said.startswith("Protection, 60 records by their lower bounds: 59 safer, 1 less safe (1")
    assert said == f"{made.safer_and_less_safe()}; the weakest is not flagged"


def test_a_release_without_an_intruder_is_not_judged_and_says_why(kept):
    release = ds.synthesise(kept, 5, seed=1, progress=False)
    found = unassessed(release, "no intruder is computed here")
    assert found.verdict == "not judged"
    assert found.why == "no intruder is computed here"
    assert str(found).startswith("DISCLOSURE: NOT JUDGED: no intruder is computed here")
    assert found.placing()["public"].notna().all()
    with pytest.raises(ds.core.errors.InputError, match="no intruder is computed here"):
        _ = found.sd
    counted = measured(release)
    assert counted.verdict == "not judged"
    assert counted.why == "no floor was asked for"


# The public files alone


@pytest.fixture(scope="module")
def free_release(free):
    return ds.synthesise(free, 40, seed=2, progress=False)


def test_the_mean_of_the_copies_is_compared_with_the_truth(free_release):
    found = public_files(free_release)
    problem = free_release.problem
    mean = problem.transform.inverse(free_release.modelled().mean(axis=0))
    near = np.abs(mean - problem.original()) <= 0.1 * np.abs(problem.original())
    np.testing.assert_array_equal(found.near["mean of the copies"], near)


def test_undoing_the_smoothing_comes_nearer_to_the_truth(kept):
    """By many copies, which leave little noise: the model's estimate is the better one."""
    release = ds.synthesise(kept, 60, seed=2, progress=False)
    found = public_files(release, share=0.05).near
    assert found["smoothing undone"].sum() > found["mean of the copies"].sum()


def test_the_smoothing_is_undone_under_the_exact_covariance_alone(small):
    fit = ds.fit(small, covariance="vecchia", engine="direct", seed=1, progress=False)
    release = ds.synthesise(fit, 3, seed=1, accept_failed=True, progress=False)
    assert list(public_files(release).near) == ["mean of the copies"]


@pytest.mark.parametrize("outcome", ["Gaussian", "Poisson"])
@pytest.mark.parametrize("moves", [False, True])
@pytest.mark.parametrize("approximate", [False, True])
def test_copies_of_another_law_are_left_alone(outcome, moves, approximate):
    fit = SimpleNamespace(
        outcome=outcome,
        smoothing_moves=moves,
        covariance=SimpleNamespace(approximate=approximate),
    )
    assert _plain(fit) == (outcome == "Gaussian" and not moves and not approximate)


def test_records_without_a_truth_are_in_no_group():
    flagged, known = np.arange(6) < 2, np.arange(6) % 2 == 0
    near = {"mean of the copies": np.array([True, True, True, True, False, True])}
    assert PublicFiles(near, flagged, known).placed() == {"flagged": 1.0, "unflagged": 0.5}


def test_copies_of_the_truth_are_found_by_their_mean(kept):
    release = ds.synthesise(kept, 3, seed=1, progress=False)
    same = dataclasses.replace(release, values=np.tile(kept.problem.original(), (3, 1)))
    found = public_files(same)
    assert found.near["mean of the copies"].all()
    assert set(found.placed().values()) == {1.0}
