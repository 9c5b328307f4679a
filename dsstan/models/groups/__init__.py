"""Several groups of records, each with an effect, that inform one another."""

from dsstan.models.groups.fit import fit_multivariate
from dsstan.models.groups.result import MultivariateFit

__all__ = ["MultivariateFit", "fit_multivariate"]
