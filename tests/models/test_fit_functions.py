"""What all fit functions share: their settings, their covariance, the fit they started from."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import typing
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import dsstan as ds
from conftest import small_table
from dsstan import models
from dsstan.comparison import frontier, simple_methods
from dsstan.core.errors import InputError
from dsstan.covariance import approximations
from dsstan.covariance.approximations import EXACT, PredictiveProcess, Vecchia
from dsstan.models.adaptive.fit import fit_adaptive
from dsstan.models.arguments import settings_of
from dsstan.models.brackets.fit import fit_bracketed
from dsstan.models.counts.fit import fit_counts
from dsstan.models.groups.fit import fit_multivariate
from dsstan.models.heaps.fit import fit_heaped
from dsstan.models.request import FitKeywords, SamplerKeywords
from dsstan.models.result import Fit
from dsstan.release.write import summary
from dsstan.risk import targets
from dsstan.risk.assessment import measured

SHARED = {
    *("start", "cov_model", "covariance", "priors", "engine", "chains", "warmup", "samples"),
    *("adapt_delta", "max_treedepth", "seed", "progress"),
}
"""Keywords of every fit function."""

OF_THE_RUN = {"start", "seed", "cluster", "resume", "progress"}
"""Keywords of ``fit`` that are no settings of the model or of its sampler."""

OF_A_PANEL = {"time_decay", "group_share"}
"""Keywords of a problem with a time or groups; ``test_held.py`` has their settings."""

CUTS = [100.0, 200.0]
FITS: dict[str, tuple[str, Callable[..., Fit]]] = {
    "fit": ("value", ds.fit),
    "plain": ("value", partial(fit_bracketed, cuts=CUTS)),
    "truncated": ("value", partial(fit_bracketed, cuts=CUTS, likelihood="truncated")),
    "adaptive": ("value", fit_adaptive),
    "counts": ("count", fit_counts),
    "heaped": ("value", partial(fit_heaped, range=(0, None))),
    "multivariate": ("value", partial(fit_multivariate, groups="kind")),
}
"""Response and call of every model."""

EXACT_ONLY = ["adaptive", "heaped"]
BRIEF: dict[str, Any] = {"chains": 2, "warmup": 40, "samples": 40, "engine": "embedded"}
BRIEF |= {"progress": False, "seed": 1}
ANYWAY = {"accept_failed": True, "accept_few_draws": True, "progress": False}


@pytest.fixture(scope="module")
def problems() -> dict[str, ds.Problem]:
    """The same thirty records with either response, by its name."""
    table = small_table(30, seed=9, shared=4).assign(kind=np.arange(30) % 2)
    table["count"] = np.random.default_rng(3).poisson(np.exp(0.3 * table["x"] + 1.0))
    formulas = {"value": "log(value) ~ x", "count": "count ~ x"}
    return {
        name: ds.prepare(table, formula, coords=("east", "north"))
        for name, formula in formulas.items()
    }


def fit_functions() -> set[Callable[..., Any]]:
    """``fit`` and every function ``fit_...`` that a room of the models offers."""
    rooms = [each for each in pkgutil.iter_modules(models.__path__, "dsstan.models.") if each.ispkg]
    offered = [importlib.import_module(each.name) for each in rooms]
    public = ((m, name) for m in offered for name in getattr(m, "__all__", ()))
    found = {getattr(m, name) for m, name in public if name.startswith("fit_")}
    return {ds.fit, *found}


def test_what_type_checkers_and_editors_see_of_a_fit_that_is_handed_on_is_what_there_is():
    theirs = typing.get_type_hints(ds.fit)
    own = {"problem", "weights", "gamma", "protection", "start", "phi", "seed", "progress"}
    seen = typing.get_type_hints(FitKeywords)
    assert seen == {name: theirs[name] for name in theirs if name not in {*own, "return"}}
    compared = set(inspect.signature(ds.compare).parameters)
    assert set(typing.get_type_hints(SamplerKeywords)) == set(seen) - compared


def test_every_fit_function_is_in_the_table():
    ours = {call.func if isinstance(call, partial) else call for _, call in FITS.values()}
    assert ours == fit_functions()


@pytest.mark.parametrize("function", sorted(fit_functions(), key=lambda f: f.__name__))
def test_every_fit_function_takes_the_same_settings_by_keyword(function):
    parameters = inspect.signature(function).parameters
    keywords = {k for k, p in parameters.items() if p.kind is p.KEYWORD_ONLY}
    assert keywords >= SHARED
    theirs = inspect.signature(ds.fit).parameters
    for name in SHARED - {"start", "priors", "warmup", "samples"}:  # counts have their own
        assert parameters[name].default == theirs[name].default, name
        assert parameters[name].annotation == theirs[name].annotation, name


@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize("covariance", [None, "auto", "exact"])
def test_beyond_the_limit_of_auto_a_fit_still_gives_copies(problems, name, covariance, monkeypatch):
    monkeypatch.setattr(approximations, "EXACT_LIMIT", 10)
    response, call = FITS[name]
    found = call(problems[response], covariance=covariance, **BRIEF)
    approximated = name in ("fit", "plain", "truncated", "counts") and covariance != "exact"
    assert found.covariance == (Vecchia() if approximated else EXACT)
    release = ds.synthesise(found, 2, seed=1, **ANYWAY)
    assert np.isfinite(release.values).all()


@pytest.mark.parametrize("name", EXACT_ONLY)
@pytest.mark.parametrize(
    "covariance", ["vecchia", "predictive_process", Vecchia(5), PredictiveProcess(5)]
)
def test_a_model_without_an_approximation_refuses_it_before_sampling(problems, name, covariance):
    response, call = FITS[name]
    # An engine that does not exist is found out before sampling, and after this.
    with pytest.raises(InputError, match=r'fit_\w+ works with .*: give covariance="exact"'):
        call(problems[response], covariance=covariance, **(BRIEF | {"engine": "none"}))


@pytest.mark.parametrize("name", FITS)
def test_a_covariance_that_does_not_exist_is_refused(problems, name):
    response, call = FITS[name]
    with pytest.raises(InputError, match="covariance must be one of"):
        call(problems[response], covariance="dense", **BRIEF)


def test_a_start_with_an_approximation_is_not_followed_by_an_exact_fit_unasked(problems):
    start = ds.fit(problems["value"], covariance="vecchia", **BRIEF)
    with pytest.raises(InputError, match=r'fit_adaptive works .*: give covariance="exact"'):
        fit_adaptive(problems["value"], start=start, **BRIEF)
    found = fit_adaptive(problems["value"], start=start, covariance="exact", **BRIEF)
    assert found.covariance is EXACT


def test_nodes_are_of_the_plain_likelihood(problems):
    found = fit_bracketed(problems["value"], CUTS, nodes=(40, 60), **BRIEF)
    assert found.nodes == found.nodes_asked == (40, 60)
    with pytest.raises(InputError, match="nodes belong to"):
        fit_bracketed(problems["value"], CUTS, likelihood="truncated", nodes=(40, 60), **BRIEF)


@pytest.mark.parametrize("name", sorted(set(FITS) - {"adaptive"}))  # it starts from no such fit
def test_the_unrestricted_fit_is_known_through_a_restricted_one(problems, name):
    response, call = FITS[name]
    problem = problems[response]
    free = call(problem, **BRIEF)
    flags = ds.flag_isolated(free, distance=0.15)
    assert flags.n_flagged
    kept = call(problem, weights=flags, start=free, **BRIEF)
    again = call(problem, weights=flags, gamma=2.0, start=kept, phi=kept.phi_held, **BRIEF)
    assert again.start is free
    release = ds.synthesise(again, 2, seed=1, **ANYWAY)
    assert release.fits == {"unrestricted": free, "restricted": again}
    risks = measured(release, progress=False)
    found = summary(release, risks, None)
    intercept = free.scalars[next(iter(free.scalars))].mean()
    assert next(iter(found["unrestricted"].values()))["mean"] == pytest.approx(intercept)
    lone = call(problem, weights=flags, phi=4.0, **BRIEF)
    orphan = call(problem, weights=flags, start=lone, phi=4.0, **BRIEF)
    assert orphan.start is None
    assert summary(ds.synthesise(orphan, 2, seed=1, **ANYWAY), risks, None)["unrestricted"] is None


@pytest.fixture(scope="module")
def asked() -> dict[str, Any]:
    """Every setting of ``fit``, none of them the default."""
    return {
        "cov_model": "matern32",
        "covariance": Vecchia(7),
        "priors": ds.Priors(phi_bounds=(1.0, 50.0)),
        "engine": "embedded",
        "chains": 2,
        "warmup": 60,
        "samples": 50,
        "adapt_delta": 0.95,
        "max_treedepth": 9,
        "nodes": (40, 64),
        "program": "surface",
    }


def restricted_with(asked: dict[str, Any], problem: ds.Problem) -> Fit:
    """A restricted fit with these settings."""
    free = ds.fit(problem, seed=1, progress=False, **asked)
    weights = ds.flag_isolated(free, distance=0.15)
    protection = {"weights": weights, "gamma": 3.0, "protection": "preserving"}
    return ds.fit(problem, start=free, seed=2, progress=False, **protection, **asked)


def test_the_settings_of_a_fit_are_every_keyword_that_is_one(problems, asked):
    kept = restricted_with(asked, problems["value"])
    keywords = set(inspect.signature(ds.fit).parameters) - {"problem"} - OF_THE_RUN
    assert set(settings_of(kept)) == keywords - OF_A_PANEL
    assert asked.items() <= settings_of(kept).items()
    assert set(settings_of(kept.start)) == set(asked)
    protection = {"gamma": 3.0, "protection": "preserving", "hold_phi": True}
    assert protection.items() <= settings_of(kept).items()
    assert settings_of(kept)["weights"] is kept.weights
    assert settings_of(kept)["phi"] == kept.phi_held == np.median(kept.start.draws["phi"])


def test_no_setting_asked_for_is_a_default(asked):
    defaults = {k: p.default for k, p in inspect.signature(ds.fit).parameters.items()}
    assert not [k for k, value in asked.items() if value == defaults[k]]
    protection = {"weights", "gamma", "protection", "phi", "hold_phi"}
    assert set(asked) == set(defaults) - {"problem"} - OF_THE_RUN - OF_A_PANEL - protection


@pytest.mark.parametrize("program", ["natural", "surface"])
def test_the_settings_of_a_fit_give_its_draws_again(problems, asked, program):
    kept = restricted_with({**asked, "program": program, "covariance": "exact"}, problems["value"])
    assert kept.program == ("surface" if program == "surface" else "restricted")
    for found in (kept.start, kept):
        again = ds.fit(
            *(found.problem,),
            **settings_of(found),
            start=found.start,
            seed=found.seed,
            progress=False,
        )
        for name, draws in found.draws.items():
            assert np.array_equal(again.draws[name], draws), name


DIRECTLY = {"engine": "direct"}
"""How refits of a Gaussian fit draw, whatever engine the first fit had."""


def test_completed_tables_are_fitted_with_every_setting_of_the_first_fit(asked):
    table = small_table(40)
    table.loc[[3, 11, 20], "value"] = np.nan
    problem = ds.prepare(table, "log(value) ~ x", coords=("east", "north"), missing="draw")
    kept = restricted_with(asked, problem)
    release = ds.synthesise(kept, 4, imputations=2, seed=3, **ANYWAY)
    for part in release.parts:
        assert settings_of(part.fit) == settings_of(kept) | DIRECTLY
    free = ds.synthesise(kept.start, 4, imputations=2, seed=3, **ANYWAY)
    for part in free.parts:
        assert settings_of(part.fit) == settings_of(kept.start) | DIRECTLY


@pytest.fixture(scope="module")
def exact_free(problems, asked) -> Fit:
    """An unrestricted fit that passes its verdict, with settings that are no defaults."""
    longer = {"covariance": "exact", "warmup": 400, "samples": 700}
    return ds.fit(problems["value"], seed=5, progress=False, **{**asked, **longer})


REFITS: dict[str, tuple[Any, Callable[[Fit], object]]] = {
    "targets": (
        targets,
        lambda free: targets.solve_targets(free, 0.4, 2, refits=1, draws=5, progress=False),
    ),
    "suppress": (
        simple_methods,
        lambda free: simple_methods.suppress(free, np.arange(30) == 29, 2, seed=4),
    ),
    "compare": (
        frontier,
        lambda free: frontier.compare(
            free.problem,
            start=free,
            engine="auto",
            distances=[0.15],
            copies=[2],
            draws=5,
            progress=False,
        ),
    ),
}
"""Who fits again with the settings of a fit: the module, and a call."""


@pytest.mark.filterwarnings("ignore::dsstan.core.errors.DsstanWarning")  # few copies, few flags
@pytest.mark.parametrize("name", REFITS)
def test_whoever_fits_again_uses_every_setting_of_the_first_fit(exact_free, name, monkeypatch):
    module, call = REFITS[name]
    made = []

    def noted(*args: Any, **how: Any) -> Fit:
        made.append(ds.fit(*args, **how))
        return made[-1]

    monkeypatch.setattr(module, "fit", noted)
    call(exact_free)
    first = settings_of(exact_free)
    assert made
    for found in made:
        assert {k: v for k, v in settings_of(found).items() if k in first} == first
