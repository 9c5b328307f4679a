"""Strategies for the fuzz tests: tables, coordinates, formulas, jobs, releases."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import strategies as st

__all__ = ["coordinates", "formulas", "jobs", "metadata_changes", "tables", "toml_texts"]

NAMES = ("value", "x", "kind", "east", "north", "lon", "lat", "two words", "été", "log", "C", "")

FINITE = st.floats(-1e6, 1e6, allow_nan=False)
ANY_FLOAT = st.one_of(FINITE, st.floats(), st.sampled_from([0.0, -0.0, 5e-324, 1.7e308, 1e-300]))
WHOLE = st.one_of(st.integers(-1000, 1000), st.integers(-(2**63), 2**63 - 1))
TEXT = st.one_of(
    st.text(max_size=5),
    st.sampled_from(["a", "b", "", "=1+1", "@x", "-1", "NA", "é", "\x00", "\ud800", "a,b", '"']),
)


def columns(n: int) -> st.SearchStrategy[Any]:
    """One column of n values, of any kind that tables hold."""

    def of(values: st.SearchStrategy[Any], dtype: Any) -> st.SearchStrategy[Any]:
        return st.lists(values, min_size=n, max_size=n).map(lambda v: pd.Series(v, dtype=dtype))

    positive = st.floats(1e-3, 1e6)
    return st.one_of(
        of(positive, "float64"),
        of(FINITE, "float64"),
        of(ANY_FLOAT, "float64"),
        of(st.floats(-100, 100, width=32), "float32"),
        of(WHOLE, "int64"),
        of(st.integers(0, 3), "int8"),
        of(st.one_of(st.none(), st.integers(0, 9)), "Int64"),
        of(st.booleans(), "bool"),
        of(TEXT, object),
        st.lists(st.sampled_from("abc"), min_size=n, max_size=n).map(
            lambda v: pd.Series(v, dtype="category")
        ),
        of(st.one_of(st.none(), TEXT, FINITE), object),
        st.just(pd.Series(pd.date_range("2020-01-01", periods=n))),
        of(st.just(1.0), "float64"),
    )


@st.composite
def tables(draw: Any, *, sane: bool | None = None) -> pd.DataFrame:
    """A table of 0 to 25 rows; a sane one can be modelled, most others can't."""
    if draw(st.booleans()) if sane is None else sane:
        n = draw(st.integers(6, 25))
        rng = np.random.default_rng(draw(st.integers(0, 2**32)))
        table = pd.DataFrame(
            {
                "east": rng.normal(size=n) * draw(st.sampled_from([1e-6, 1.0, 1e6])),
                "north": rng.normal(size=n),
                "x": rng.normal(size=n).round(draw(st.integers(0, 12))),
                "value": np.exp(rng.normal(size=n) * draw(st.sampled_from([0.01, 1.0, 3.0]))),
                "kind": rng.choice(list("ab"), size=n),
            }
        )
        if draw(st.booleans()):
            table["value"] = table["value"].round(draw(st.integers(0, 3))) + 1
        if draw(st.booleans()):
            table.loc[: n // 3, ["east", "north"]] = table.loc[0, ["east", "north"]].to_numpy()
        if draw(st.booleans()):
            return table
        name = draw(st.sampled_from(list(table.columns)))
        return table.assign(**{name: draw(columns(n))})
    n = draw(st.integers(0, 12))
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=6))
    table = pd.concat([draw(columns(n)) for _ in names], axis=1, ignore_index=True)
    table.columns = pd.Index(names)
    kind = draw(st.sampled_from(["plain", "text", "repeated", "float", "named"]))
    if kind == "text":
        table.index = pd.Index([f"r{i}" for i in range(n)], dtype=object)
    elif kind == "repeated":
        table.index = pd.Index([0] * n)
    elif kind == "float":
        table.index = pd.Index([i / 3 for i in range(n)])
    elif kind == "named":
        table.index.name = "=id"
    return table


coordinates = st.one_of(
    st.just(("east", "north")),
    st.just(("lon", "lat")),
    st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)),
    st.none(),
    st.sampled_from([("east",), "east", (1, 2), ("east", "north", "x"), [], {}]),
)

WORDS = """
value x kind east 1 0 -1 + - * / : ** ^ ~ | ( ) , . % %in% ` { } [ ] log( log(x) scale(x) poly(x,2)
bs(x,df=4) C(kind) I(x**2) exp(exp(x)) np.log(x) __import__('os') lambda eval( open('f')
x.__class__ `two_words` 1e999 99999999 " ' # é
"""
PIECES = st.sampled_from([*WORDS.split(), "\n", "\x00", "\\", " ", "`two words`"])
RIGHTS = """
1,x,x + kind,scale(x),poly(x; 2),C(kind),0 + x,x:kind,x*kind,log(x),bs(x; df=4),I(x**2),x - 1,
sqrt(abs(x)),1/x,east + north,`two words`
"""
RIGHT = st.sampled_from([piece.strip().replace(";", ",") for piece in RIGHTS.split(",")])
LEFT = st.sampled_from(["value", "log(value)", "log1p(value)", "log10(value)", "x", "kind"])

formulas = st.one_of(
    st.builds("{} ~ {}".format, LEFT, RIGHT),
    st.builds("{} ~ {}".format, LEFT, st.lists(PIECES, max_size=6).map(" ".join)),
    st.lists(PIECES, max_size=8).map("".join),
    st.text(max_size=20),
)

OPTIONS = """
table formula coords out crs distance copies seed threshold correlation neighbour gamma protection
engine format absolute chains warmup samples adapt_delta phi_bounds accept_failed strict rounding
csv_text workdir cov_model tabel __class__ engine.x
"""
KEYS = st.sampled_from(OPTIONS.split())
VALUES = st.recursive(
    st.one_of(
        st.text(max_size=8),
        st.integers(-5, 2**70),
        st.floats(),
        st.booleans(),
        st.sampled_from(
            ["in.csv", "log(value) ~ x", "auto", "paper", "csv", "refuse", "matern32", "../x"]
        ),
    ),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)

jobs = st.one_of(
    st.dictionaries(KEYS, VALUES, max_size=6),
    st.dictionaries(KEYS, VALUES, max_size=2).map(
        lambda more: {
            "table": "in.csv",
            "formula": "log(value) ~ x",
            "coords": ["east", "north"],
            "out": "out",
            **more,
        }
    ),
)


def toml_of(value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return {"inf": "inf", "-inf": "-inf", "nan": "nan"}.get(repr(value), repr(value))
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_of, value)) + "]"
    if isinstance(value, str):
        # JSON's escapes are TOML's, but for surrogates, which neither file can hold.
        return json.dumps(value.encode("utf-8", "replace").decode(), ensure_ascii=False).replace(
            "\x7f", "\\u007f"
        )
    return str(value)


toml_texts = st.one_of(
    jobs.map(lambda job: "\n".join(f"{key} = {toml_of(value)}" for key, value in job.items())),
    st.text(max_size=60),
    st.sampled_from(
        ["a = " + "[" * 2000 + "]" * 2000, "a = 1" + "0" * 5000, "[" * 5000, "copies = 1e400"]
    ),
)

metadata_changes = st.one_of(
    st.tuples(st.just("delete"), st.integers(0, 13)),
    st.tuples(st.just("replace"), st.integers(0, 13), VALUES),
    st.tuples(st.just("add"), st.text(max_size=5), VALUES),
    st.tuples(st.just("model"), st.integers(0, 5), VALUES),
)
