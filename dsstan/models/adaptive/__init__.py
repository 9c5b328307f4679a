"""Weights and gamma inside the sampler."""

from dsstan.models.adaptive.fit import AdaptiveFit, fit_adaptive

__all__ = ["AdaptiveFit", "fit_adaptive"]
