"""Posteriors for other packages: ArviZ, xarray, Parquet."""

from __future__ import annotations

import io
import os
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dsstan.core.errors import ReleaseError
from dsstan.core.files.workspace import write_private
from dsstan.core.optional import needed

if TYPE_CHECKING:
    from dsstan.copies.result import Synthesis
    from dsstan.models.result import Fit

__all__ = ["draws_table", "to_arviz", "write_draws"]


def draws_table(fit: Fit) -> pd.DataFrame:
    """Posterior draws as a table. Confidential.

    Parameters
    ----------
    fit
        Any fit.

    Returns
    -------
    DataFrame
        One row a draw: ``chain`` and ``iteration`` from 0, ``beta_0``, ..., ``sigma_sq``,
        ``tau_sq``, ``phi``.
    """
    chains, samples = fit.shape
    frame = {
        "chain": np.repeat(np.arange(chains), samples),
        "iteration": np.tile(np.arange(samples), chains),
    }
    return pd.DataFrame(frame | {name: d.ravel() for name, d in fit.scalars.items()})


def write_draws(fit: Fit, path: str | os.PathLike[str]) -> Path:
    """Write the posterior draws to a Parquet file that only its owner can read; its path.

    Parameters
    ----------
    fit
        Any fit.
    path
        Must not exist.

    Raises
    ------
    ReleaseError
        If it exists or can't be written; nothing is left behind then.
    """
    target = Path(path)
    if target.exists() or target.is_symlink():
        raise ReleaseError(f"{target} exists and is not overwritten; choose another name")
    content = io.BytesIO()
    draws_table(fit).to_parquet(content, index=False)
    try:
        write_private(target, content.getvalue())
    except OSError as error:
        raise ReleaseError(f"{target} can't be written: {error.strerror}") from None
    return target


def to_arviz(result: Fit | Synthesis) -> Any:
    """A posterior, and copies, for ArviZ. Confidential.

    Parameters
    ----------
    result
        A fit, or a synthesis: then its fit with the copies.

    Returns
    -------
    InferenceData or DataTree
        The first from ArviZ before 1, the second from ArviZ 1 on and from arviz-base alone.
        Groups, each an xarray dataset: ``posterior`` (``beta`` by ``term``, ``sigma_sq``,
        ``tau_sq``, ``phi``), ``observed_data`` (``y`` by ``record``, on the modelled scale) and,
        of a synthesis, ``posterior_predictive`` (``y`` by ``record``: one chain, whose draws are
        the copies).

    Raises
    ------
    InputError
        If neither arviz nor arviz-base is installed.
    """
    from dsstan.copies.result import Synthesis

    from_dict, nested = _from_dict()
    copies = result if isinstance(result, Synthesis) else None
    fit = result.fit if isinstance(result, Synthesis) else result
    groups: dict[str, dict[str, Any]] = {
        "posterior": {name: np.asarray(d) for name, d in fit.draws.items()},
        "observed_data": {"y": np.asarray(fit.problem.y)},
    }
    if copies is not None:
        groups["posterior_predictive"] = {"y": copies.modelled()[None]}
    labels: dict[str, Any] = {
        "coords": {"term": list(fit.problem.terms), "record": fit.problem.table.index.to_numpy()},
        # A model with coefficients of several groups has one more dimension before the terms.
        "dims": {"beta": ["group", "term"][4 - fit.draws["beta"].ndim :], "y": ["record"]},
    }
    return from_dict(groups, **labels) if nested else from_dict(**groups, **labels)


def _from_dict() -> tuple[Any, bool]:
    """ArviZ's function, and whether it takes the groups in one dictionary."""
    if find_spec("arviz") is None:
        with suppress(ImportError):  # arviz-base is enough for the data alone
            from arviz_base import from_dict

            return from_dict, True
    arviz = needed("arviz", "arviz")
    return arviz.from_dict, int(arviz.__version__.split(".")[0]) >= 1
