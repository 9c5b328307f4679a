"""The two ways to sample a model of counts, and the verdict on them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from dsstan._version import __version__
from dsstan.core.progress import progress_bar
from dsstan.core.seeds import STARTS, stan_seed, stream
from dsstan.covariance.correlation import correlation_code
from dsstan.engines import SamplerSettings, get_engine
from dsstan.engines.programs import Program
from dsstan.models.conditions import Check, most_flagged
from dsstan.models.counts.laplace import sample
from dsstan.models.counts.outcomes import Outcome
from dsstan.models.counts.priors import ResolvedCountPriors
from dsstan.models.counts.proposal import build_proposal, proposal_nodes
from dsstan.models.counts.whitened import WhitenedModel
from dsstan.models.verdict import Verdict, diagnose
from dsstan.models.weights import Weights
from dsstan.table.problem import Problem

if TYPE_CHECKING:
    from dsstan.models.result import Fit

Floats = NDArray[np.float64]

NO_EFFECT = 0.03
"""sigma, in units of its prior's scale, below which there is no spatial effect to speak of."""
LEANING, STUCK = 0.05, 0.5


@dataclass(frozen=True)
class Run:
    """What a sampler returns.

    Attributes
    ----------
    draws
        By name, each (chains, samples) or (chains, samples, length).
    stats
        Shape (chains, samples, 4): acceptance, treedepth, divergence, energy.
    engine, version
        What ran.
    nodes
        Nodes of the surface that proposes; (0, 0) without one.
    details
        Settings that warm-up found.
    """

    draws: dict[str, Floats]
    stats: Floats
    engine: str
    version: str
    nodes: tuple[int, int] = (0, 0)
    details: tuple[float, ...] = ()


