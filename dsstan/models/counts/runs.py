"""How latent models are sampled, the second way of counts, and what verdicts on them look at."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from dsstan._version import __version__
from dsstan.core.arrays import Floats
from dsstan.core.progress import progress_bar
from dsstan.core.seeds import STARTS, stream
from dsstan.covariance.approximations import Covariance, Vecchia
from dsstan.covariance.correlation import correlation_code
from dsstan.covariance.vecchia.neighbours import neighbours_of
from dsstan.covariance.vecchia.site_process import ExactCorrection, SiteProcess, is_near
from dsstan.engines import SamplerSettings, get_engine
from dsstan.models.checks.conditions import Check
from dsstan.models.counts.laplace import Moves, sample
from dsstan.models.counts.outcomes import Outcome
from dsstan.models.counts.priors import ResolvedCountPriors
from dsstan.models.counts.proposal import build_proposal, proposal_nodes
from dsstan.models.counts.whitened import WhitenedModel
from dsstan.models.finish import Run, run_program
from dsstan.models.request import Request
from dsstan.models.starts import Begin, Pick
from dsstan.table.problem import Problem

WARMUP = 100
"""Iterations before the kept ones by default: chains start in the approximate posterior."""
MANY, FEWER = 300, 500
"""Sites beyond which so many draws a chain are kept by default: each costs more, and fills more of
the memory."""
NO_EFFECT = 0.03
"""sigma, in units of its prior's scale, below which there is next to no spatial effect."""
LEANING, STUCK = 0.05, 0.5
SELDOM, HARDLY = 0.3, 0.1
"""Shares of steps to the exact covariance that may be accepted."""
NEAR_EXACT = (20, 30, 45, 65, 90)
"""Neighbours of the Vecchia process that is corrected to the exact covariance: the fewest that
are near enough, or the last."""


class ThetaPriors(Protocol):
    """The priors as the package's own sampler asks for them."""

    @property
    def beta_scale(self) -> tuple[float, ...]:
        """Standard deviations of the coefficients' normal priors, P of them."""

    def theta_range(self, held: float | None) -> tuple[Floats, Floats]:
        """Ends of theta, equal in log phi where that is held."""

    def log_prior(self, theta: Floats, *, held: bool) -> float:
        """Log prior density of theta but for a constant."""


@dataclass(frozen=True)
class LatentTask:
    """A latent model to sample, of any outcome."""

    problem: Problem
    law: Outcome
    shift: Floats
    A: Floats
    cov_model: str
    covariance: Covariance
    priors: ThetaPriors
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
            self.law.response(p),
            self.shift,
            np.asarray(p.X),
            self.A,
            self._process(),
            p.site_index,
            np.array(self.priors.beta_scale),
        )

    def _process(self) -> SiteProcess:
        """The process of w: that of Vecchia's covariance, or one near the exact covariance."""
        p, chosen = self.problem, self.covariance
        first = np.unique(p.site_index, return_index=True)[1]

        def of(m: int) -> SiteProcess:
            near = neighbours_of(p, first, max(1, min(m, first.size - 1)), "maxmin")
            return SiteProcess(p.unique_sites, near, self.cov_model)

        if isinstance(chosen, Vecchia):
            return of(chosen.neighbours)
        low, high = self.priors.theta_range(self.held)
        smooth = float(min(high[0], low[0] + np.log(2.0)))  # twice the smallest decay
        for m in NEAR_EXACT:
            process = of(m)
            if is_near(process, smooth):
                break
        return process

    def laplace(self) -> tuple[Run, float]:
        """Laplace's approximation, corrected; see :mod:`dsstan.models.counts.laplace`.

        And the smallest share, of all chains, of the steps to the exact covariance that were
        accepted.
        """
        model, settings = self.model(), self.settings
        low, high = self.priors.theta_range(self.held)
        held, workers = self.held is not None, min(settings.chains, os.cpu_count() or 1)

        def log_prior(theta: Floats) -> float:
            return self.priors.log_prior(theta, held=held)

        with progress_bar(f"{self.label}: surface", self.progress) as advance:
            proposal = build_proposal(model, log_prior, low, high, workers=workers, advance=advance)
        ends, correction = (float(proposal.box_low[0]), float(proposal.box_high[0])), None
        if not held:
            model.process.tabulate(*ends)
        if not (self.covariance.approximate or model.process.complete):
            correction = ExactCorrection(model.process, *ends)
        seeds = stream(self.seed, STARTS, b"laplace").spawn(settings.chains)
        with progress_bar(f"{self.label}: sampling (dsstan)", self.progress) as advance:
            chains = sample(
                Moves(model, proposal, log_prior),
                correction,
                seeds,
                warmup=settings.warmup,
                samples=settings.samples,
                workers=workers,
                advance=advance,
            )
        theta = np.stack([c.theta for c in chains])
        log_sigma_sq, log_size = self.law.scales(theta)
        draws = {
            "beta": np.stack([c.beta for c in chains]),
            "sigma_sq": np.exp(log_sigma_sq),
            "phi": np.full(theta.shape[:2], self.held) if held else np.exp(theta[:, :, 0]),
            "w": np.stack([c.w for c in chains]),
        }
        if self.law.dispersed:
            draws[self.law.dispersion] = np.exp(log_size)
        stats = np.stack([c.sampler for c in chains])
        run = Run(
            draws,
            stats,
            "dsstan",
            f"dsstan {__version__}",
            self.law.program,
            # The surface proposes; what counts is the interpolated part of the correction.
            surface_error=None if correction is None else correction.error,
            nodes=proposal_nodes(low, high),
            details=tuple(float(c.kicks) for c in chains),
        )
        return run, min(c.corrected for c in chains)

    def log_likelihood(self, draws: Mapping[str, Floats]) -> Floats:
        """Log likelihood of each draw, shape (chains, samples); it moves with every w."""
        p, y = self.problem, self.law.response(self.problem)
        out = np.empty(draws["sigma_sq"].shape)
        for index in np.ndindex(*out.shape):
            eta = self.shift + p.X @ draws["beta"][index] + self.A * draws["w"][index][p.site_index]
            size = float(draws[self.law.dispersion][index]) if self.law.dispersed else 1.0
            out[index] = self.law.log_likelihood(y, eta, float(np.log(size)))
        return out


