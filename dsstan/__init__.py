"""Partially synthetic geocoded data with differential smoothing.

From a confidential table (place, covariates, a sensitive value) dsstan fits a
Bayesian Gaussian-process model in Stan, smooths away what the model knows about
records that stand alone on the map, replaces the sensitive values with L
posterior-predictive copies, and measures what an intruder could still learn and
an analyst could still estimate. After Quick, Holan and Wikle (2018).
"""

from dsstan._version import __version__
from dsstan.assessment import assess
from dsstan.datasets import load_baltimore, load_san_francisco, load_simulated
from dsstan.disclosure import disclosure
from dsstan.fit import Fit, fit
from dsstan.frontier import compare
from dsstan.latent import surface_on_grid
from dsstan.priors import Priors
from dsstan.problem import Problem, prepare
from dsstan.protect import protect
from dsstan.synthesis import Synthesis, synthesise
from dsstan.utility import combine, utility
from dsstan.weights import Weights, flag_isolated, own_weights

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
