"""The surface of a fit, by its covariance."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from dsstan.covariance.base import SpatialModel
from dsstan.covariance.likelihood_surface import Surface, first_nodes, interpolate
from dsstan.covariance.vecchia.spread import spread
from dsstan.covariance.window import Window, narrowed_surface
from dsstan.models.priors import ResolvedPriors

__all__ = ["FitSurface", "surface_of"]


@dataclass(frozen=True)
class FitSurface:
    """A surface and the part of the prior's range that it covers.

    Attributes
    ----------
    surface
        The statistics.
    window
        Where the posterior lies; None for the exact covariance, whose surface covers all.
    """

    surface: Surface
    window: Window | None = None

    def sampled(self, priors: ResolvedPriors) -> ResolvedPriors:
        """The priors cut to the window, as the program takes them."""
        if self.window is None:
            return priors
        held = self.window.phi_bounds[0] == self.window.phi_bounds[1]
        phi = priors.phi_bounds if held else self.window.phi_bounds
        return replace(priors, phi_bounds=phi, r_bounds=self.window.r_bounds)


def surface_of(
    model: SpatialModel,
    *,
    phi_bounds: tuple[float, float],
    r_bounds: tuple[float, float],
    nodes: tuple[int, int] | None,
    seed: int,
    advance: Callable[[float], None] | None = None,
    cluster: Any = None,
    resume: str | os.PathLike[str] | None = None,
) -> FitSurface:
    """The likelihood surface of the informing records of a model.

    Parameters
    ----------
    model
        What is fitted; its covariance gives the statistics.
    phi_bounds, r_bounds, nodes, seed, advance
        See :func:`dsstan.covariance.likelihood_surface.build_surface`.
    cluster, resume
        See :func:`dsstan.covariance.vecchia.spread.spread`; only Vecchia's approximation takes
        them.

    Raises
    ------
    SurfaceError
        If the interpolation error is not below its tolerance.
    """
    source = model.covariance.statistics(model)
    how: dict[str, Any] = {"seed": seed, "advance": advance}
    if not model.covariance.approximate:
        first = nodes or first_nodes(model.cov_model)
        fixed = nodes is not None
        return FitSurface(interpolate(source, phi_bounds, r_bounds, first, fixed=fixed, **how))
    with spread(source, cluster, resume) as spread_out:
        surface, window = narrowed_surface(
            *(spread_out, phi_bounds, r_bounds), nodes=nodes, cov_model=model.cov_model, **how
        )
    return FitSurface(surface, window)
