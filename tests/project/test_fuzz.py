"""Generated input: a clear dsstan error or a valid result, never anything else.

The nightly run generates ten times as many cases. A case that failed is printed in
full by hypothesis and can be pasted into a test of its own.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pandas as pd
import pytest
from fuzz_strategies import (
    VALUES,
    coordinates,
    formulas,
    metadata_changes,
    tables,
    toml_texts,
)
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

import dsstan as ds
from conftest import NIGHTLY, ROOT
from dsstan.cli.command_line import synthesise as command
from dsstan.cli.job import read_job
from dsstan.core.errors import DsstanError
from dsstan.models.result import Fit
from dsstan.release.metadata import check_metadata
from dsstan.release.reading import read_release, read_table
from dsstan.table.formats.kinds import FORMATS, format_named
from dsstan.table.formulas.formula import parse
from dsstan.table.text.cells import quote, unquote
from factory import fit_from

geopandas = pytest.importorskip("geopandas")
pytest.importorskip("openpyxl")
pytest.importorskip("pyreadstat")

WITHOUT_PLACES = [one.name for one in FORMATS if one.shapes != "must"]

TIMES = 10 if NIGHTLY else 1

CASES = {
    "prepare": 600,
    "parse": 400,
    "weights": 120,
    "copies": 110,
    "release": 30,
    "public": 250,
    "metadata": 230,
    "table": 200,
    "files": 280,
    "job": 250,
    "fit": 5,
}
"""Cases of each test; together at least 2,000, and 20,000 at night."""

SLOWEST = timedelta(seconds=60)
"""Far above any case on a busy machine: a case this slow hangs."""


def cases(name: str) -> Any:
    """So many generated cases, the same in every run by day."""
    return settings(
        max_examples=CASES[name] * TIMES,
        deadline=SLOWEST,
        derandomize=TIMES == 1,
        database=None,
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )


def or_error(call: Any, *arguments: Any, **options: Any) -> Any:
    """The result, or None where a dsstan error says what is wrong; anything else is a bug."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return call(*arguments, **options)
        except DsstanError as error:
            if not str(error):
                raise
            return None


def test_there_are_as_many_cases_as_promised():
    assert sum(CASES.values()) >= 2_000
    assert 10 * sum(CASES.values()) >= 20_000


@given(
    table=tables(),
    formula=formulas,
    coords=coordinates,
    distance=st.sampled_from([None, None, "planar", "degrees", "projected", "x", 1]),
    crs=st.sampled_from([None, None, None, "EPSG:4326", "EPSG:0", 3, "EPSG:32610", object()]),
)
@cases("prepare")
@example(
    table=pd.DataFrame(
        {
            **{"east": np.arange(9.0), "north": np.arange(9.0) ** 2, "value": [1.0, 2.0, 3.0] * 3},
            "kind": pd.Series(["a", "\ud800", "b"] * 3, dtype=object),
        }
    ),
    formula="value ~ kind",
    coords=("east", "north"),
    distance=None,
    crs=None,
)
def test_prepare(table, formula, coords, distance, crs):
    problem = or_error(ds.prepare, table, formula, coords=coords, distance=distance, crs=crs)
    if problem is None:
        return
    assert problem.n_records == len(table)
    pd.testing.assert_frame_equal(problem.table, table)
    for array in (problem.y, problem.X, problem.sites, problem.coords):
        assert len(array) == len(table)
        assert np.isfinite(array).all()
    assert np.linalg.matrix_rank(problem.X / np.linalg.norm(problem.X, axis=0)) == problem.n_terms


@given(text=st.one_of(formulas, st.text(max_size=40), st.integers()))
@cases("parse")
def test_formulas_are_data(text):
    parsed = or_error(parse, text)
    assert parsed is None or parsed.response


def fit_of(problem: Any, seed: int, weights: Any = None, protection: str = "paper") -> Fit:
    """A fit with draws of the prior's kind, made without a sampler."""
    rng = np.random.default_rng(seed)
    spread = float(np.std(problem.y)) or 1.0
    shape = (2, 6)
    center = np.linalg.lstsq(problem.X, problem.y, rcond=None)[0]
    draws = {
        "beta": center + 0.1 * spread * rng.normal(size=(*shape, problem.n_terms)),
        "sigma_sq": spread**2 * rng.gamma(2.0, 0.5, shape),
        "tau_sq": spread**2 * 10.0 ** rng.uniform(-6, 0, shape),
        "phi": rng.uniform(1.0, 10.0, shape) / problem.d_max,
    }
    restricted = {} if weights is None else {"weights": weights, "protection": protection}
    return fit_from(problem, draws, seed=seed, **restricted)


