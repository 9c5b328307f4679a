"""Published columns that predict the response: what an intruder gains, and what is reported."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import dsstan as ds
from dsstan.release.report.content import findings
from dsstan.risk.intruder.proxies import proxies_of

QUICK = {"chains": 2, "samples": 500, "seed": 1, "engine": "embedded", "progress": False}
N, FAR = 100, 3

BEATS = 1.1
"""An attack may be so much better than what is reported."""


def simulated(seed: int = 3) -> pd.DataFrame:
    """Prices with a spatial effect, three of them far from all others, and planted columns."""
    rng = np.random.default_rng(seed)
    sites = rng.random((N, 2))
    sites[:FAR] = [[2.0, 2.0], [3.0, -1.0], [-2.0, 2.0]]
    apart = np.linalg.norm(sites[:, None] - sites[None], axis=-1)
    root = np.linalg.cholesky(0.25 * np.exp(-5.0 * apart) + 1e-9 * np.eye(N))
    x = rng.normal(size=N)
    y = 12.0 + 0.3 * x + root @ rng.normal(size=N) + 0.15 * rng.normal(size=N)
    assessed = y + 0.1 * rng.normal(size=N)
    return pd.DataFrame(
        {
            "px": sites[:, 0],
            "py": sites[:, 1],
            "x": x,
            "price": np.exp(y),
            "assessed": np.exp(assessed),
            "as_text": ["$" + format(value, ",.0f") for value in np.exp(assessed)],
            "falling": 40.0 - np.exp(assessed / 4.0),
            "steep": np.cbrt(assessed - 12.0) * 3.0 + 4.0 * (assessed > 12.2),
            "band": pd.Categorical(np.digitize(y, np.quantile(y, [0.2, 0.4, 0.6, 0.8]))),
            "with_gaps": np.where(np.arange(N) % 4 == 0, np.nan, np.exp(assessed)),
            "beds": rng.integers(1, 5, N),
            "noise": rng.normal(size=N),
        }
    )


@pytest.fixture(scope="module")
def bare():
    """The unrestricted fit of the table without the planted columns."""
    return ds.fit(prepared(simulated(), []), **QUICK)


def prepared(table, columns):
    kept = table[["px", "py", "x", "price", *columns]]
    return ds.prepare(kept, "log(price) ~ x", coords=("px", "py"), publish=list(kept.columns))


def released(bare, columns):
    """Copies of the table with these columns; they are not in the formula, so the fit is one."""
    fit = replace(bare, problem=prepared(simulated(), columns))
    return ds.synthesise(fit, 5, seed=1, accept_failed=True, accept_few_draws=True, progress=False)


def regression_attack(table: pd.DataFrame, z: np.ndarray) -> np.ndarray:
    """Errors of somebody who predicts each price from all others by least squares on x and z."""
    y = np.log(table["price"].to_numpy())
    X = np.column_stack([np.ones(N), table["x"], z])
    hat = X @ np.linalg.solve(X.T @ X, X.T)
    return (y - hat @ y) / (1.0 - np.diag(hat))


def kriging_attack(table: pd.DataFrame, z: np.ndarray) -> np.ndarray:
    """Errors of somebody who adds the mean residual of the five nearest others."""
    y = np.log(table["price"].to_numpy())
    X = np.column_stack([np.ones(N), table["x"], z])
    sites = table[["px", "py"]].to_numpy()
    out = np.empty(N)
    for i in range(N):
        others = np.arange(N) != i
        beta = np.linalg.lstsq(X[others], y[others], rcond=None)[0]
        near = np.argsort(np.linalg.norm(sites[others] - sites[i], axis=1))[:5]
        residual = (y[others] - X[others] @ beta)[near].mean()
        out[i] = y[i] - X[i] @ beta - 0.5 * residual
    return out


@pytest.mark.parametrize("column", ["assessed", "as_text", "falling", "steep"])
def test_an_attack_through_a_planted_column_does_not_beat_what_is_reported(bare, column):
    table = simulated()
    found = ds.assess(released(bare, [column, "beds"]), exact=0, progress=False)
    assert found.proxies.used[0] == column
    z = np.log(table["assessed"].to_numpy())  # the attacker has looked through any transform
    reported = found.after.leave_one_out
    for attack in (regression_attack, kriging_attack):
        error = attack(table, z)
        if column == "steep":
            ranks = pd.Series(table["steep"]).rank().to_numpy()
            error = attack(table, ranks)
        rms = np.sqrt(np.mean(error**2))
        assert np.sqrt(np.mean(reported**2)) < BEATS * rms
        far = np.sqrt(np.mean(error[:FAR] ** 2))
        assert far > 0
    without = ds.assess(released(bare, ["beds"]), exact=0, progress=False)
    assert np.all(reported[:FAR] < 0.5 * without.after.leave_one_out[:FAR])
    assert np.all(found.sd < without.sd)


def test_bands_of_the_response_and_columns_with_gaps_are_found(bare):
    for column in ("band", "with_gaps"):
        release = released(bare, [column])
        assert proxies_of(release, release.fit).used == (column,)


def test_columns_that_say_nothing_change_nothing(bare):
    release = released(bare, ["beds", "noise"])
    found = proxies_of(release, release.fit)
    assert found.used == ()
    np.testing.assert_array_equal(found.factor, 1.0)


def test_false_alarms_are_rare(bare):
    rng, alarms = np.random.default_rng(5), 0
    base = simulated()
    for _ in range(40):
        table = base.assign(noise=rng.normal(size=N))
        fit = replace(bare, problem=prepared(table, ["noise"]))
        release = ds.synthesise(
            fit, 2, seed=1, accept_failed=True, accept_few_draws=True, progress=False
        )
        alarms += proxies_of(release, fit).used != ()
    assert alarms <= 4  # two standard errors have a probability of 0.02, three ways to try


def test_the_exact_posterior_counts_the_proxy_and_the_floor_sees_it(bare):
    with_it = ds.assess(released(bare, ["assessed"]), floor=0.05, exact=3, progress=False)
    without = ds.assess(released(bare, []), floor=0.05, exact=3, progress=False)
    assert with_it.sd.min() < without.sd.min()
    rows = with_it.exact.records
    assert (rows["sd"] < rows["sd_leave_one_out"] * 1.000001).all()
    assert with_it.summary()["proxies"]["used"] == ["assessed"]
    assert "assessed" in str(with_it)


def test_no_record_is_left_more_than_without_the_column(bare):
    release = released(bare, ["assessed", "steep", "band", "beds", "noise"])
    found = proxies_of(release, release.fit)
    assert (found.factor <= 1.0).all()
    assert (found.factor > 0.0).all()


def test_a_column_of_the_formula_in_another_shape_counts():
    """The model takes a straight line in area; prices follow its log, and so does an intruder."""
    rng = np.random.default_rng(3)
    area = rng.uniform(20, 400, 60)
    table = pd.DataFrame(
        {
            "x": rng.random(60),
            "y": rng.random(60),
            "area": area,
            "price": np.exp(8 + np.log(area) + 0.03 * rng.normal(size=60)),
        }
    )
    problem = ds.prepare(table, "log(price) ~ area", coords=("x", "y"))
    free = ds.fit(problem, engine="direct", seed=1, progress=False)
    release = ds.synthesise(free, 4, seed=2, accept_failed=True)
    found = ds.assess(release, floor="10%", progress=False)
    assert found.proxies is not None
    assert found.proxies.used == ("area",)
    assert found.verdict == "missed"
    (item,) = [
        i for i in findings(release, found) if i.title == "Columns that predict the response"
    ]
    assert item.todo.startswith("The formula has area, and not in the form that tells most")
    assert "into" not in item.todo
    # What least squares on the log leaves, which needs no copy.
    assert np.median(found.sd) < 1.3 * 0.03
