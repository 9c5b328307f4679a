"""Copies rounded like the input: digits, heaping, and coincidences no more than by chance."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from scipy.stats import beta, norm

import dsstan as ds
from conftest import small_table
from dsstan.copies.draw import find_digits
from dsstan.core.errors import InputError
from dsstan.covariance.latent import LatentModel
from dsstan.models.posterior import parameters_at
from dsstan.table.rounding import FEWEST, MORE, Rounding, find_rounding
from mc import z_limit

QUICK = {"chains": 2, "warmup": 300, "samples": 500, "engine": "embedded", "progress": False}

COPIES = 200
"""Enough for dozens of coincidences where the column is coarse."""


def lognormal(n=500, *, centre=12.0, seed=1):
    return np.random.default_rng(seed).lognormal(centre, 0.5, n)


def heaped(n=500):
    """A third each of whole numbers, of hundreds and of thousands."""
    v, which = np.round(lognormal(n)), np.random.default_rng(2).random(n)
    return np.where(which < 1 / 3, v, np.where(which < 2 / 3, np.round(v, -2), np.round(v, -3)))


# What is found in a column


@pytest.mark.parametrize(
    ("values", "steps"),
    [
        (lognormal(), (0.0,)),
        (np.round(lognormal()), (1.0,)),
        (np.round(lognormal(centre=5), 2), (0.01,)),
        (np.round(lognormal(centre=-9), 6), (1e-6,)),
        (np.round(lognormal() / 50) * 50, (50.0,)),
        (np.round(lognormal(), -3), (1000.0,)),
        (-np.round(lognormal(), -3), (1000.0,)),
        (np.random.default_rng(1).integers(1, 90, 300).astype(float), (1.0,)),
        (np.random.default_rng(1).integers(1, 5, 300).astype(float), (1.0,)),
        (np.round(lognormal() / 25_000) * 25_000, (25_000.0,)),
        (np.round(lognormal() / 20_000) * 20_000, (20_000.0,)),
        (np.round(lognormal(centre=5) / 12.5) * 12.5, (12.5,)),
        (np.round(lognormal(centre=2) / 0.25) * 0.25, (0.25,)),
        (np.round(lognormal(centre=14) / 55_000) * 55_000, (55_000.0,)),
        (np.round(lognormal(centre=3)) * 0.3048, (0.3048,)),
        (np.round(lognormal(centre=21), -8), (1e8,)),
        (1e9 + np.round(lognormal(centre=5)), (1.0,)),
        (1e9 + np.round(lognormal(centre=5), 2), (0.01,)),
        (np.exp(np.log(25_000 * np.arange(1.0, 200.0))), (25_000.0,)),
        (np.arange(300) * 0.1, (0.1,)),
        (2.0**53 * np.arange(1.0, 100.0), (2.0**53,)),
        (3e16 + 1e15 * np.arange(50.0), (1e15,)),
        (np.round(np.random.default_rng(1).normal(0, 9e5, 400), -4), (1e4,)),
        (np.full(30, 37_500.0), (37_500.0,)),
        (np.random.default_rng(1).lognormal(40, 0.5, 300), (0.0,)),
        (np.zeros(9), (0.0,)),
        (np.array([]), (0.0,)),
    ],
)
def test_the_step_of_a_column_is_found(values, steps):
    found = find_rounding(values)
    assert found.steps == steps
    assert found.shares == (1.0,)


def test_single_precision_shows_the_digits_of_single_precision():
    values = np.round(lognormal(centre=3), 1).astype(np.float32)
    assert find_rounding(values.astype(float), np.float32).steps == (0.1,)
    quarters = (np.round(lognormal(centre=3) * 4) / 4).astype(np.float32)
    assert find_rounding(quarters.astype(float), np.float32).steps == (0.25,)
    coarse = (np.round(lognormal() / 25_000) * 25_000).astype(np.float32)
    assert find_rounding(coarse.astype(float), np.float32).steps == (25_000.0,)
    full = lognormal().astype(np.float32)
    assert find_rounding(full.astype(float), np.float32).steps[0] == 0.0


def test_a_digit_that_only_one_or_two_records_show_is_not_copied():
    values = np.round(lognormal(200), -3)
    values[: FEWEST - 1] += 123.45
    assert find_rounding(values).steps == (1000.0,)
    values[10 : 10 + FEWEST] += 0.05
    assert find_rounding(values).steps[0] == 0.05


@pytest.mark.parametrize("n", range(8, 40))
@pytest.mark.parametrize("odd", [1, 2])
def test_no_table_is_so_small_that_one_or_two_digits_show(n, odd):
    tens = 10.0 * np.arange(3, 3 + n)
    tens[:odd] += 5.0
    assert find_rounding(tens).units[0] % 10 == 0
    cents = 1000.0 * np.arange(3, 3 + n)
    cents[:odd] += 0.01
    found = find_rounding(cents)
    assert found.units[0] / 10**found.decimals >= 1000


def test_heaping_is_found_and_given_back():
    """Shares of multiples, in the copies as in the column, to sampling error."""
    values = heaped(3000)
    rounding = find_rounding(values)
    assert 1.0 in rounding.steps
    assert 1000.0 in rounding.steps
    copies = rounding.apply(lognormal(3000, seed=7), np.random.default_rng(3))
    for step in (5, 10, 100, 1000):
        p, q = np.mean(values % step == 0), np.mean(copies % step == 0)
        assert abs(p - q) < z_limit(4) * np.sqrt((p * (1 - p) + q * (1 - q)) / 3000)


@pytest.mark.parametrize(("fine", "coarse"), [(0.01, 1.0), (1.0, 25.0), (1.0, 12.0), (0.25, 5.0)])
def test_a_mixture_of_two_steps_is_found_with_its_shares(fine, coarse):
    """One price in three in cents, the others whole; dozens beside single pieces."""
    n, values = 900, lognormal(900, centre=6.0)
    own = np.arange(n) % 3 == 0
    values = np.where(own, np.round(values / fine) * fine, np.round(values / coarse) * coarse)
    found = find_rounding(np.round(values, 2))
    assert found.steps == (fine, coarse)
    assert found.shares[0] == pytest.approx(1 / 3, abs=z_limit(4) * np.sqrt(2 / 9 / n))


@pytest.mark.parametrize("seed", range(20))
def test_values_heaped_at_a_step_show_that_one_and_none_of_its_divisors(seed):
    """Multiples of 100 are multiples of 10, 20 and 50 too, as often more than chance has it."""
    values, coarse = lognormal(900, seed=seed, centre=8.0), np.arange(900) % 2 == 0
    values = np.where(coarse, np.round(values / 100) * 100, np.round(values))
    assert find_rounding(values).steps == (1.0, 100.0)


def test_large_values_are_rounded_to_large_steps():
    out = Rounding(0, (10**15,), (1.0,)).apply(np.array([3.26e16, 1e300]), np.random.default_rng(1))
    assert out[0] == 3.3e16


def test_many_copies_hardly_tell_whether_one_record_has_cents():
    """The intruder knows which of the others have cents, and sees the share in many copies.

    With the shares of the column they would know of the last record. Drawn from their posterior
    they make neither twice as likely as the other, in 99 of 100 releases.
    """
    n, with_cents = 120, 40
    rng, odds = np.random.default_rng(4), []
    column = Rounding(2, (1, 100), (with_cents / n, 1 - with_cents / n), records=n)
    for _ in range(400):
        share = column.redrawn(rng).shares[0]  # known exactly after very many copies
        has, not_has = (beta(k + 0.5, n - k + 0.5).logpdf(share) for k in (40, 39))
        odds.append(has - not_has)
    assert np.quantile(np.abs(odds), 0.99) < np.log(2.0)
    # Without the draw 10,000 copies, or 1.2 million values, settle it.
    error = np.sqrt(2 / 9 / (10_000 * n))
    assert 1 / n > 10 * error


def test_a_release_draws_its_own_shares_and_its_own_fewest(rounded):
    fit = rounded["heaped"]
    found = [find_digits(fit, seed) for seed in range(8)]
    assert len({each.shares for each in found}) > 4
    assert find_digits(fit, 3) == found[3]
    values = np.round(lognormal(300), -3)
    values[:6] += 0.5
    steps = {find_rounding(values, fewest=FEWEST + more).steps[0] for more in range(MORE)}
    assert steps == {0.5, 1000.0}


def test_no_heaping_is_seen_where_there_is_none():
    found = [find_rounding(np.round(lognormal(300, seed=seed))).steps for seed in range(50)]
    assert sum(steps != (1.0,) for steps in found) <= 3


# What is done with a copy


def test_one_step_uses_no_random_number():
    rng = np.random.default_rng(1)
    state = rng.bit_generator.state
    Rounding(2, (1,), (1.0,)).apply(lognormal(), rng)
    assert rng.bit_generator.state == state


def test_rounded_values_are_the_nearest_decimals():
    out = Rounding(2, (5,), (1.0,)).apply(
        np.array([0.07, 1.23, 99.999, -4.444]), np.random.default_rng(1)
    )
    assert [repr(float(v)) for v in out] == ["0.05", "1.25", "100.0", "-4.45"]


def test_values_beyond_what_floats_count_stay_as_they_are():
    values = np.array([1e300, np.inf, 3.0])
    np.testing.assert_array_equal(
        Rounding(2, (1,), (1.0,)).apply(values, np.random.default_rng(1)), values
    )


def test_no_value_is_rounded_out_of_the_domain_of_its_transform():
    out = Rounding(0, (500, 1000), (0.5, 0.5)).apply(
        np.array([3.0, 200.0, 2400.0]), np.random.default_rng(1), lambda v: v > 0
    )
    assert (out > 0).all()
    assert (out % 500 == 0).all()


@pytest.fixture(scope="module")
def rounded():
    """Fits of three tables: all digits, whole numbers, and heaped at hundreds and thousands."""
    fits = {}
    for name, change in {
        "all digits": lambda v: 1000 * v,
        "whole": np.round,
        "heaped": lambda v: np.where(np.arange(60) % 2, np.round(1000 * v, -2), np.round(v) * 1000),
    }.items():
        table = small_table()
        table["value"] = np.maximum(change(table["value"].to_numpy()), 1.0)
        problem = ds.prepare(table, "log(value) ~ x", coords=("east", "north"))
        fits[name] = ds.fit(problem, seed=1, **QUICK)
    return fits


def chance_of_coincidences(fit, release):
    """Expected number of values that equal their original in each copy, by exact laws.

    Given a draw, a copy on the modelled scale is normal with the mean and variance of the law
    of a copy. Rounded to a step it equals the original where it lies within half a step.
    """
    problem, rounding = fit.problem, release.rounding
    truth = problem.original()
    model, expected = LatentModel(fit), []
    for chain, iteration in release.draw_index:
        p = parameters_at(fit, int(chain), int(iteration))
        mean = problem.X @ p.beta + model.mean(p)
        sd = np.sqrt(np.diag(model.covariance(p)) + p.tau_sq)
        total = 0.0
        for step, share in zip(rounding.steps, rounding.shares, strict=True):
            if step == 0:
                continue
            low = problem.transform.forward(np.maximum(truth - step / 2, 1e-9))
            high = problem.transform.forward(truth + step / 2)
            chance = norm.cdf((high - mean) / sd) - norm.cdf((low - mean) / sd)
            total += share * float(np.sum(chance[truth % step == 0]))
        expected.append(total)
    return np.array(expected)


@pytest.mark.parametrize("name", ["all digits", "whole", "heaped"])
def test_originals_come_back_in_copies_as_often_as_chance_has_it(rounded, name):
    """At machine precision: the very double, in the record's own place."""
    fit = rounded[name]
    release = ds.synthesise(fit, COPIES, seed=9, accept_failed=True, accept_few_draws=True)
    found = np.sum(release.values == fit.problem.original(), axis=1)
    expected = chance_of_coincidences(fit, release)
    if name == "all digits":
        assert expected.sum() == 0
        assert found.sum() == 0
        return
    assert expected.sum() > 10
    # Records of a copy share their effect, so the error comes from the copies.
    error = np.sqrt(np.sum((found - expected) ** 2))
    assert abs(found.sum() - expected.sum()) < z_limit(2) * error


