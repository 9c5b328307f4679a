"""Several groups of records, each with an effect, that inform one another."""

from dsstan.models.groups.fit import MultivariateFit, fit_multivariate

__all__ = ["MultivariateFit", "fit_multivariate"]
