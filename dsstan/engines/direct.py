"""The direct engine: independent draws of a Gaussian fit's posterior, without Stan.

It takes the data of ``stan/surface.stan`` and draws from the same posterior. A proposal from the
tables of :mod:`dsstan.engines.surface_posterior` is kept with probability proportional to the exact
density over the tabulated one, so the draws are exact for the interpolated likelihood, and
independent of one another.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dsstan.core.arrays import Floats
from dsstan.core.errors import EngineError, InputError
from dsstan.engines.base import Advance, Draws, SamplerSettings, StanData, check_seed
from dsstan.engines.programs import Program
from dsstan.engines.surface_posterior import PosteriorTable

LEAST_KEPT = 0.5
"""Share of the proposals that must be kept."""


class DirectEngine:
    """Draws from the posterior of ``surface.stan`` by tables and rejection."""

    name = "direct"

    @property
    def version(self) -> str:
        """Version of the package, whose code it is."""
        return f"dsstan {importlib.metadata.version('dsstan')}"

    @classmethod
    def missing(cls) -> str | None:
        """None: it needs nothing that the package does not."""
        return None

    def sample(
        self,
        program: Program,
        data: StanData,
        *,
        settings: SamplerSettings,
        seed: int,
        inits: Sequence[Mapping[str, Any]] = (),
        advance: Advance | None = None,
    ) -> Draws:
        """Independent draws; the warm-up, the settings of NUTS and ``inits`` are not used.

        ``accept_stat__`` is the mean chance with which a proposal is kept.

        Raises
        ------
        InputError
            If the program is another than ``surface``.
        EngineError
            If the tables do not follow the density.
        """
        if program.name != "surface":
            raise InputError(
                'engine="direct" draws from Gaussian fits on the likelihood surface; take '
                f'engine="cmdstan" or "embedded" for {program.name}.stan'
            )
        rng = np.random.default_rng(check_seed(seed))
        table, wanted = PosteriorTable.of(data), settings.chains * settings.samples
        points, chance = independent_points(table, wanted, rng, advance)
        beta, density = table.posterior.draw_beta(points, rng)
        phi, r, sigma_sq = np.exp(points).T
        names = [f"beta[{j}]" for j in range(1, beta.shape[1] + 1)]
        values = np.column_stack([beta, sigma_sq, r * sigma_sq, phi])
        sampler = np.zeros((wanted, 4))
        sampler[:, 0] = chance
        sampler[:, 3] = -density
        shape = (settings.chains, settings.samples, -1)
        return Draws(
            (*names, "sigma_sq", "tau_sq", "phi"), values.reshape(shape), sampler.reshape(shape)
        )


def independent_points(
    table: PosteriorTable,
    wanted: int,
    rng: np.random.Generator,
    advance: Advance | None = None,
) -> tuple[Floats, float]:
    """Draws of (log phi, log r, log sigma_sq), shape (wanted, 3), and the mean chance to keep one.

    Raises EngineError if the table does not follow the density.
    """
    kept: list[Floats] = []
    chances: list[Floats] = []
    while sum(map(len, kept)) < wanted:
        points, weight = table.propose(rng, wanted + wanted // 10 + 50)
        chance = np.exp(weight - weight.max())
        if chance.mean() < LEAST_KEPT:
            raise EngineError(
                f"the direct engine would keep {chance.mean():.0%} of its proposals, fewer "
                f"than {LEAST_KEPT:.0%}: its tables do not follow this posterior. Choose the "
                "cmdstan or the embedded engine"
            )
        kept.append(points[rng.random(len(points)) < chance])
        chances.append(chance)
        if advance is not None:
            advance(min(1.0, sum(map(len, kept)) / wanted))
    return np.concatenate(kept)[:wanted], float(np.concatenate(chances).mean())