@st.composite
def problems(draw: Any) -> Any:
    """A prepared table; most are sane."""
    table = draw(tables(sane=True))
    formula = draw(st.sampled_from(["value ~ 1", "log(value) ~ 1", "value ~ x", "x ~ kind"]))
    return or_error(ds.prepare, table, formula, coords=("east", "north"))


NUMBERS = st.one_of(st.none(), st.floats(), st.integers(-3, 30), st.text(max_size=2))


@given(
    problem=problems(),
    given_weights=st.one_of(
        st.lists(st.floats(), max_size=25), st.sampled_from(["x", "kind", "no", None]), VALUES
    ),
    numbers=st.tuples(NUMBERS, NUMBERS, NUMBERS),
    by_site=st.booleans(),
)
@cases("weights")
def test_weights(problem, given_weights, numbers, by_site):
    if problem is None:
        return
    correlation, distance, neighbour = numbers
    options = {"correlation": correlation, "distance": distance, "by_site": by_site}
    if neighbour is not None:
        options["neighbour"] = neighbour
    for weights in (
        or_error(ds.own_weights, problem, given_weights),
        or_error(lambda: ds.flag_isolated(fit_of(problem, 1), **options)),
    ):
        if weights is not None:
            assert weights.a.shape == (problem.n_records,)
            assert ((weights.a >= 0) & (weights.a <= 1)).all()


@given(
    problem=problems(),
    seed=st.one_of(st.integers(0, 2**130), st.sampled_from([None, -1, 1.5, "x", True])),
    copies=st.one_of(st.integers(-1, 14), st.sampled_from([2.0, "2", None])),
    effect=st.sampled_from(["auto", "w", "w*", "plug", "x", None]),
    protection=st.sampled_from(["paper", "preserving", "cut"]),
    rounding=st.sampled_from(["auto", "auto", "none", "x", 3]),
    tolerance=st.one_of(st.none(), st.floats()),
    flagged=st.integers(0, 2**25),
)
@cases("copies")
def test_copies_and_what_they_disclose(
    problem, seed, copies, effect, protection, rounding, tolerance, flagged
):
    if problem is None:
        return
    own = np.array([(flagged >> i) & 1 for i in range(problem.n_records)], dtype=float)
    weights = ds.own_weights(problem, own) if own.any() else None
    fit = or_error(fit_of, problem, 2, weights, protection)
    if fit is None:
        return
    options = {"seed": seed, "effect": effect, "rounding": rounding, "accept_few_draws": True}
    release = or_error(ds.synthesise, fit, copies, **options)
    if release is None:
        return
    assert release.values.shape == (copies, problem.n_records)
    assert np.isfinite(release.values).all()
    assert np.isfinite(release.modelled()).all()
    assert list(release.table(0).dtypes) == list(problem.table.dtypes)
    risks = or_error(ds.disclosure, release, absolute=tolerance)
    if risks is not None:
        shares = risks.summary["share"]
        assert ((shares >= 0) & (shares <= 1)).all()
    if copies > 1:
        kept = or_error(ds.utility, release)
        assert kept is None or np.isfinite(kept.table["estimate"]).all()


