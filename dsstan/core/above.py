"""Methods whose body lives in a higher room.

A result class stands below what is made from it: ``Fit.to_arviz()`` is one line, and the package's
face says where its body is. No room imports upward for it.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

_PLACES: dict[str, str] = {}


def register(places: Mapping[str, str]) -> None:
    """Say where bodies live: method to ``module:function``."""
    _PLACES.update(places)


def call(method: str, *arguments: Any, **keywords: Any) -> Any:
    """Call the body of a method."""
    module, _, name = _PLACES[method].partition(":")
    return getattr(importlib.import_module(module), name)(*arguments, **keywords)
