"""Draw tables whose places are synthetic.

One posterior draw of the intensity and one of each model a copy. Cells come from the chances of a
record's group, places from the cells, the spatial effect from its joint law there given a draw of
it at the records, and values from that. Rows are shuffled last, each copy's by a stream of its own,
so that their order says nothing of the table's.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from dsstan.copies.chain import check_chain
from dsstan.copies.draw import Drawing, check_release, find_digits
from dsstan.copies.places.columns import group_table, kept_columns, made_columns
from dsstan.copies.places.result import MOVED, NUMBERS, POPULATION, PlacedRelease
from dsstan.copies.places.scatter import Grid, cells_drawn, find_grid, group_sizes, places_in
from dsstan.core.arrays import Floats, Indices
from dsstan.core.errors import ConvergenceError, DsstanWarning, InputError, check_count, named
from dsstan.core.progress import progress_bar
from dsstan.core.seeds import PLACES, root_seed, seed_bits, stream
from dsstan.core.spelling import spelled
from dsstan.covariance.new_places import check_carries_on, effect_at
from dsstan.models.intensity.result import Intensity
from dsstan.models.posterior import spread_draws
from dsstan.models.predictive import Predictive
from dsstan.models.result import Fit
from dsstan.table.planes import place_columns, with_places
from dsstan.table.problem import Problem, require_complete
from dsstan.table.rounding import Rounding

__all__ = ["check_intensity", "move_places", "synthesise_population"]

_LOG = logging.getLogger("dsstan.copies")


def move_places(
    intensity: Intensity,
    fit: Fit | Sequence[Fit] = (),
    copies: int = 20,
    *,
    problem: Problem | None = None,
    seed: int | None = None,
    accept_failed: bool = False,
    accept_few_draws: bool = False,
    strict: bool = False,
    rounding: str = "auto",
    accept_place: Sequence[str] = (),
    progress: bool | None = None,
) -> PlacedRelease:
    """Give every record a synthetic place and synthetic values there; it keeps its covariates.

    Parameters
    ----------
    intensity
        Where the records of the table are; it is drawn given its informing records.
    fit
        The model of the response, or several in the order in which their columns are drawn.
        Without any the response stays with the table.
    copies
        L. Draws are spread over all chains and none serves twice.
    problem
        The prepared table, where there is no fit.
    seed
        Root seed; by default a fresh one of 128 bits.
    accept_failed, accept_few_draws, strict
        See :func:`dsstan.synthesise`.
    rounding
        ``"auto"`` rounds places and values as the table's are; ``"none"`` keeps all digits.
    accept_place
        Columns that go out although they tell where a record was.
    progress
        Show progress; by default in a terminal.

    Raises
    ------
    InputError
        If intensity and fits are of different tables, or a model can't be carried on to new places.
    ReleaseError
        If a column that records keep tells where they were, or reveals a response.
    ConvergenceError
        If a fit failed its verdict.

    Notes
    -----
    Who knows a person's covariates finds them in the copies, since these are kept: a moved release
    hides where somebody is, not that they are in the table. A synthetic population hides both.
    """
    fits = (fit,) if isinstance(fit, Fit) else tuple(fit)
    how = _drawing(seed, accept_failed, accept_few_draws, strict, rounding, progress)
    problem = _table_of(intensity, fits, problem)
    columns = kept_columns(
        problem,
        [fit.problem for fit in fits],
        accept_place,
        others={name for fit in fits for name in fit.other_columns},
        withheld={fit.weights.column for fit in fits if fit.weights is not None},
    )
    kept = pd.DataFrame(problem.table)[[c for c in columns if c not in place_columns(problem)]]
    source = _Source(intensity, problem, fits, copies, how, columns)
    return source.release(MOVED, "kept", kept.reset_index(drop=True), intensity.group_index)


def synthesise_population(
    intensity: Intensity,
    fits: Sequence[Fit] = (),
    copies: int = 20,
    *,
    number: str = "drawn",
    groups: Sequence[str] = (),
    problem: Problem | None = None,
    seed: int | None = None,
    accept_failed: bool = False,
    accept_few_draws: bool = False,
    strict: bool = False,
    rounding: str = "auto",
    progress: bool | None = None,
) -> PlacedRelease:
    """Draw whole tables: places by group, then columns by the chain of models at the new places.

    Parameters
    ----------
    intensity, copies, problem, seed, accept_failed, accept_few_draws, strict, rounding, progress
        See :func:`move_places`.
    fits
        In the order in which their columns are drawn: each formula may take the groups, the
        coordinates and the columns before. A column that none of them makes is left out.
    number
        ``"drawn"``: each copy has a number of records of each group of its own, negative binomial
        about that of the table; ``"kept"``: every group has as many as the table, exactly.
    groups
        Columns that make the groups of the intensity; they are published.

    Raises
    ------
    InputError
        If a formula takes a column that nothing makes; else as :func:`move_places`.
    ConvergenceError
        If a fit failed its verdict.
    """
    if number not in NUMBERS:
        raise InputError(f"number must be one of {', '.join(NUMBERS)}, got {number!r}")
    fits = tuple(fits)
    how = _drawing(seed, accept_failed, accept_few_draws, strict, rounding, progress)
    problem = _table_of(intensity, fits, problem)
    columns = made_columns(problem, [fit.problem for fit in fits], groups)
    kinds = group_table(problem, intensity, groups)
    source = _Source(intensity, problem, fits, copies, how, columns)
    return source.release(POPULATION, number, kinds, None)


def _drawing(
    seed: int | None,
    accept_failed: bool,
    accept_few_draws: bool,
    strict: bool,
    rounding: str,
    progress: bool | None,
) -> Drawing:
    return Drawing(
        seed=seed,
        effect="auto",
        workers=1,
        accept_failed=accept_failed,
        accept_few_draws=accept_few_draws,
        strict=strict,
        rounding=rounding,
        progress=progress,
    )


def _table_of(intensity: Intensity, fits: tuple[Fit, ...], problem: Problem | None) -> Problem:
    """The problem whose table is released, its fits checked.

    Raises InputError if there is none, it is of other records, or a fit can't be carried on.
    """
    if not fits and problem is None:
        raise InputError("give the fit of the response, or the problem where none is modelled")
    found = fits[-1].problem if fits else problem
    assert found is not None
    if found.n_records != intensity.n_records:
        raise InputError(
            f"the intensity is of {intensity.n_records} records and the fit of {found.n_records}: "
            "make both from one table"
        )
    if found.by_row_groups:
        raise InputError("synthetic places need the whole table in memory: leave by_row_groups out")
    before: list[Problem] = []
    for fit in fits:
        require_complete(fit.problem)
        check_carries_on(fit.problem, fit.covariance)
        if not fit.predictive().at_places:
            raise InputError(
                f"{fit.problem.response!r} has a model ({type(fit).__name__}) that can't be "
                "carried on to new places: fit it with dsstan.fit, or as counts without an offset"
            )
        if before:
            check_chain(before, fit.problem)
        before.append(fit.problem)
    return found


def check_intensity(intensity: Intensity, *, accept_failed: bool, strict: bool) -> None:
    """Refuse an intensity whose fits did not pass.

    Raises ConvergenceError if so; under ``strict`` for a warning too.
    """
    for kind, fit in intensity.fits.items():
        of = kind.partition(" ")[2]
        whose = f"group {of}" if of else "all groups together"
        failed = () if accept_failed else fit.verdict.failures
        against = (*failed, *(fit.verdict.warnings if strict else ()))
        if against:
            reasons = "\n".join(f"  {check}" for check in against)
            fewer = max(2, intensity.mask.n_cells // 2)
            surfaces = ["shared", "none"] if of else ["none"]
            simpler = " or ".join(spelled("surface", word) for word in surfaces)
            raise ConvergenceError(
                f"the fit of the intensity of {whose} did not pass, so no place is drawn:\n"
                f"{reasons}\nFewer, wider cells can help too ({spelled('cells', fewer)}; "
                f"{intensity.mask.n_cells} now), and so can {simpler}. Or accept what failed with "
                f"{spelled('accept_failed', True)}"
            )


@dataclass(frozen=True)
class _Column:
    """How one column is drawn."""

    fit: Fit
    law: Predictive
    digits: Rounding | None
    picks: Indices

    def values(
        self, frame: pd.DataFrame, sites: Floats, copy: int, rng: np.random.Generator
    ) -> tuple[Floats, int]:
        """Values at new places as they are published, and how many the column could not hold."""
        fit, law, problem = self.fit, self.law, self.fit.problem
        chain, iteration = (int(one) for one in self.picks[copy])
        given = None if law.effect == "w" else fit.A == 1.0
        w = effect_at(
            fit,
            law.process(chain, iteration),
            law.effect_at_records(chain, iteration, rng),
            sites,
            rng,
            given=given,
        )
        raw = law.response(problem.design.X_of(frame), w, chain, iteration, rng)
        held = law.published(raw)
        beyond = int(np.sum(np.abs(held - raw) > 0.5 + 1e-6 * np.abs(raw)))
        if self.digits is None:
            return held, beyond
        return law.published(self.digits.apply(raw, rng, law.inside)), beyond


class _Source:
    """What all copies of one release share."""

    def __init__(
        self,
        intensity: Intensity,
        problem: Problem,
        fits: tuple[Fit, ...],
        copies: int,
        how: Drawing,
        columns: list[str],
    ) -> None:
        self.begin = time.perf_counter()
        self.intensity, self.problem, self.how, self.columns = intensity, problem, how, columns
        self.copies = check_count("copies", copies)
        self.root = root_seed(how.seed)
        self.grid: Grid = find_grid(problem, how.rounding, self.root)
        self.steps = []
        check_intensity(intensity, accept_failed=how.accept_failed, strict=how.strict)
        for number, fit in enumerate(fits, 1):
            with named(f"step {number}" if len(fits) > 1 else None):
                check_release(fit, self.copies, how)
            digits = find_digits(fit, self.root) if how.rounding == "auto" else None
            picks = spread_draws(fit, self.copies)
            self.steps.append(_Column(fit, fit.predictive("auto"), digits, picks))

    def release(
        self, places: str, number: str, frame: pd.DataFrame, groups: Indices | None
    ) -> PlacedRelease:
        """All copies.

        Parameters
        ----------
        places, number
            As in :class:`PlacedRelease`.
        frame
            What records keep, N rows; or where ``groups`` is None what the K groups hold.
        groups
            Group of each record, shape (N,).
        """
        label = "\0".join([places, number, *(s.fit.problem.formula for s in self.steps)])
        children = stream(self.root, PLACES, label.encode(errors="surrogatepass"))
        tables, sites, counts, beyond = [], [], [], 0
        first, *each = children.spawn(1 + self.copies)
        intensity = self.intensity
        chances = intensity.law.draws(
            intensity.informing, self.copies, np.random.default_rng(first)
        )
        with (
            threadpool_limits(limits=1, user_api="blas"),
            progress_bar("synthesis", self.how.progress) as advance,
        ):
            for copy, child in enumerate(each):
                streams = [np.random.default_rng(one) for one in child.spawn(3 + len(self.steps))]
                of = groups
                if of is None:
                    sizes = group_sizes(intensity, number, streams[0])
                    of = np.repeat(np.arange(len(sizes)), sizes)
                rows = frame if groups is not None else frame.iloc[of].reset_index(drop=True)
                cells = cells_drawn(chances[copy], of, streams[0])
                table, at, over = self._one(copy, rows, cells, streams[1:])
                tables.append(table)
                sites.append(at)
                counts.append(self._counted(of, cells))
                beyond += over
                advance((copy + 1) / self.copies)
        self._warn(beyond)
        left_out = tuple(str(name) for name in self.problem.columns if name not in self.columns)
        if left_out and self.problem.publish is None:
            _LOG.warning("Not published: %s", ", ".join(left_out))
        return PlacedRelease(
            self.intensity,
            self.problem,
            tuple(step.fit for step in self.steps),
            places,
            number,
            tuple(tables),
            tuple(sites),
            np.stack(counts),
            left_out,
            self.root,
            time.perf_counter() - self.begin,
            (self.how.accept_failed, self.how.accept_few_draws),
            seed_bits(self.how.seed),
            self.how.rounding,
        )

    def _one(
        self, copy: int, frame: pd.DataFrame, cells: Indices, streams: list[np.random.Generator]
    ) -> tuple[pd.DataFrame, Floats, int]:
        """One copy: its table and planar sites in their order, and how many values its columns
        could not hold."""
        where, shuffle, *values = streams
        beyond = 0
        coords, sites = places_in(self.problem, self.intensity, cells, self.grid, where)
        table = with_places(self.problem, frame, coords)
        for step, rng in zip(self.steps, values, strict=True):
            problem = step.fit.problem
            drawn, over = step.values(table, sites, copy, rng)
            table = table.assign(**{problem.response: problem.response_column(drawn)})
            beyond += over
        order = shuffle.permutation(len(table))
        table = table[self.columns].iloc[order].reset_index(drop=True)
        table.attrs = {}
        return table, sites[order], beyond

    def _counted(self, groups: Indices, cells: Indices) -> Floats:
        """Places by group and cell, shape (K, C)."""
        shape = len(self.intensity.groups), self.intensity.mask.n_cells
        flat = np.bincount(groups * shape[1] + cells, minlength=shape[0] * shape[1])
        return flat.reshape(shape).astype(np.float64)

    def _warn(self, beyond: int) -> None:
        """Say that values did not fit into their columns."""
        if beyond:
            warnings.warn(
                f"{beyond} synthetic values lie outside what their columns can hold and were moved "
                "to an end: give the columns a wider type, or model their logarithms",
                DsstanWarning,
                stacklevel=4,
            )
