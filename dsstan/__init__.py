"""Partially synthetic geocoded data with differential smoothing.

From a confidential table (place, covariates, a sensitive value) dsstan fits a
Bayesian Gaussian-process model in Stan, smooths away what the model knows about
records that stand alone on the map, replaces the sensitive values with L
posterior-predictive copies, and measures what an intruder could still learn and
an analyst could still estimate. After Quick, Holan and Wikle (2018).
"""

from dsstan._moved import install
from dsstan._version import __version__
from dsstan.analysis.utility import combine, utility
from dsstan.comparison.frontier import compare
from dsstan.copies.protect import protect
from dsstan.copies.result import Synthesis
from dsstan.copies.synthesis import synthesise
from dsstan.core import above
from dsstan.models.effect_map import surface_on_grid
from dsstan.models.fit import fit
from dsstan.models.flags import flag_isolated
from dsstan.models.priors import Priors
from dsstan.models.result import Fit
from dsstan.models.weights import Weights, own_weights
from dsstan.risk.assessment import assess
from dsstan.risk.disclosure import disclosure
from dsstan.table.datasets import load_baltimore, load_san_francisco, load_simulated
from dsstan.table.problem import Problem, prepare

__all__ = [
    "Fit",
    "Priors",
    "Problem",
    "Synthesis",
    "Weights",
    "__version__",
    "assess",
    "combine",
    "compare",
    "disclosure",
    "fit",
    "flag_isolated",
    "load_baltimore",
    "load_san_francisco",
    "load_simulated",
    "own_weights",
    "prepare",
    "protect",
    "surface_on_grid",
    "synthesise",
    "utility",
]

install()
above.register(
    {
        "Fit.predictive": "dsstan.models.predictive:Predictive",
        "MultivariateFit.predictive": "dsstan.models.groups.coregionalisation:GroupPredictive",
        "Synthesis.write": "dsstan.release.write:write_release",
        "plot_frontier": "dsstan.release.pictures.risk_plots:plot_frontier",
        "synthesise": "dsstan.copies.synthesis:synthesise",
        "to_arviz": "dsstan.release.exchange:to_arviz",
    }
)
