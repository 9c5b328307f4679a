"""Libraries that only some users need: each is an extra of the package."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

from dsstan.core.errors import InputError


def needed(module: str, extra: str) -> Any:
    """Import a module of an optional library.

    Raises InputError if the library is not installed; the message says how to install it.

    Parameters
    ----------
    module
        Its name, with dots where it lies inside a package.
    extra
        The extra of dsstan that installs the library.

    Examples
    --------
    >>> needed("nosuchlibrary.part", "geo")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    dsstan.core.errors.InputError: this needs the Python package nosuchlibrary, ...
    """
    place_of(module.partition(".")[0], extra)
    return importlib.import_module(module)


def place_of(package: str, extra: str) -> Path:
    """The folder of an optional library, found without importing it; raises as ``needed``."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise InputError(
            f"this needs the Python package {package}, which is not installed: "
            f'pip install "dsstan[{extra}]"'
        )
    return Path(spec.origin).parent
