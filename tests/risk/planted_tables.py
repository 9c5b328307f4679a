"""Ten confidential tables, each built around one way in which a release can fail its records.

Records stand in a unit square unless said otherwise; the values are drawn from the kriging model
of the documentation, or from a law that the table's name states.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Planted:
    """A table, and how its steward releases it.

    Attributes
    ----------
    table
        Columns x, y (place), z (covariate), value (response), and what the case adds.
    formula
        As for :func:`dsstan.protect`.
    threshold
        M of the flagging rule, in the unit of the places.
    options
        Further arguments of :func:`dsstan.protect`.
    step
        What prices are multiples of; 0 where values have all digits.
    """

    table: pd.DataFrame
    formula: str
    threshold: float
    options: dict[str, Any] = field(default_factory=dict)
    step: int = 0


def _draw(
    rng: np.random.Generator,
    places: Floats,
    *,
    decay: float,
    nugget: float,
    sill: float = 1.0,
) -> pd.DataFrame:
    """Values about 1 + z / 2 with an exponential effect, shape (N, 4)."""
    n = len(places)
    z = rng.normal(size=n)
    V = sill * np.exp(-decay * cdist(places, places)) + nugget * np.eye(n)
    value = 1 + 0.5 * z + np.linalg.cholesky(V) @ rng.normal(size=n)
    return pd.DataFrame({"x": places[:, 0], "y": places[:, 1], "z": z, "value": value.round(4)})


def _town(rng: np.random.Generator, n: int, *lone: tuple[float, float]) -> Floats:
    """n places in the unit square, the last of them at the lone places given."""
    places = rng.uniform(size=(n, 2))
    if lone:
        places[-len(lone) :] = lone
    return places


def weak_nugget(rng: np.random.Generator) -> Planted:
    """Values that the effect explains almost wholly; two records stand alone."""
    places = _town(rng, 60, (1.5, 1.5), (-0.5, 1.4))
    return Planted(_draw(rng, places, decay=3, nugget=0.02), "value ~ z", 0.4)


def _prices(table: pd.DataFrame, step: float) -> pd.DataFrame:
    price = np.exp(13 + 0.4 * (table["value"] - 1))
    return table.assign(value=(step * np.maximum((price / step).round(), 1)).astype(int))


def coarse_prices(rng: np.random.Generator) -> Planted:
    """Prices in steps of 50,000, about nine steps each."""
    places = _town(rng, 80, (1.5, 1.5))
    table = _prices(_draw(rng, places, decay=4, nugget=0.1), 50_000)
    return Planted(table, "log(value) ~ z", 0.4, step=50_000)


def proxy(rng: np.random.Generator) -> Planted:
    """A column that follows the response with a rank correlation of about 0.95."""
    table = _draw(rng, _town(rng, 70, (1.5, 1.5)), decay=4, nugget=0.3)
    noise = 0.3 * table["value"].std() * rng.normal(size=len(table))
    table["assessed"] = (table["value"] + noise).round(4)
    return Planted(table, "value ~ z", 0.4, {"publish": ["assessed"], "accept_proxy": ["assessed"]})


def digest(value: int) -> str:
    """SHA-256 of a price as it is written."""
    return hashlib.sha256(str(value).encode()).hexdigest()[:16]


def hashed(rng: np.random.Generator) -> Planted:
    """A hash of the price beside the price, published by name."""
    table = _prices(_draw(rng, _town(rng, 50, (1.5, 1.5)), decay=4, nugget=0.2), 1_000)
    table["key"] = [digest(price) for price in table["value"]]
    return Planted(table, "log(value) ~ z", 0.4, {"publish": ["key"]}, step=1_000)


def towers(rng: np.random.Generator) -> Planted:
    """Eighty homes in sixteen towers, and one that stands alone."""
    sites = _town(rng, 16)
    places = np.vstack([np.repeat(sites, 5, axis=0), [(1.5, 1.5)]])
    return Planted(_draw(rng, places, decay=4, nugget=0.2), "value ~ z", 0.4)


def far_outlier(rng: np.random.Generator) -> Planted:
    """One record ten towns away whose value is five sds from the others."""
    table = _draw(rng, _town(rng, 60, (10.0, 10.0)), decay=5, nugget=0.2)
    table.loc[59, "value"] += 5
    return Planted(table, "value ~ z", 1.0)


def long_range(rng: np.random.Generator) -> Planted:
    """An effect that reaches three times as far as the town is wide."""
    return Planted(_draw(rng, _town(rng, 70, (1.5, 1.5)), decay=1, nugget=0.1), "value ~ z", 0.4)


def thirty_records(rng: np.random.Generator) -> Planted:
    """Thirty records, two of them alone."""
    places = _town(rng, 30, (1.6, 1.5), (-0.6, 0.5))
    return Planted(_draw(rng, places, decay=4, nugget=0.2), "value ~ z", 0.4)


def brackets(rng: np.random.Generator) -> Planted:
    """Values whose thirds are kept in every copy."""
    table = _draw(rng, _town(rng, 60, (1.5, 1.5)), decay=4, nugget=0.2)
    return Planted(table, "value ~ z", 0.4)


def counts(rng: np.random.Generator) -> Planted:
    """Poisson counts with a mean near ten."""
    table = _draw(rng, _town(rng, 60, (1.5, 1.5)), decay=4, nugget=1e-6, sill=0.5)
    table["value"] = rng.poisson(np.exp(1.3 + table["value"]))
    return Planted(table, "value ~ z", 0.4)


Generator = Callable[[np.random.Generator], Planted]

GAUSSIAN: dict[str, Generator] = {
    f.__name__: f
    for f in (
        weak_nugget,
        coarse_prices,
        proxy,
        hashed,
        towers,
        far_outlier,
        long_range,
        thirty_records,
    )
}
NOT_JUDGED: dict[str, Generator] = {f.__name__: f for f in (brackets, counts)}


def planted(name: str, seed: int) -> Planted:
    """Table ``name`` of the ten, drawn with ``seed``."""
    generators = GAUSSIAN | NOT_JUDGED
    return generators[name](np.random.default_rng([seed, sorted(generators).index(name)]))
