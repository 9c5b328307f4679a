"""A guess at what each column is to the response."""

from __future__ import annotations

import hashlib
import time

import numpy as np
import pandas as pd
import pytest

from dsstan.copies.protect import protect
from dsstan.core.errors import ReleaseError
from dsstan.table.column_roles import (
    PROXY,
    ColumnRole,
    check_proxies,
    column_roles,
    guess_roles,
)
from dsstan.table.prepare import prepare

N = 120


def digest(value: object) -> str:
    return hashlib.sha256(str(value).encode()).hexdigest()


def table(n: int = N, *, step: float | None = 50_000.0) -> pd.DataFrame:
    """Prices with an assessed value, ids, hashes and harmless columns beside them."""
    rng = np.random.default_rng(1)
    price = np.exp(rng.normal(13.0, 0.5, n))
    if step is not None:
        price = np.round(price / step) * step
    assessed = price * np.exp(rng.normal(0.0, 0.1, n))
    return pd.DataFrame(
        {
            "x": rng.random(n),
            "y": rng.random(n),
            "price": price,
            "beds": rng.integers(1, 5, n),
            "assessed": assessed,
            "as_text": ["$" + format(value, ",.0f") for value in assessed],
            "reversed": -assessed,
            "with_gaps": np.where(rng.random(n) < 0.3, np.nan, assessed),
            "row": rng.permutation(n),
            "hash": [digest(value) for value in price],
            "salted": [digest((value, k % 2)) for k, value in enumerate(price)],
            "record_hash": [digest(k) for k in range(n)],
            "lot": np.exp(rng.normal(size=n)),
            "sold": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 400, n), "D"),
            "zip": rng.integers(94100, 94130, n).astype(str),
            "band": pd.Categorical(np.digitize(price, np.quantile(price, [0.2, 0.4, 0.6, 0.8]))),
            "pool": rng.random(n) < 0.4,
            "country": "US",
            "empty": None,
            "owner_id": rng.integers(0, 40, n),
        }
    )


def roles(data: pd.DataFrame, **more: object) -> dict[str, ColumnRole]:
    return {role.name: role for role in guess_roles(data, response="price", **more)}  # type: ignore[arg-type]


def test_every_kind_of_column_gets_its_role() -> None:
    found = roles(table(), coords=("x", "y"), formula=("beds",))
    assert {name: role.role for name, role in found.items()} == {
        "x": "coordinate",
        "y": "coordinate",
        "price": "response",
        "beds": "formula",
        "assessed": "proxy",
        "as_text": "proxy",
        "reversed": "proxy",
        "with_gaps": "proxy",
        "row": "identifier",
        "hash": "code",
        "salted": "code",
        "record_hash": "identifier",
        "lot": "covariate",
        "sold": "covariate",
        "zip": "covariate",
        "band": "proxy",
        "pool": "covariate",
        "country": "covariate",
        "empty": "covariate",
        "owner_id": "identifier",
    }


@pytest.mark.parametrize("step", [None, 1.0, 1_000.0, 50_000.0, 400_000.0])
def test_a_hash_of_the_price_names_it_whatever_the_step_of_prices(step: float | None) -> None:
    found = roles(table(step=step))["hash"]
    assert found.names_response
    assert found.role in ("code", "identifier")


def test_columns_of_a_response_that_hardly_varies_are_no_codes_by_chance() -> None:
    rng = np.random.default_rng(2)
    for seed in range(20):
        draws = np.random.default_rng(seed)
        data = pd.DataFrame(
            {
                "price": (draws.random(200) < 0.05).astype(float),
                "zip": draws.integers(0, 90, 200),
                "block": rng.integers(0, 150, 200).astype(str),
            }
        )
        found = roles(data)
        assert found["zip"].role == "covariate"
        assert found["block"].role == "covariate"


def test_unrelated_columns_are_no_proxies_even_in_small_tables() -> None:
    alarms = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        data = pd.DataFrame({"price": rng.random(12), "a": rng.random(12)})
        alarms += roles(data)["a"].role == "proxy"
    assert alarms <= 6  # a rank correlation of 0.8 among 12 has a probability of 0.002


def test_a_proxy_that_is_not_monotone_is_found_by_groups() -> None:
    rng = np.random.default_rng(3)
    price = rng.normal(size=2_000)
    data = pd.DataFrame({"price": price, "hidden": np.cos(2.5 * price) + price**2 / 50})
    data["hidden"] = np.where(price > 0, price, 3.0 - price)
    found = roles(data)["hidden"]
    assert found.role == "proxy"
    assert found.correlation is not None
    assert found.correlation >= PROXY


def test_without_a_response_there_are_identifiers_and_covariates_only() -> None:
    found = guess_roles(table(), coords=("x", "y"))
    assert {role.role for role in found} == {"coordinate", "identifier", "covariate"}
    assert all(role.correlation is None for role in found)


def test_a_reason_holds_no_value_of_the_table() -> None:
    data = table()
    for role in guess_roles(data, response="price"):
        assert not any(str(value) in role.reason for value in data["assessed"])


def test_roles_of_a_problem_know_its_formula_and_its_missing_values() -> None:
    data = table()
    data.loc[[3, 50], "price"] = np.nan
    problem = prepare(data, "log(price) ~ beds", coords=("x", "y"), missing="draw")
    found = {role.name: role.role for role in column_roles(problem)}
    assert found["beds"] == "formula"
    assert found["x"] == found["y"] == "coordinate"
    assert found["assessed"] == "proxy"
    assert found["hash"] == "code"


def test_a_proxy_is_refused_before_the_fit_unless_accepted_dropped_or_in_the_formula() -> None:
    data = table().drop(columns=["as_text", "reversed", "with_gaps", "band"])
    how = {"coords": ("x", "y"), "threshold": 0.2, "copies": 2, "engine": "embedded"}
    how["publish"] = ["assessed"]
    with pytest.raises(ReleaseError, match=r"'assessed' \(correlation 0\.9"):
        protect(data, "log(price) ~ beds", **how)
    accepted = prepare(data, "log(price) ~ beds", coords=("x", "y"))
    check_proxies(accepted, ["assessed"])
    check_proxies(accepted, published=["beds", "price", "x", "y"])
    check_proxies(prepare(data, "log(price) ~ log(assessed)", coords=("x", "y")))
    check_proxies(prepare(data.drop(columns="assessed"), "log(price) ~ beds", coords=("x", "y")))
    with pytest.raises(ReleaseError, match="'asessed'"):
        check_proxies(accepted, ["asessed"])


def test_cells_that_cannot_be_hashed_are_looked_at_as_text() -> None:
    data = table()
    data["shape"] = [[k % 7, k % 3] for k in range(N)]
    assert roles(data)["shape"].role == "covariate"


def test_a_million_records_take_seconds() -> None:
    data = table(200_000)
    begin = time.perf_counter()
    roles(data)
    assert time.perf_counter() - begin < 20.0