@given(
    table=tables(sane=True),
    text=st.sampled_from(["refuse", "quote", "keep"]),
    format=st.sampled_from(["csv", *WITHOUT_PLACES]),
    labels=st.sampled_from(["none", "name", "text", "two"]),
)
@cases("release")
@example(  # all records but one have one value
    table=pd.DataFrame(
        {
            "east": [1.3e-7, -1.3e-7, 6.4e-7, 1.0e-7, -5.4e-7, 3.6e-7],
            "north": [1.30, 0.95, -0.70, -1.27, -0.62, 0.04],
            "x": [-2.0, -0.0, -1.0, -1.0, -1.0, -0.0],
            "value": [False, False, False, False, False, True],
            "kind": list("abbaab"),
        }
    ),
    text="refuse",
    format="csv",
    labels="none",
)
def test_a_release_is_read_back_as_it_was_written(tmp_path_factory, table, text, format, labels):
    if labels == "name":
        table.index.name = "id"
    elif labels == "text":
        table.index = pd.Index([f"={i}" for i in range(len(table))], name="label")
    elif labels == "two":
        table.index = pd.MultiIndex.from_product([["a"], range(len(table))], names=["p", "q"])
    where = {"coords": ("east", "north"), "publish": list(table.columns)}
    problem = or_error(ds.prepare, table, "value ~ 1", **where)
    if problem is None:
        return
    release = or_error(ds.synthesise, fit_of(problem, 3), 2, seed=1, accept_few_draws=True)
    # A text that is written as a formula of the reader's would not come back as it was.
    text = text if format_named(format).is_text else "refuse"
    folder = tmp_path_factory.mktemp("fuzz") / "out"
    if release is None or not or_error(release.write, folder, format=format, csv_text=text):
        assert not folder.exists()
        return
    back = read_release(folder)
    shutil.rmtree(folder.parent)
    for number, copy in enumerate(back.copies):
        wanted = release.table(number)
        np.testing.assert_array_equal(copy["value"], wanted["value"])
        assert list(copy.columns) == list(wanted.columns)
        for name in ("east", "north", "x"):
            if name != "value" and pd.api.types.is_float_dtype(wanted[name].dtype):
                np.testing.assert_array_equal(copy[name], wanted[name])
        if labels != "none" and format == "csv":
            assert [str(v) for v in copy.index] == [str(v) for v in wanted.index]


