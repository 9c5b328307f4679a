"""Responses with a heap at one value, such as 0 or a cap, and copies that keep to a range."""

from dsstan.models.heaps.fit import HeapedFit, fit_heaped
from dsstan.models.heaps.limits import Range, find_range

__all__ = ["HeapedFit", "Range", "find_range", "fit_heaped"]
