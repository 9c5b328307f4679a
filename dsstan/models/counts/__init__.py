"""Poisson, negative binomial and Bernoulli responses."""

from dsstan.models.counts.fit import CountFit, fit_counts
from dsstan.models.counts.priors import CountPriors

__all__ = ["CountFit", "CountPriors", "fit_counts"]
