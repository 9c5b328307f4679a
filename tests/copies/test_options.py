"""The options of a release are stated once, and reach Python, commands and jobs from there."""

from __future__ import annotations

import inspect
import typing
from dataclasses import fields, replace

import numpy as np
import pytest
from test_command_line import inside  # noqa: F401

import dsstan as ds
from conftest import small_table
from dsstan.cli.commands.compare import Grid
from dsstan.cli.commands.synthesise import synthesise
from dsstan.cli.job import job_keys
from dsstan.cli.options import built, signature_of
from dsstan.copies.keywords import ReleaseKeywords, StrataKeywords
from dsstan.copies.option_fields import options_of
from dsstan.copies.options import ReleaseOptions
from dsstan.copies.published import public_columns
from dsstan.copies.step_models import StepModel
from dsstan.copies.strata import fit_strata
from dsstan.core.errors import InputError
from dsstan.models.priors import Priors
from dsstan.models.weights import neighbour_distances

FIELDS = {one.name: one.default for one in fields(ReleaseOptions)}

KEYWORDS = {
    **{"coords": None, "distance": None, "crs": None, "name": None, "copies": 20},
    **{"threshold": None, "correlation": None, "neighbour": 1, "gamma": np.inf},
    **{"protection": "paper", "cov_model": "exponential", "covariance": "auto", "priors": None},
    **{"engine": "auto", "seed": None, "workers": 1, "accept_failed": False, "strict": False},
    **{"rounding": "auto", "missing": "refuse", "imputations": None, "by_row_groups": False},
    "progress": None,
}
"""What was promised before the options had a class of their own."""


def test_protect_takes_the_options_as_keywords_with_their_defaults():
    found = inspect.signature(ds.protect).parameters
    assert list(found)[:2] == ["table", "formula"]
    assert {name: p.default for name, p in list(found.items())[2:]} == FIELDS
    assert KEYWORDS.items() <= FIELDS.items()


def test_what_type_checkers_and_editors_see_of_the_options_is_what_there_is():
    assert typing.get_type_hints(ReleaseKeywords) == typing.get_type_hints(ReleaseOptions)
    own = set(inspect.signature(fit_strata).parameters) | {"name", "resume", "household"}
    assert set(typing.get_type_hints(StrataKeywords)) == set(FIELDS) - own


def test_an_option_that_there_is_not_is_a_type_error():
    with pytest.raises(TypeError, match="colour"):
        ds.protect("no table", "no formula", colour=1)


def test_every_stated_option_is_one_of_the_command_and_a_key_of_a_job():
    found = inspect.signature(synthesise).parameters
    for name in options_of(ReleaseOptions):
        assert name in job_keys(synthesise)
        if name != "coords":  # which no command goes without
            assert found[name].default == FIELDS[name], name


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"threshold": np.inf}, "threshold must be positive"),
        ({"correlation": True}, "correlation must lie between 0 and 1"),
        ({"copies": "3"}, "copies must be a whole number"),
        ({"gamma": np.nan}, "gamma must be a number"),
        ({"cov_model": "cubic"}, "cov_model must be one of exponential, matern32, matern52"),
        ({"rounding": "up"}, "rounding must be one of auto, none, got 'up'"),
        ({"missing": "drop"}, "missing must be one of refuse, draw, got 'drop'"),
        ({"covariance": "sparse"}, "covariance must be one of"),
        ({"seed": -1}, "seed must be a whole number"),
        ({"chains": 0}, "chains must be a whole number"),
        ({"adapt_delta": 1.0}, "adapt_delta must lie"),
    ],
)
def test_an_option_out_of_range_is_refused_where_it_is_stated(wrong, match):
    with pytest.raises(InputError, match=match):
        ReleaseOptions(**wrong)


def test_the_seed_is_not_shown():
    assert "4321" not in repr(ReleaseOptions(seed=4321))


def test_what_is_not_given_is_left_to_the_model():
    assert "warmup" not in ReleaseOptions(warmup=None).fitting
    assert {"priors", "program", "resume"}.isdisjoint(ReleaseOptions().fitting)
    assert ReleaseOptions(warmup=7, program="surface").fitting["program"] == "surface"


def test_plain_numbers_become_a_covariance_and_priors(tmp_path):
    given = {"table": tmp_path / "homes.csv", "covariance": "vecchia", "neighbours": 4}
    found = built(ReleaseOptions, given | {"phi_bounds": (1.0, 2.0)})
    assert found.name == "homes"
    assert found.covariance.neighbours == 4
    assert found.priors == Priors(phi_bounds=(1.0, 2.0))
    assert built(ReleaseOptions, given | {"decay": "uniform"}).priors is None
    asked = built(ReleaseOptions, given | {"decay": "penalised-complexity"}).priors
    assert asked == Priors(decay="penalised-complexity")


def test_counts_beside_a_gaussian_model_refuse_another_prior_of_the_decay():
    own = Priors(decay="penalised-complexity", phi_bounds=(1.0, 2.0))
    with pytest.raises(InputError, match="in a model of counts the decay has a uniform prior"):
        ReleaseOptions(heap=0, priors=own)
    with pytest.raises(InputError, match="in a model of counts the decay has a uniform prior"):
        StepModel(outcome="poisson").check_options(ReleaseOptions(priors=own))
    StepModel(outcome="bracketed", cuts=[1.0]).check_options(ReleaseOptions(priors=own))
    uniform = ReleaseOptions(heap=0, priors=Priors(phi_bounds=(1.0, 2.0)))
    StepModel(outcome="poisson").check_options(replace(uniform, heap=None))