@pytest.fixture(scope="module")
def public(tmp_path_factory):
    """The public side of a small release in each format, and the table behind it."""
    table = pd.DataFrame(
        {
            "east": np.arange(8.0),
            "north": np.arange(8.0) ** 2,
            "value": np.arange(1.0, 9.0)[::-1] % 5 + 0.25,
            "kind": list("abcdabcd"),
        }
    )
    problem = ds.prepare(table, "value ~ 1", coords=("east", "north"), publish=["kind"])
    release = ds.synthesise(fit_of(problem, 3), 3, seed=1, accept_few_draws=True)
    folder = tmp_path_factory.mktemp("public")
    return {kind: release.write(folder / kind, format=kind) / "public" for kind in WITHOUT_PLACES}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A small table in every format, by its name."""
    folder = tmp_path_factory.mktemp("files")
    table = pd.DataFrame({"rent": [1.5, 2.5, 3.5], "n": [1, 2, 3], "zip": ["007", "b", "c"]})
    placed = geopandas.GeoDataFrame(
        table, geometry=geopandas.points_from_xy([5e5, 6e5, 7e5], [1e5, 2e5, 1e5]), crs="EPSG:27700"
    )
    for format in FORMATS:
        given_table = placed if format.shapes == "must" else table
        format.write(given_table, folder / f"t.{format.name}", None, [])
    return folder


def damaged(content: bytes, where: int, what: bytes, cut: bool) -> bytes:
    """Bytes with some overwritten, or cut off."""
    at = where % (len(content) + 1)
    return content[:at] + what + (b"" if cut else content[at + len(what) :])


@given(
    format=st.sampled_from(WITHOUT_PLACES),
    name=st.sampled_from(["copy_001", "copy_002", "copy_003", "metadata.json"]),
    where=st.integers(0, 2**20),
    what=st.binary(max_size=8),
    cut=st.booleans(),
)
@cases("public")
def test_a_damaged_public_release(public, tmp_path_factory, format, name, where, what, cut):
    folder = tmp_path_factory.mktemp("damaged") / "public"
    shutil.copytree(public[format], folder)
    path = folder / (name if name.endswith("json") else f"{name}.{format}")
    path.write_bytes(damaged(path.read_bytes(), where, what, cut))
    back = or_error(read_release, folder)
    shutil.rmtree(folder.parent)
    if back is None:
        return
    assert len(back.copies) == back.metadata["copies"]
    for copy in back.copies:
        assert len(copy) == back.metadata["records"]
        assert np.isfinite(copy[back.synthetic_column].astype(float)).all()


SCHEMA = jsonschema.Draft202012Validator(
    json.loads((ROOT / "docs" / "metadata.schema.json").read_text())
)


@given(changes=st.lists(metadata_changes, max_size=3))
@cases("metadata")
def test_the_reader_of_metadata_refuses_what_its_schema_refuses(public, changes):
    content = json.loads((public["csv"] / "metadata.json").read_text())
    for kind, *change in changes:
        keys = list(content)
        if kind == "add":
            content[change[0]] = change[1]
        elif kind == "model" and isinstance(content.get("model"), dict) and content["model"]:
            inner = list(content["model"])
            content["model"][inner[change[0] % len(inner)]] = change[1]
        elif kind == "delete" and keys:
            del content[keys[change[0] % len(keys)]]
        elif kind == "replace" and keys:
            content[keys[change[0] % len(keys)]] = change[1]
    wrong = check_metadata(content)
    if not SCHEMA.is_valid(content):
        assert wrong is not None
    elif wrong is not None and not any(isinstance(value, float) for value in content.values()):
        # To a schema 2.0 is a whole number; the reader wants 2.
        assert "each copy once" in wrong or "among the columns" in wrong


@given(
    format=st.sampled_from(FORMATS),
    part=st.integers(0, 4),
    where=st.integers(0, 2**20),
    what=st.binary(max_size=8),
    cut=st.booleans(),
)
@cases("files")
def test_a_damaged_file_of_any_format(files, tmp_path_factory, format, part, where, what, cut):
    folder = tmp_path_factory.mktemp("damaged")
    for path in files.glob("t.*"):
        if path.name == f"t.{format.name}" or path.suffix[1:] in format.parts:
            shutil.copy(path, folder)
    endings = [format.name, *format.parts]
    path = folder / f"t.{endings[part % len(endings)]}"
    if path.exists():
        path.write_bytes(damaged(path.read_bytes(), where, what, cut))
    table = or_error(read_table, folder / f"t.{format.name}")
    shutil.rmtree(folder)
    if table is not None:
        assert table.columns.is_unique
        problem = or_error(ds.prepare, table, "rent ~ 1", coords=("n", "rent"))
        assert problem is None or np.isfinite(problem.y).all()


CELLS = st.sampled_from(["a", "b", "1", "007", "", '"', "1e999", "NA", "-"])


@given(
    text=st.one_of(
        st.binary(max_size=80),
        st.text(max_size=80).map(lambda t: t.encode("utf-8", "surrogatepass")),
        st.lists(
            st.lists(
                st.sampled_from(["a", "b", "1", "007", "", '"', "1e999", "NA", "-"]), max_size=4
            ).map(",".join),
            max_size=6,
        ).map(lambda r: "\n".join(r).encode()),
    ),
    kind=st.sampled_from(["csv", "csv", "parquet", "CSV", "txt"]),
)
@cases("table")
@example(text=b"a,b\n1,2,3\n4,5,6\n", kind="csv")
@example(text=b"a,a\n1,2\n", kind="csv")
@example(text=b"PAR1" + b"\0" * 40 + b"PAR1", kind="parquet")
def test_any_file_as_a_table(tmp_path_factory, text, kind):
    path = tmp_path_factory.mktemp("table") / f"in.{kind}"
    path.write_bytes(text)
    table = or_error(read_table, path)
    if table is not None:
        assert isinstance(table.index, pd.RangeIndex)
        assert table.columns.is_unique


@given(text=toml_texts)
@cases("job")
@example(text="__class__ = 1")
@example(text='table = "in.csv"\nformula = "y ~ 1"\ncoords = ["a", "b"]\nout = "out"')
def test_any_text_as_a_job(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("job") / "job.toml"
    with contextlib.suppress(UnicodeEncodeError):
        path.write_text(text, encoding="utf-8")
    arguments = or_error(read_job, path, command)
    if arguments is not None:
        assert isinstance(arguments["table"], Path)
        assert isinstance(arguments["formula"], str)
        assert len(arguments["coords"]) == 2
        assert type(arguments["copies"]) is int


@given(table=tables(sane=True), seed=st.integers(0, 2**128))
@cases("fit")
def test_real_fits_of_generated_tables(table, seed):
    problem = or_error(ds.prepare, table, "value ~ 1", coords=("east", "north"))
    if problem is None:
        return
    quick = {"chains": 1, "warmup": 30, "samples": 20, "engine": "embedded", "progress": False}
    fit = or_error(ds.fit, problem, seed=seed, **quick)
    if fit is not None:
        assert all(np.isfinite(d).all() for d in fit.draws.values())
        release = or_error(ds.synthesise, fit, 2, accept_failed=True, accept_few_draws=True)
        assert release is None or np.isfinite(release.values).all()


@given(
    cells=st.lists(st.one_of(st.text(max_size=4), st.sampled_from(["=1", "'=1", "''", "-", "+x"])))
)
@settings(max_examples=100, deadline=None, derandomize=True, database=None)
def test_quoted_text_comes_back(cells):
    table = pd.DataFrame({"t": pd.Series(cells, dtype=object)})
    pd.testing.assert_frame_equal(unquote(quote(table)), table)
