"""The options of synthetic places, and the whole way from a prepared table to the release."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dsstan.copies.option_fields import COPIES, option
from dsstan.copies.options import ReleaseOptions
from dsstan.copies.places.columns import kept_columns, made_columns
from dsstan.copies.places.draw import check_intensity, move_places, synthesise_population
from dsstan.copies.places.result import KEPT, MOVED, NUMBERS, PLACES, POPULATION, PlacedRelease
from dsstan.copies.protect import stage_seeds
from dsstan.core.errors import InputError, check_count, named
from dsstan.core.seeds import seed_bits
from dsstan.core.spelling import spelled
from dsstan.covariance.approximations import choose_covariance
from dsstan.covariance.new_places import check_carries_on
from dsstan.models.intensity.fit import SURFACES, fit_intensity
from dsstan.models.intensity.result import Intensity
from dsstan.models.result import Fit
from dsstan.models.weights import Weights, own_weights
from dsstan.table.columns import did_you_mean
from dsstan.table.mask.mask import Mask
from dsstan.table.mask.points import mask_of_addresses, mask_of_table
from dsstan.table.mask.polygons import mask_of_polygons
from dsstan.table.places.coordinates import is_geodataframe
from dsstan.table.planes import in_plane
from dsstan.table.problem import Problem

__all__ = ["FROM_TABLE", "PlacesOptions", "check_columns", "draw_placed"]

FROM_TABLE = "table"
"""In place of a file of polygons: draw the mask from the table, which tells where records are."""

Run = Callable[..., Fit]


@dataclass(frozen=True, kw_only=True)
class PlacesOptions:
    """What becomes of places.

    Raises
    ------
    InputError
        If one is out of range, two contradict each other, or synthetic places have no mask.
    """

    places: str = option(
        KEPT,
        "kept: published as they are. moved: each record gets a synthetic place and value, and "
        "keeps its covariates. population: all of it is synthetic.",
        COPIES,
        PLACES,
    )
    mask: Path | None = option(
        None,
        "File of polygons with the study area, in which synthetic places lie. The word "
        f"{FROM_TABLE} draws it from TABLE, which tells where records are.",
        COPIES,
        metavar="FILE",
    )
    addresses: Path | None = option(
        None,
        "File with public addresses, in place of a mask: synthetic places are some of them. Its "
        "columns of coordinates are named as those of TABLE.",
        COPIES,
        metavar="FILE",
    )
    cells: int | None = option(
        None, "About how many cells the mask has (one for ten records, 1000 at most).", COPIES
    )
    surface: str = option(
        "shared",
        "Intensity of places: shared by the groups, own of each, or none: cells are independent.",
        COPIES,
        SURFACES,
    )
    held_back: int = option(
        1, "Records of each group in each cell that inform no synthetic place.", COPIES
    )
    places_groups: list[str] | None = option(
        None, "Columns that make the groups of the intensity; once for each.", COPIES
    )
    number: str | None = option(
        None,
        "Of a population, the records of each group: drawn (the default) or kept.",
        COPIES,
        NUMBERS,
    )
    accept_place: list[str] | None = option(
        None, "Column that may go out although it tells where a record was; once for each.", COPIES
    )
    presence: float | None = option(
        None, "Largest Bayes factor that somebody is in TABLE, above 1, such as 3.", COPIES
    )
    finding: float | None = option(
        None, "Largest chance of finding somebody's address, or cell, such as 0.1.", COPIES
    )

    def __post_init__(self) -> None:
        for name, words in (("places", PLACES), ("surface", SURFACES)):
            if getattr(self, name) not in words:
                raise InputError(
                    f"{name} must be one of {', '.join(words)}, got {getattr(self, name)!r}"
                )
        if self.number is not None and self.number not in NUMBERS:
            raise InputError(f"number must be one of {', '.join(NUMBERS)}, got {self.number!r}")
        if not self.synthetic:
            self._refuse_unless(KEPT, [one.name for one in fields(self) if one.name != "places"])
            return
        if self.places == MOVED:
            self._refuse_unless(MOVED, ["number"])
        else:
            self._refuse_unless(POPULATION, ["accept_place"])
        if (self.mask is None) == (self.addresses is None):
            wrong = "both" if self.mask is not None else "neither"
            raise InputError(
                f"{spelled('places', self.places)} needs a mask or addresses, and there are "
                f"{wrong}: name a file of polygons with the study area "
                f"({spelled('mask', 'area.gpkg')}), or a public list of addresses. "
                f"{spelled('mask', FROM_TABLE)} draws the mask from the table, which tells where "
                "records are"
            )
        if self.cells is not None:
            check_count("cells", self.cells)
        check_count("held_back", self.held_back, least=0)
        if self.presence is not None and not self.presence > 1.0:
            raise InputError("presence must be a Bayes factor above 1, such as 3")
        if self.finding is not None and not 0.0 < self.finding < 1.0:
            raise InputError("finding must be a chance between 0 and 1, such as 0.1")

    @property
    def synthetic(self) -> bool:
        """Whether places are not published as they are."""
        return self.places != KEPT

    def _refuse_unless(self, places: str, names: Sequence[str]) -> None:
        """Refuse options that have no meaning under some places."""
        for one in fields(self):
            value = getattr(self, one.name)
            if one.name in names and value != one.default:
                raise InputError(
                    f"{spelled(one.name, value)} has no meaning where "
                    f"{spelled('places', places)}: leave it out"
                )

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns whose values are needed beside those of the formula."""
        return tuple(self.places_groups or ())

    def mask_for(self, problem: Problem, addresses: pd.DataFrame | None = None) -> Mask:
        """The mask asked for; ``addresses`` is the table of their file.

        Raises InputError or CoordinateError if it can't be made.
        """
        if addresses is not None:
            return mask_of_addresses(_points(addresses, problem), problem, cells=self.cells)
        assert self.mask is not None
        if self.mask.name == FROM_TABLE:
            return mask_of_table(problem, cells=self.cells)
        if not self.mask.is_file():
            raise InputError(
                f"there is no file with the study area: {spelled('mask', str(self.mask))}"
            )
        return mask_of_polygons(self.mask, problem, cells=self.cells)

    def intensity(self, problem: Problem, mask: Mask, **how: Any) -> Intensity:
        """Where the records are; see :func:`dsstan.models.intensity.fit.fit_intensity`."""
        names = list(self.columns)
        groups: Any = names[0] if len(names) == 1 else None
        if len(names) > 1:
            columns = problem.table[names].astype(str)
            groups = columns.agg(", ".join, axis=1).to_list()
        return fit_intensity(
            problem, mask, groups=groups, surface=self.surface, held_back=self.held_back, **how
        )