@dataclass(frozen=True)
class Task(LatentTask):
    """A model of counts to sample, by either sampler."""

    priors: ResolvedCountPriors

    def nuts(self, engine: str, request: Request) -> tuple[Run, float]:
        """The Stan program, w a parameter that is not centred."""
        run = run_program(
            request,
            self.law.program,
            self.stan_data(),
            self.begin(),
            runner=get_engine(engine),
            names=("beta", "sigma_sq", "w", *self._size),
            latent=self.problem.n_sites,
            surface_error=None,
        )
        return run, 1.0

    @property
    def _size(self) -> tuple[str, ...]:
        """Name of the dispersion, where there is one."""
        return ("size",) if self.law.dispersed else ()

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
            "site": p.site_index + 1,
            "A": self.A,
            "cov_model": correlation_code(self.cov_model),
            **self.priors.stan_data(self.held),
            "draw_latent": int(draw_latent),
        }

    def begin(self) -> Begin:
        """Points of the Stan program: draws of the start, else wide."""
        p = self.problem
        low, high = self.priors.theta_range(self.held)
        eta = self.law.start(p.original()) - self.shift
        b = np.linalg.lstsq(p.X, eta, rcond=None)[0]

        def begin(rng: np.random.Generator, pick: Pick) -> dict[str, Any]:
            theta = np.exp(low + (high - low) * rng.uniform(0.4, 0.6, low.size))
            point = {"beta": b, "sigma_sq": theta[1], "size": theta[-1], **(pick() or {})}
            names = ("beta", "sigma_sq", *self._size)
            return {**{name: point[name] for name in names}, "phi": float(theta[0])}

        return begin

    def effect_check(self, run: Run) -> Check:
        """Whether there is a noticeable spatial effect."""
        unit = self.priors.sigma[0] if self.priors.variance == "half-normal" else 1.0
        small = float(np.mean(np.sqrt(run.draws["sigma_sq"]) < NO_EFFECT * unit))
        return Check(
            "share of sigma below",
            small,
            f"at most {LEANING:g}, and at most {STUCK:g} to pass",
            "failure" if small > STUCK else "warning" if small > LEANING else "ok",
            "sigma",
            "a model without a spatial effect may do; see whether copies need one",
            "no-spatial-effect",
        )


def lengths_of(
    problem: Problem, warmup: int | None, samples: int | None, *, laplace: bool
) -> tuple[int, int]:
    """Iterations before the kept ones and kept, of :meth:`LatentTask.laplace` or of Stan; the usual
    ones where None."""
    usual = (SamplerSettings.warmup, SamplerSettings.samples)
    if laplace:
        usual = (WARMUP, FEWER if problem.n_sites > MANY else SamplerSettings.samples)
    return usual[0] if warmup is None else warmup, usual[1] if samples is None else samples


def correction_check(accepted: float) -> list[Check]:
    """Whether steps to the exact covariance are accepted; none where there were no such steps."""
    if accepted == 1.0:
        return []
    return [
        Check(
            "exact steps accepted",
            accepted,
            f"at least {SELDOM:g}, and at least {HARDLY:g} to pass",
            "failure" if accepted < HARDLY else "warning" if accepted < SELDOM else "ok",
            advice='give covariance="vecchia", which needs no such steps',
            condition="not-converged",
        )
    ]
