"""Partially synthetic geocoded data with differential smoothing.

From a confidential table (place, covariates, a sensitive value) dsstan fits a
Bayesian Gaussian-process model in Stan, removes what the model knows about
records that stand alone on the map, replaces the sensitive values with L
posterior-predictive copies, and measures what an intruder could still learn and
an analyst could still estimate. After Quick, Holan and Wikle (2018).

A public name is imported when it is first used, which keeps ``import dsstan`` quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from dsstan._moved import install
from dsstan._version import __version__
from dsstan.core import above

if TYPE_CHECKING:
    from dsstan.analysis.combining import combine as combine
    from dsstan.analysis.utility import utility as utility
    from dsstan.comparison.frontier import compare as compare
    from dsstan.comparison.meet_floor import protect_to as protect_to
    from dsstan.copies.protect import protect as protect
    from dsstan.copies.result import Synthesis as Synthesis
    from dsstan.copies.synthesis import synthesise as synthesise
    from dsstan.models.effect_map import surface_on_grid as surface_on_grid
    from dsstan.models.fit import fit as fit
    from dsstan.models.flagging.flags import flag_isolated as flag_isolated
    from dsstan.models.priors import Priors as Priors
    from dsstan.models.result import Fit as Fit
    from dsstan.models.weights import Weights as Weights
    from dsstan.models.weights import own_weights as own_weights
    from dsstan.risk.assessment import assess as assess
    from dsstan.risk.disclosure import disclosure as disclosure
    from dsstan.table.datasets import load_baltimore as load_baltimore
    from dsstan.table.datasets import load_san_francisco as load_san_francisco
    from dsstan.table.datasets import load_simulated as load_simulated
    from dsstan.table.prepare import prepare as prepare
    from dsstan.table.problem import Problem as Problem

_HOME = {
    "Fit": "models.result",
    "Priors": "models.priors",
    "Problem": "table.problem",
    "Synthesis": "copies.result",
    "Weights": "models.weights",
    "assess": "risk.assessment",
    "combine": "analysis.combining",
    "compare": "comparison.frontier",
    "disclosure": "risk.disclosure",
    "fit": "models.fit",
    "flag_isolated": "models.flagging.flags",
    "load_baltimore": "table.datasets",
    "load_san_francisco": "table.datasets",
    "load_simulated": "table.datasets",
    "own_weights": "models.weights",
    "prepare": "table.prepare",
    "protect": "copies.protect",
    "protect_to": "comparison.meet_floor",
    "surface_on_grid": "models.effect_map",
    "synthesise": "copies.synthesis",
    "utility": "analysis.utility",
}
"""The module of each public name."""

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> object:
    """Import a public name, or a room, when it is first used."""
    if name not in _HOME:
        try:
            return import_module(f"{__name__}.{name}")
        except ModuleNotFoundError:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    found = globals()[name] = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


install()
above.register(
    {
        "Fit.predictive": "dsstan.models.predictive:Predictive",
        "MultivariateFit.predictive": "dsstan.models.groups.predictive:GroupPredictive",
        "PlacedRelease.write": "dsstan.release.placed.write:write_placed",
        "Synthesis.publish": "dsstan.release.publication.publish:publish_synthesis",
        "Synthesis.write": "dsstan.release.write:write_release",
        "published_before": "dsstan.release.publication.earlier:published_before",
        "published_places": "dsstan.release.publication.earlier_places:published_places",
        "plot_frontier": "dsstan.release.pictures.risk_plots:plot_frontier",
        "synthesise": "dsstan.copies.synthesis:synthesise",
        "to_arviz": "dsstan.release.exchange:to_arviz",
    }
)