@dataclass(frozen=True)
class Task:
    """What both samplers need."""

    problem: Problem
    law: Outcome
    shift: Floats
    A: Floats
    cov_model: str
    priors: ResolvedCountPriors
    held: float | None
    settings: SamplerSettings
    seed: int
    label: str
    progress: bool | None

    def model(self) -> WhitenedModel:
        """The model as arrays."""
        p = self.problem
        return WhitenedModel(
            self.law,
            p.original(),
            self.shift,
            np.asarray(p.X),
            self.A,
            cdist(p.unique_sites, p.unique_sites),
            p.site,
            np.array(self.priors.beta_scale),
            self.cov_model,
        )

    def laplace(self) -> Run:
        """Laplace's approximation, corrected; see :mod:`dsstan.models.counts.laplace`."""
        model, settings = self.model(), self.settings
        low, high = self.priors.theta_range(self.held)
        held = self.held is not None

        def log_prior(theta: Floats) -> float:
            return self.priors.log_prior(theta, held=held)

        with progress_bar(f"{self.label}: surface", self.progress) as advance:
            proposal = build_proposal(model, log_prior, low, high, advance)
        seeds = stream(self.seed, STARTS, b"laplace").spawn(settings.chains)
        with progress_bar(f"{self.label}: sampling (dsstan)", self.progress) as advance:
            chains = sample(
                model,
                proposal,
                log_prior,
                seeds,
                warmup=settings.warmup,
                samples=settings.samples,
                workers=min(settings.chains, os.cpu_count() or 1),
                advance=advance,
            )
        theta = np.stack([c.theta for c in chains])
        draws = {
            "beta": np.stack([c.beta for c in chains]),
            "sigma_sq": np.exp(theta[:, :, 1]),
            "phi": np.exp(theta[:, :, 0]),
            "w": np.stack([c.w for c in chains]),
        }
        if self.law.dispersed:
            draws["size"] = np.exp(theta[:, :, 2])
        stats = np.stack([c.sampler for c in chains])
        stats[:, :, 1] = 0.0  # no tree is grown
        return Run(
            draws,
            stats,
            "dsstan",
            f"dsstan {__version__}",
            proposal_nodes(low, high),
            tuple(float(c.kicks) for c in chains),
        )

    def nuts(self, engine: str, start: Fit | None) -> Run:
        """The Stan program, w a parameter that is not centred."""
        runner = get_engine(engine)
        with progress_bar(f"{self.label}: sampling ({runner.name})", self.progress) as advance:
            drawn = runner.sample(
                Program(self.law.program),
                self.stan_data(),
                settings=self.settings,
                seed=stan_seed(self.seed),
                inits=self.inits(start),
                advance=advance,
            )
        names = ["beta", "sigma_sq", "phi", "w", *(["size"] if self.law.dispersed else [])]
        draws = {name: drawn[name] for name in names}
        return Run(draws, drawn.sampler, runner.name, runner.version)

    def stan_data(self, *, draw_latent: bool = False) -> dict[str, Any]:
        """Data of the Stan program."""
        p = self.problem
        return {
            "N": p.n_records,
            "P": p.n_terms,
            "n_sites": p.n_sites,
            "X": p.X,
            "y": p.original().astype(np.int64),
            "shift": self.shift,
            "coords": p.unique_sites,
            "site": p.site + 1,
            "A": self.A,
            "cov_model": correlation_code(self.cov_model),
            **self.priors.stan_data(self.held),
            "draw_latent": int(draw_latent),
        }

    def inits(self, start: Fit | None) -> list[dict[str, Any]]:
        """Natural parameters at which the chains of Stan begin: near ``start``, or wide."""
        rng = np.random.default_rng(stream(self.seed, STARTS))
        p, out = self.problem, []
        low, high = self.priors.theta_range(self.held)
        eta = self.law.start(p.original()) - self.shift
        b = np.linalg.lstsq(p.X, eta, rcond=None)[0]
        for _ in range(self.settings.chains):
            theta = low + (high - low) * rng.uniform(0.4, 0.6, low.size)
            beta = b
            if start is not None:
                pick = np.unravel_index(rng.integers(start.n_draws), start.shape)
                beta = start.draws["beta"][pick]
                theta[1] = np.log(start.draws["sigma_sq"][pick])
                if self.law.dispersed:
                    theta[2] = np.log(start.draws["size"][pick])
            init: dict[str, Any] = {
                "beta": np.asarray(beta),
                "sigma_sq": float(np.exp(theta[1])),
                "phi_free": [] if self.held is not None else [float(np.exp(theta[0]))],
                "z": 0.1 * rng.standard_normal(p.n_sites),
            }
            if self.law.dispersed:
                init["size"] = float(np.exp(theta[2]))
            out.append(init)
        return out

    def verdict(self, run: Run, scalars: Mapping[str, Floats], weights: Weights | None) -> Verdict:
        """Whether the fit may reach synthesis.

        Beside the scalar parameters the log likelihood is watched: it moves with every w.
        """
        held = self.held is not None
        watched = {name: d for name, d in scalars.items() if not (held and name == "phi")}
        watched["log_likelihood"] = self._log_likelihood(run.draws)
        unit = self.priors.sigma[0] if self.priors.variance == "half-normal" else 1.0
        small = float(np.mean(np.sqrt(run.draws["sigma_sq"]) < NO_EFFECT * unit))
        more = [
            Check(
                "share of sigma below",
                small,
                f"at most {LEANING:g}, and at most {STUCK:g} to pass",
                "failure" if small > STUCK else "warning" if small > LEANING else "ok",
                "sigma",
                "a model without a spatial effect may do; see whether copies need one",
                "no-spatial-effect",
            )
        ]
        if weights is not None:
            chosen = weights.rule not in ("correlation", "distance")
            more.append(most_flagged(weights.n_flagged, self.problem.n_records, chosen=chosen))
        return diagnose(
            watched,
            run.stats,
            max_treedepth=self.settings.max_treedepth,
            surface_error=None,
            phi_bounds=None if held else self.priors.phi_bounds,
            r_bounds=None,
            more=tuple(more),
        )

    def _log_likelihood(self, draws: Mapping[str, Floats]) -> Floats:
        """Log likelihood of each draw, shape (chains, samples)."""
        p, y = self.problem, self.problem.original()
        out = np.empty(draws["sigma_sq"].shape)
        for index in np.ndindex(*out.shape):
            eta = self.shift + p.X @ draws["beta"][index] + self.A * draws["w"][index][p.site]
            size = float(draws["size"][index]) if self.law.dispersed else 1.0
            out[index] = self.law.log_likelihood(y, eta, float(np.log(size)))
        return out
