"""The smooth step and its limit, the paper's flag with a decay that stays free.

``python tests/benchmarks/adaptive_step.py`` reckons the posterior by quadrature, without a
sampler, for falling widths of the step (0 is the flag itself) on a third of the simulated
incomes: median of phi and tau_sq, and for the lone record M(phi) at that median and the posterior
mean of the share A^2 of its variance that it keeps.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from quadrature import Model, Steps, posterior

import dsstan as ds
from dsstan.models.adaptive.fit import AdaptiveRule
from dsstan.models.weights import neighbour_distances

Floats = NDArray[np.float64]
WIDTHS = (0.5, 0.25, 0.1, 0.03, 0.0)
C = 0.20


@dataclass(frozen=True)
class Stepped(Model):
    """A follows phi; w is not asked for."""

    nearest: Floats = None  # type: ignore[assignment]
    width: float = 0.25

    def diagonal(self, phi: float) -> Floats:
        """Diagonal of A with gamma infinite; a flag where the width is 0."""
        if self.width == 0:
            return np.where(self.nearest >= -np.log(C) / phi, 0.0, 1.0)
        rule = AdaptiveRule("step", c=C, width=self.width)
        return rule.diagonal(self.nearest, phi, 1.0, "exponential")

    def correlation(self, phi: float) -> Floats:
        """A R A."""
        a = self.diagonal(phi)
        return np.asarray(a[:, None] * np.exp(-phi * self.distances) * a)


def main() -> None:
    """Print one row a width, the unrestricted model first."""
    people = ds.load_simulated().iloc[1::3].reset_index(drop=True)
    problem = ds.prepare(people, "log(income) ~ 1", coords=("s1", "s2"))
    priors = ds.Priors().resolve(problem.y, problem.X, problem.d_max)
    n, nearest = problem.n_records, neighbour_distances(problem)
    lone = n - 1
    print("width phi tau_sq M kept_by_the_lone")
    for width in (None, *WIDTHS):
        shared = (problem.X, problem.y, cdist(problem.sites, problem.sites), np.ones(n), "none")
        model = (
            Model(*shared, None, priors)
            if width is None
            else Stepped(*shared, None, priors, nearest=nearest, width=width)
        )
        steps = Steps(phi=96, r=96)
        found = posterior(model, record=lone, steps=steps)
        share = found.share.sum(axis=(1, 2))
        phis = np.exp(found.log_phi)
        kept = (
            1.0
            if width is None
            else float(share @ [model.diagonal(float(v))[lone] ** 2 for v in phis])
        )
        order = np.searchsorted(np.cumsum(share), 0.5)
        phi = float(phis[order])
        tau_sq = found.mean("tau_sq")
        row = f"{phi:.3g} {tau_sq:.3g} {-np.log(C) / phi:.3g} {kept:.3g}"
        print("none" if width is None else width, row, flush=True)
    print(f"the lone record's nearest neighbour: {nearest[lone]:.3f}")


if __name__ == "__main__":
    main()
