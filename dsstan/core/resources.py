"""Where the Stan programs and the data files are, in a checkout and in an installed wheel.

The repository keeps them in the top-level folders ``stan/`` and ``data/``; the wheel carries
the same folders inside the package as ``dsstan/_stan/`` and ``dsstan/_data/``.
"""

from __future__ import annotations

from pathlib import Path

from dsstan.core.errors import DsstanError

_PACKAGE = Path(__file__).resolve().parent.parent


def stan_folder() -> Path:
    """Folder that holds the Stan programs.

    Raises DsstanError if neither folder exists.

    Returns
    -------
    Path
        ``_stan`` inside the package where the package is installed, else the checkout's
        ``stan``.
    """
    return _folder("stan", _PACKAGE)


def data_folder() -> Path:
    """Folder that holds the data files which come with the package.

    Raises DsstanError if neither folder exists.

    Returns
    -------
    Path
        ``_data`` inside the package where the package is installed, else the checkout's
        ``data``.

    Examples
    --------
    >>> (data_folder() / "simulated" / "simulated.csv").is_file()
    True
    """
    return _folder("data", _PACKAGE)


def _folder(name: str, package: Path) -> Path:
    """Installed folder ``_name`` if present, else the checkout's ``name``."""
    installed, checkout = package / f"_{name}", package.parent / name
    if installed.is_dir():
        return installed
    # A folder called "data" beside an installed package is somebody else's.
    if checkout.is_dir() and (package.parent / "pyproject.toml").is_file():
        return checkout
    raise DsstanError(
        f"The package's '{name}' files were not found: needed the folder '_{name}' inside the "
        f"installed package, or the folder '{name}' at the top of a checkout beside "
        "pyproject.toml. Install the package again, or run it from a complete checkout."
    )