def test_no_column_of_a_copy_but_the_response_is_changed(rounded):
    fit = rounded["heaped"]
    release = ds.synthesise(fit, 2, seed=9, accept_failed=True)
    for number in range(2):
        pd.testing.assert_frame_equal(
            release.table(number).drop(columns="value"),
            fit.problem.table.drop(columns="value"),
            check_exact=True,
        )


def test_the_same_seed_gives_the_same_bytes_with_heaping_whatever_the_workers(rounded):
    digests = {
        ds.synthesise(rounded["heaped"], 12, seed=5, workers=n, accept_failed=True).values.tobytes()
        for n in (1, 3)
    }
    assert len(digests) == 1


def test_rounding_moves_a_copy_by_half_a_step_at_most(rounded):
    fit = rounded["heaped"]
    auto, none = (
        ds.synthesise(fit, 5, seed=5, rounding=how, accept_failed=True) for how in ("auto", "none")
    )
    assert none.rounding is None
    assert auto.rounding.steps[-1] >= 1000
    assert np.max(np.abs(auto.values - none.values)) <= auto.rounding.steps[-1]
    assert (auto.values % auto.rounding.steps[0] == 0).all()
    assert np.mean(none.values % 100 == 0) < 0.1


def test_heaping_is_settled_confidentially_and_not_published(rounded, tmp_path):
    release = ds.synthesise(rounded["heaped"], 3, seed=5, accept_failed=True)
    target = release.write(tmp_path / "out")
    kept = json.loads((target / "confidential" / "settings.json").read_text())["synthesis"]
    assert kept["rounding"]["steps"] == list(release.rounding.steps)
    public = json.loads((target / "public" / "metadata.json").read_text())
    assert public["rounding"] == "like the input"
    assert not any(str(share) in json.dumps(public) for share in release.rounding.shares)
    other = ds.synthesise(rounded["heaped"], 3, seed=5, rounding="none", accept_failed=True)
    target = other.write(tmp_path / "none")
    assert json.loads((target / "public" / "metadata.json").read_text())["rounding"] == "none"


