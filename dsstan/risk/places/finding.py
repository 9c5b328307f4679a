"""The intruder who knows a person's covariates and every other record, and looks for the place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dsstan.core.arrays import Floats, Indices, Truths
from dsstan.risk.places.evidence import Evidence, evidence_of
from dsstan.risk.places.known import KnownPlaces

__all__ = ["Finding", "by_cell", "finding", "of_group", "spread"]

_TIE = 1e-9
"""Relative difference of chances that is rounding."""


@dataclass(frozen=True, eq=False)
class Finding:
    """What an intruder's search for each person's place would come to. Confidential.

    Attributes
    ----------
    cell, cell_before
        Chance that they give the right cell, with the release and without, shape (N,).
    address, address_before
        The same of the right address in it; the same as of the cell where it has one address or
        none is known.
    as_likely, as_likely_before
        How many cells are at least as likely as the right one, itself included (k of spatial
        k-anonymity).
    addresses, addresses_before
        How many addresses are; cells where none are known.
    """

    cell: Floats = field(repr=False)
    cell_before: Floats = field(repr=False)
    address: Floats = field(repr=False)
    address_before: Floats = field(repr=False)
    as_likely: Floats = field(repr=False)
    as_likely_before: Floats = field(repr=False)
    addresses: Floats = field(repr=False)
    addresses_before: Floats = field(repr=False)


def finding(known: KnownPlaces, released: Floats, addresses: Floats | None = None) -> Finding:
    """What an intruder who knows all others would find of every record.

    Parameters
    ----------
    known
        The table.
    released
        Records of each group in each cell of each copy, shape (L, K, C).
    addresses
        How many addresses each cell has, shape (C,); None where none are known.

    Raises
    ------
    InputError
        If the counts are not of the same groups and cells.
    """
    found = [of_group(evidence, addresses) for evidence in evidence_of(known, released)]
    return Finding(*(spread(known, column) for column in zip(*found, strict=True)))


def by_cell(found: Finding, which: Truths) -> Finding:
    """The search with the cell in place of the address for some records, shape (N,)."""
    pairs = (
        ("address", "cell"),
        ("address_before", "cell_before"),
        ("addresses", "as_likely"),
        ("addresses_before", "as_likely_before"),
    )
    return replace(
        found, **{a: np.where(which, getattr(found, c), getattr(found, a)) for a, c in pairs}
    )


def of_group(found: Evidence, addresses: Floats | None) -> tuple[Floats, ...]:
    """The same of one group, by occupied cell, in the order of :class:`Finding`, each (n,)."""
    cells = found.pairs.cells
    known = None if addresses is None else np.maximum(addresses, 1.0)
    many = np.ones(len(cells)) if known is None else known[cells]
    stages = [found.posterior, found.prior]
    chances = [found.of_true_cell(stage) for stage in stages]
    likely = [_at_least(stage, cells, None) for stage in stages]
    per_address = likely if known is None else [_at_least(s, cells, known) for s in stages]
    return (*chances, *(one / many for one in chances), *likely, *per_address)


def _at_least(chances: Floats, cells: Indices, addresses: Floats | None) -> Floats:
    """How many cells, or addresses in them, are at least as likely as the right one, (n,)."""
    each = chances if addresses is None else chances / addresses
    own = each[np.arange(len(cells)), cells]
    enough = each >= own[:, None] * (1.0 - _TIE)
    if addresses is None:
        return np.asarray(enough.sum(axis=1, dtype=np.float64))
    return np.asarray(enough @ addresses)


def spread(known: KnownPlaces, values: Sequence[Floats]) -> Floats:
    """Numbers of the occupied cells of all groups, given to their records, shape (N,)."""
    out = np.empty(known.n_records)
    for one, of_cells in zip(known.pairs, values, strict=True):
        out[one.records] = of_cells[one.which]
    return out
