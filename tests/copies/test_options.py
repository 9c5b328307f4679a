"""The options of a release are stated once, and reach Python, commands and jobs from there."""

from __future__ import annotations

import inspect
from dataclasses import fields

import numpy as np
import pytest
from test_command_line import inside  # noqa: F401

import dsstan as ds
from conftest import small_table
from dsstan.cli.commands.compare import Grid
from dsstan.cli.commands.synthesise import synthesise
from dsstan.cli.job import job_keys
from dsstan.cli.options import built, signature_of
from dsstan.copies.options import ReleaseOptions, options_of
from dsstan.core.errors import InputError
from dsstan.models.priors import Priors

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