def test_copies_to_compare_with_are_rounded_alike(kept):
    release = ds.synthesise(kept, 2, seed=5, rounding="none")
    assert release.unprotected.rounding is None
    assert ds.synthesise(kept, 2, seed=5).unprotected.rounding is not None


def test_an_unknown_rounding_is_refused(kept):
    with pytest.raises(InputError, match="rounding must be one of auto, none"):
        ds.synthesise(kept, 2, rounding="some")


@pytest.mark.parametrize("step", [100, 1000])
def test_regressions_on_rounded_copies_differ_by_far_less_than_their_error(rounded, step):
    """A step of a few per cent of a value moves no estimate by a tenth of its error."""
    table = small_table()
    table["value"] = np.round(10_000 * table["value"] / step) * step
    problem = ds.prepare(table, "log(value) ~ x", coords=("east", "north"))
    fit = ds.fit(problem, seed=1, **QUICK)
    estimates = {}
    for how in ("auto", "none"):
        kept = ds.utility(ds.synthesise(fit, 20, seed=3, rounding=how, accept_failed=True))
        estimates[how] = kept.get("unrestricted", "x")
    width = estimates["none"]["high"] - estimates["none"]["low"]
    assert abs(estimates["auto"]["estimate"] - estimates["none"]["estimate"]) < 0.025 * width