def check_columns(
    problems: Sequence[Problem], options: Sequence[ReleaseOptions], places: PlacesOptions
) -> None:
    """Refuse, before anything is fitted, columns that the release can't have.

    Parameters
    ----------
    problems, options
        Of the modelled columns in their order.
    places
        What becomes of places.

    Raises
    ------
    InputError
        If a column of the groups is none of the table, a formula of a population takes one that
        nothing makes, or a spatial effect is not carried on to new places.
    ReleaseError
        If a column that moved records keep tells where they were.
    """
    table = problems[-1].table
    lost = [name for name in places.columns if name not in table.columns]
    if lost:
        guess = did_you_mean(lost[0], table.columns)
        raise InputError(
            f"{spelled('places_groups', [lost[0]])} names no column of the table.{guess}"
        )
    for number, (problem, own) in enumerate(zip(problems, options, strict=True), 1):
        with named(f"step {number}" if len(problems) > 1 else None):
            check_carries_on(problem, choose_covariance(own.covariance, problem.n_records))
    if places.places == POPULATION:
        made_columns(problems[-1], problems, places.columns)
    else:
        withheld = {one.weights for one in options}
        kept_columns(problems[-1], problems, places.accept_place or (), withheld=withheld)


def _points(addresses: pd.DataFrame, problem: Problem) -> Any:
    """Addresses of a file as the mask takes them."""
    if is_geodataframe(addresses):
        return addresses
    lost = [name for name in problem.coord_names if name not in addresses.columns]
    if lost:
        raise InputError(
            f"the file of addresses has no column {lost[0]!r}: name its coordinates as those of "
            "the table, in the same system"
        )
    places = addresses[list(problem.coord_names)].to_numpy(dtype=np.float64, na_value=np.nan)
    return in_plane(problem, places)


def draw_placed(
    runs: Sequence[tuple[Run, ReleaseOptions]],
    problem: Problem,
    places: PlacesOptions,
    mask: Mask,
    root: int,
) -> PlacedRelease:
    """Fit where records are and their columns, and draw the release.

    A record whose place is lonely is flagged in every model of values, beside those that the rule
    flags: else the spatial effect would tell that somebody is there.

    Parameters
    ----------
    runs
        For each column in the order of the chain, its fit and its options; see
        :func:`dsstan.copies.protect.draw_release`.
    problem
        The prepared table.
    places, mask
        The options, and the mask that they name.
    root
        Root seed of all stages.

    Raises
    ------
    ConvergenceError
        If the fit of the intensity failed its verdict, before any column is fitted; or if that of
        a column did.
    """
    options = runs[-1][1]
    seeds = iter(stage_seeds(root, 2 + 2 * len(runs)))
    how = {} if places.surface == "none" else options.of_sampler
    intensity = places.intensity(problem, mask, seed=next(seeds), progress=options.progress, **how)
    let: dict[str, Any] = {"accept_failed": options.accept_failed, "strict": options.strict}
    check_intensity(intensity, **let)
    fits = []
    for number, (run, own) in enumerate(runs, 1):
        with named(f"step {number}" if len(runs) > 1 else None):
            free = run(seed=next(seeds))
            weights = _with_lonely(own.flag(free), intensity, free.problem)
            fits.append(
                run(
                    weights=weights,
                    gamma=own.gamma,
                    protection=own.protection,
                    start=free,
                    seed=next(seeds),
                )
            )
    common: dict[str, Any] = {
        **let,
        "seed": next(seeds),
        "rounding": options.rounding,
        "progress": options.progress,
    }
    if places.places == MOVED:
        release = move_places(
            intensity, fits, options.copies, accept_place=places.accept_place or (), **common
        )
    else:
        release = synthesise_population(
            intensity,
            fits,
            options.copies,
            number=places.number or "drawn",
            groups=places.columns,
            **common,
        )
    # The seed of the copies has 128 bits, and no more of chance than the one it comes from.
    return replace(release, seed_bits=seed_bits(options.seed))


def _with_lonely(weights: Weights, intensity: Intensity, problem: Problem) -> Weights:
    """The weights, lonely records fully flagged too."""
    if not (intensity.lonely & (weights.a < 1.0)).any():
        return weights
    more = own_weights(problem, np.maximum(weights.a, intensity.lonely))
    return replace(more, column=weights.column)