def test_an_option_that_two_tables_state_comes_from_the_first():
    for tables, default in (((Grid, ReleaseOptions), None), ((ReleaseOptions, Grid), 20)):
        assert signature_of("copies", *tables).parameters["copies"].default is default


def test_a_comparison_fits_with_what_is_asked_for_and_no_more(inside, tmp_path, monkeypatch):  # noqa: F811
    """Kept settings are found by the arguments of their fits, so one more would lose them all."""
    seen = {}

    def look(problem, **arguments):
        seen.update(arguments)
        raise InputError("seen enough")

    monkeypatch.setattr("dsstan.cli.commands.compare.compare", look)
    small_table(30).to_csv(tmp_path / "homes.csv", index=False)
    place = ("--formula", "log(value) ~ x", "--coords", "east", "north", "--out", tmp_path / "grid")
    result = inside("compare", tmp_path / "homes.csv", *place, "--gamma", "3")
    assert result.returncode == 2, result.stderr
    of_the_grid = {"distances", "correlations", "continuous", "gammas", "protections", "copies"}
    of_a_fit = {
        "cov_model",
        "covariance",
        "priors",
        "engine",
        "seed",
        "chains",
        "warmup",
        "samples",
    }
    assert set(seen) == of_the_grid | of_a_fit | {"folder", "workers"}
    assert (seen["gammas"], seen["copies"], seen["chains"]) == ([3.0], (20,), 4)


WEIGHTED = {"coords": ("east", "north"), "seed": 1, "engine": "direct", "accept_failed": True}


def weighted(n=40):
    """A table with weights, of which every fourth is not 0."""
    table = small_table(n, seed=9, shared=8)
    return table.assign(risk=np.where(np.arange(n) % 4 == 0, 1.0, 0.0))


def test_weights_of_a_column_take_the_place_of_a_rule_and_stay():
    table = weighted()
    release = ds.protect(table, "log(value) ~ x", weights="risk", copies=3, **WEIGHTED)
    np.testing.assert_array_equal(release.fit.flagged, table["risk"] > 0)
    assert release.fit.weights.rule == "own"
    assert "risk" not in public_columns(release)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"threshold": 0.2}, "in place of a rule: leave threshold=0.2 out"),
        ({"by_site": True}, "in place of a rule: leave by_site=True out"),
        ({"protection": "auto"}, "leave weights out"),
        ({"weights": "nobody"}, "no column 'nobody'"),
        ({"weights": "x"}, r"0.*1|from 0 to 1"),
        ({"publish": ["risk"]}, "holds the weights, which tell who is protected"),
        ({"weights": [0.0, 1.0]}, "must be the name of a column"),
    ],
)
def test_weights_that_cannot_be_are_refused_before_any_sampling(change, said):
    options = {**WEIGHTED, "weights": "risk", "engine": "no engine", **change}
    with pytest.raises(InputError, match=said):
        ds.protect(weighted(), "log(value) ~ x", **options)


def test_neighbours_of_a_release_may_be_places():
    table = weighted()
    rule = {"threshold": 0.25, "neighbour": 2, "by_site": True}
    release = ds.protect(table, "log(value) ~ x", copies=3, **rule, **WEIGHTED)
    weights = release.fit.weights
    assert (weights.neighbour, weights.by_site) == (2, True)
    nearest = neighbour_distances(release.problem, neighbour=2, by_site=True)
    np.testing.assert_array_equal(weights.nearest, nearest)
    assert not np.array_equal(nearest, neighbour_distances(release.problem, neighbour=2))


JOB = """table = "homes.csv"
coords = ["east", "north"]
out = "out"
engine = "embedded"
{above}
[[steps]]
formula = "log(value) ~ x"
{rule}
"""


@pytest.mark.parametrize("steps", [True, False])
@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ('weights = "risk"', "the weights of column 'risk'"),
        ("threshold = 0.25\nneighbour = 2\nby_site = true", "neighbour no. 2 at another place"),
    ],
)
def test_a_job_takes_rules_and_weights(inside, tmp_path, monkeypatch, steps, rule, said):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    weighted().assign(risk=lambda t: t["risk"].map("{:.2f}".format)).to_csv(
        "homes.csv", index=False
    )
    text = JOB.format(above="", rule=rule)
    (tmp_path / "job.toml").write_text(text if steps else text.replace("[[steps]]", ""))
    result = inside("run", "job.toml", "--dry-run")
    assert result.returncode == 0, result.stderr
    assert steps or said in " ".join(result.stdout.split())


def test_the_command_line_takes_weights_and_places(inside, tmp_path):  # noqa: F811
    weighted().to_csv(tmp_path / "homes.csv", index=False)
    call = ("synthesise", tmp_path / "homes.csv", "--formula", "log(value) ~ x")
    call += ("--coords", "east", "north", "--out", tmp_path / "o", "--engine", "embedded")
    told = inside(*call, "--weights", "risk", "--dry-run")
    assert "the weights of column 'risk'" in told.stdout
    assert "flagged            10" in told.stdout or " 10\n" in told.stdout
    refused = inside(*call, "--weights", "risk", "--by-site", "--dry-run")
    assert refused.returncode == 2
    assert "--weights risk is in place of a rule: leave --by-site out" in refused.stderr
