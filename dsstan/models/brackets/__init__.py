"""Responses of which each record's bracket is kept."""

from dsstan.models.brackets.fit import fit_bracketed
from dsstan.models.brackets.limits import CLOSED, Brackets, find_brackets
from dsstan.models.brackets.result import BracketedFit, TruncatedFit

__all__ = ["CLOSED", "BracketedFit", "Brackets", "TruncatedFit", "find_brackets", "fit_bracketed"]
