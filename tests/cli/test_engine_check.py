"""`dsstan doctor --check`: two ways to one posterior, and what is said where they part."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

import dsstan as ds
from dsstan.cli import engine_check
from dsstan.cli.command_line import app
from dsstan.cli.engine_check import FALSE_ALARM, check_engines, compared
from dsstan.core.errors import EngineError
from dsstan.engines.direct import DirectEngine

SECONDS = 60.0
"""Some twenty times what the check takes on an idle machine."""


def test_the_engines_agree_on_this_machine():
    """A false alarm once in 100,000 seeds; this is one of them."""
    found = check_engines()
    assert found.agree, found
    assert len(found.differences) == 16
    assert found.seconds < SECONDS


@pytest.mark.nightly("forty fits")
def test_the_differences_are_as_large_as_their_errors_say():
    """The mean square of 20 checks of 16 differences, those of one check as good as one number."""
    z = [list(check_engines(seed).differences.values()) for seed in range(100, 140, 2)]
    low, high = stats.chi2.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], df=len(z)) / len(z)
    assert low < np.mean(np.square(z)) < high


@pytest.mark.parametrize("parameter", ["beta", "sigma_sq", "tau_sq", "phi"])
def test_draws_that_are_a_fifth_of_an_sd_off_are_told(parameter):
    town = ds.prepare(ds.load_simulated().iloc[:60], "log(income) ~ 1", coords=("s1", "s2"))
    first, second = (ds.fit(town, engine="direct", seed=s, progress=False) for s in (1, 2))
    assert compared(first, second, time.monotonic()).agree
    draws = dict(second.draws)
    draws[parameter] = (
        draws[parameter] + 0.2 * draws[parameter].std()
        if parameter == "beta"
        else draws[parameter] * np.exp(0.2 * np.log(draws[parameter]).std())
    )
    found = compared(first, replace(second, draws=draws), time.monotonic())
    assert not found.agree
    assert ("Intercept" if parameter == "beta" else parameter) in found.worst


def test_the_screen_and_the_document_say_so_and_the_command_ends_well():
    done = CliRunner().invoke(app, ["doctor", "--check"])
    assert done.exit_code == 0
    assert "agree    engines direct and embedded" in done.stdout
    assert f"once in {1 / FALSE_ALARM:,.0f} checks" in " ".join(done.stdout.split())


def test_where_they_disagree_the_command_fails_and_says_what_to_do(monkeypatch, capsys):
    """An error planted in the direct engine: its nugget a tenth too large."""
    honest = DirectEngine.sample

    def wrong(self, *arguments, **options):
        draws = honest(self, *arguments, **options)
        values = draws.values.copy()
        values[:, :, draws.names.index("tau_sq")] *= 1.1
        return replace(draws, values=values)

    monkeypatch.setattr(DirectEngine, "sample", wrong)
    done = CliRunner().invoke(app, ["doctor", "--check"])
    assert isinstance(done.exception, EngineError)  # which the command ends with code 1
    assert "tau_sq" in " ".join(done.stdout.split())
    assert "DISAGREE" in done.stdout
    assert "Make no release" in str(done.exception)


def test_without_the_embedded_engine_the_check_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(engine_check.EmbeddedEngine, "missing", classmethod(lambda _: "pip x"))
    with pytest.raises(EngineError, match="can't be compared: pip x"):
        check_engines()
