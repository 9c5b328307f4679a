"""The pictures of one release as files, for whoever needs them outside the report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from dsstan.core.errors import InputError
from dsstan.covariance.approximations import EXACT_LIMIT
from dsstan.models.effect_map import surface_on_grid
from dsstan.release.pictures.flag_map import plot_flags
from dsstan.release.pictures.maps import PROTECTION
from dsstan.release.pictures.plots import plot_copies, plot_intervals, plot_surfaces
from dsstan.release.pictures.risk_plots import plot_release_size
from dsstan.release.pictures.save import save
from dsstan.risk.placing import weakest_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plotnine import ggplot

    from dsstan.analysis.utility import Utility
    from dsstan.copies.result import Synthesis
    from dsstan.risk.assessment import Assessment

CELLS = 50
"""Cells of the maps of the spatial effect along their longer side."""


def draw_pictures(
    release: Synthesis,
    found: Assessment,
    kept: Utility | None,
    folder: Path,
    *,
    surfaces: Mapping[str, pd.DataFrame] | None = None,
) -> tuple[Path, ...]:
    """Draw a release as PNG files, for their owner alone. Confidential: they show single records.

    The flags on the map; of up to 2000 records the spatial effect, of the latest time, before and
    after protection; the copies of the weakest record; within what it is placed by the number of
    copies; the regression.

    Parameters
    ----------
    release, found, kept
        The copies, their assessment, and the regression where there is one.
    folder
        Is made.
    surfaces
        Further surfaces by name, drawn before those of the fits.

    Returns
    -------
    tuple of Path
        The files, those that the model has.
    """
    folder.mkdir()
    folder.chmod(0o700)
    problem, fits = release.problem, release.fits
    plots: dict[str, ggplot] = {}
    if release.fit.weights is not None:
        plots["flags"] = plot_flags(release.fit.weights, problem)
    if problem.n_records <= EXACT_LIMIT:
        latest = None if problem.structure is None else problem.structure.latest
        try:
            own = {
                words: surface_on_grid(fits[kind], cells=CELLS, time=latest, progress=False)
                for kind, words in PROTECTION.items()
                if kind in fits
            }
        except InputError:  # a model without one effect to map
            own = {}
        if own:
            shown = {**(surfaces or {}), **own}
            plots["surfaces"] = plot_surfaces(shown, problem, flagged=release.fit.flagged)
    if found.after is not None:
        weakest = weakest_of(problem, found.sd, problem.observed)
        plots["copies_of_the_weakest"] = plot_copies(release, weakest)
        plots["risk_by_copies"] = plot_release_size(found)
    if kept is not None:
        plots["utility"] = plot_intervals(kept)
    paths = {name: folder / f"{name}.png" for name in plots}
    for name, plot in plots.items():
        save(plot, paths[name])
    return tuple(paths.values())
