"""Fit the unrestricted or the restricted model."""

from __future__ import annotations

import logging
import os
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dsstan.core.errors import DsstanWarning, InputError
from dsstan.core.progress import progress_bar
from dsstan.core.seeds import root_seed, stan_seed
from dsstan.covariance.approximations import EXACT, Covariance, choose_covariance
from dsstan.covariance.fit_surface import fit_surface
from dsstan.covariance.vecchia.spread import check_spread, kept_seed
from dsstan.engines import SamplerSettings, get_engine
from dsstan.engines.programs import Program
from dsstan.models.arguments import PROTECTIONS, check_arguments, check_cov_model, check_cut
from dsstan.models.conditions import at_window, most_flagged
from dsstan.models.priors import Priors, ResolvedPriors
from dsstan.models.stan_data import initial_values, natural_data
from dsstan.models.verdict import Verdict, diagnose, ess, protection_notes, rhat
from dsstan.models.weights import Weights
from dsstan.table.problem import Problem

if TYPE_CHECKING:
    from dsstan.covariance.latent import Parameters
    from dsstan.models.predictive import Predictive

__all__ = ["NATURAL_LIMIT", "PROTECTIONS", "Fit", "fit"]

Floats = NDArray[np.float64]

_LOG = logging.getLogger("dsstan")

NATURAL_LIMIT = {"unrestricted": 300, "restricted": 800}
"""Most records for which a fit runs the program that takes natural data.

Beyond, LAPACK's surface and ``surface.stan`` give the same posterior sooner.
"""


@dataclass(frozen=True, eq=False)
class Fit:
    """A posterior, with everything that made it.

    Attributes
    ----------
    problem
        The prepared table.
    kind
        ``"unrestricted"`` or ``"restricted"``.
    protection
        ``"none"`` for the unrestricted fit, else ``"paper"``, ``"preserving"``
        or ``"cut"``.
    weights, gamma
        Risk weights and the global risk parameter; None and 0 if unrestricted.
    A
        Diagonal of A, shape (N,).
    draws
        ``beta`` (chains, samples, P); ``sigma_sq``, ``tau_sq`` and ``phi``
        (chains, samples), phi constant where it was held.
    phi_held
        The decay where it was held, else None.
    priors, prior_settings
        Every prior setting as a number, and as it was asked for.
    engine, program
        What ran, with versions, and the program with its fingerprint.
    seed
        Root of the fit's random streams. Confidential.
    surface_error, nodes
        Largest error of the interpolated log density, and the nodes (G, H).
    verdict
        Whether the fit may reach synthesis, and why.
    seconds
        Wall time.
    start
        The unrestricted fit that this one started from, at once or through
        another restricted fit; None if there is none.
    notes
        What the user should know beside the verdict.
    cov_model
        Correlation function of w, one of :data:`dsstan.covariance.correlation.CORRELATIONS`.
    covariance
        The exact covariance, or the approximation that stands for it.
    """

    problem: Problem = field(repr=False)
    kind: str
    protection: str
    weights: Weights | None
    gamma: float
    A: Floats = field(repr=False)
    draws: Mapping[str, Floats] = field(repr=False)
    phi_held: float | None
    priors: ResolvedPriors = field(repr=False)
    prior_settings: Priors = field(repr=False)
    engine: str
    engine_version: str
    program: str
    fingerprint: str = field(repr=False)
    seed: int = field(repr=False)
    settings: SamplerSettings = field(repr=False)
    surface_error: float
    nodes: tuple[int, int]
    verdict: Verdict = field(repr=False)
    seconds: float
    start: Fit | None = field(repr=False, default=None)
    notes: tuple[str, ...] = ()
    cov_model: str = "exponential"
    covariance: Covariance = EXACT

    outcome: ClassVar[str] = "Gaussian"
    """Law of the response given the spatial effect, as the metadata name it."""

    smoothing_moves: ClassVar[bool] = False
    """Whether A changes from draw to draw; :meth:`at` then gives the fit with A of a draw."""

    @property
    def flagged(self) -> NDArray[np.bool_]:
        """Flagged records, shape (N,); none in an unrestricted fit."""
        if self.weights is None:
            return np.zeros(self.problem.n_records, dtype=bool)
        return self.weights.flagged

    @property
    def informing(self) -> NDArray[np.intp]:
        """Positions of the records that inform the fit.

        They are those with a response; under ``cut`` the unflagged of them.
        """
        return _informing(self.A, self.protection, self.problem)

    @property
    def n_draws(self) -> int:
        """S, the number of posterior draws over all chains."""
        chains, samples = self.shape
        return chains * samples

    @property
    def shape(self) -> tuple[int, int]:
        """Chains and draws of each."""
        chains, samples = self.draws["beta"].shape[:2]
        return int(chains), int(samples)

    @property
    def model_settings(self) -> dict[str, Any]:
        """What sets the model apart beyond the fields of every fit, for ``settings.json``."""
        return {}

    @property
    def public_note(self) -> str:
        """What the public README must say of this model beyond the common text."""
        return ""

    @property
    def other_columns(self) -> tuple[str, ...]:
        """Columns beside the formula's that copies are drawn with, as an offset or groups."""
        return ()

    def at(self, p: Parameters) -> Fit:
        """The fit whose A is that of one draw; this one, where A does not change."""
        return self

    def predictive(self, effect: str = "auto") -> Predictive:
        """How a copy is drawn from this fit; see :func:`dsstan.synthesise` for the effects."""
        from dsstan.models.predictive import Predictive

        return Predictive(self, effect)

    @property
    def scalars(self) -> dict[str, Floats]:
        """Scalar parameters by name, each of shape (chains, samples)."""
        beta = self.draws["beta"]
        named = {f"beta_{j}": beta[:, :, j] for j in range(beta.shape[2])}
        return {**named, **{k: self.draws[k] for k in ("sigma_sq", "tau_sq", "phi")}}

    @property
    def scalar_terms(self) -> list[str]:
        """What each of :attr:`scalars` is, in words."""
        return [*self.problem.terms, "partial sill", "nugget", "decay"]

    def summary(self) -> pd.DataFrame:
        """Mean, sd, quantiles, effective sample sizes and R-hat, one row a parameter.

        A held decay has sd 0 and no effective sample size or R-hat (NaN).
        """
        rows = {}
        for name, d in self.scalars.items():
            held = name == "phi" and self.phi_held is not None
            q025, q50, q975 = np.quantile(d, [0.025, 0.5, 0.975])
            rows[name] = {
                "mean": float(np.mean(d)),
                "sd": 0.0 if held else float(np.std(d, ddof=1)),
                "q025": float(q025),
                "q50": float(q50),
                "q975": float(q975),
                "ess_bulk": np.nan if held else ess(d, "bulk"),
                "ess_tail": np.nan if held else ess(d, "tail"),
                "rhat": np.nan if held else rhat(d),
            }
        table = pd.DataFrame(rows).T
        table.insert(0, "term", self.scalar_terms)
        return table

    @property
    def worst_ess(self) -> float:
        """Smallest bulk effective sample size of a sampled parameter."""
        return min(
            ess(d) for name, d in self.scalars.items() if name != "phi" or self.phi_held is None
        )

    def to_arviz(self) -> Any:
        """The posterior for ArviZ: an InferenceData before ArviZ 1, a DataTree from 1 on.

        Groups ``posterior`` (beta with the terms as coordinate, sigma_sq, tau_sq, phi) and
        ``observed_data`` (y on the modelled scale, by record). Confidential. The groups are
        xarray datasets.

        Raises
        ------
        InputError
            If neither arviz nor arviz-base is installed.
        """
        from dsstan.release.exchange import to_arviz

        return to_arviz(self)

    def __str__(self) -> str:
        text = self.summary().to_string(float_format=lambda v: f"{v:.4g}")
        head = f"{self.kind} fit ({self.protection}), {self.engine}, verdict {self.verdict}"
        return "\n".join([head, *(f"note: {note}" for note in self.notes), text])


def fit(
    problem: Problem,
    *,
    weights: Weights | None = None,
    gamma: float | None = None,
    protection: str | None = None,
    start: Fit | None = None,
    phi: float | None = None,
    hold_phi: bool = True,
    cov_model: str | None = None,
    covariance: str | Covariance | None = None,
    priors: Priors | None = None,
    engine: str = "auto",
    chains: int = 4,
    warmup: int = 1000,
    samples: int = 1000,
    adapt_delta: float = 0.9,
    max_treedepth: int = 10,
    nodes: tuple[int, int] | None = None,
    program: str = "auto",
    seed: int | None = None,
    cluster: Any = None,
    resume: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> Fit:
    """Fit the unrestricted model, or with weights the restricted one.

    Equations hier and restrict of Quick, Holan and Wikle (2018), the spatial
    effect integrated out.

    Parameters
    ----------
    problem
        From :func:`dsstan.prepare`.
    weights
        Risk weights; without them the fit is unrestricted.
    gamma
        Global risk parameter, from 0 to infinity (with weights the default: w* of a flagged
        record is fixed to zero). Under ``"cut"`` it makes no difference.
    protection
        What becomes of the variance that smoothing removes: ``"paper"`` (the default) nothing,
        ``"preserving"`` it returns as noise of the observation, ``"cut"`` the
        flagged records leave the fit.
    start
        The unrestricted fit: its draws start the chains, and its posterior
        median of phi is held.
    phi
        Decay to hold instead, inverse of the coordinates' unit.
    hold_phi
        False leaves phi free in a restricted fit. The paper advises against it,
        since flags depend on phi.
    cov_model
        Correlation function of w, ``"exponential"`` (the paper's), ``"matern32"`` or
        ``"matern52"``; see :mod:`dsstan.covariance.correlation`. By default that of ``start``, else
        the exponential.
    covariance
        ``"exact"``, ``"vecchia"``, ``"predictive_process"``, or one of the last two with its
        settings (:mod:`dsstan.covariance.approximations`). ``"auto"``, the default without
        ``start``, is exact up to 2000 informing records and Vecchia's beyond; with ``start``
        the default is that of ``start``.
    priors
        Prior settings; see :class:`dsstan.Priors`. By default those of ``start``, resolved
        for the records that inform this fit.
    engine
        ``"cmdstan"``, ``"embedded"`` or ``"auto"``.
    chains, warmup, samples, adapt_delta, max_treedepth
        Sampler settings.
    nodes
        Nodes (G, H) of the surface; by default as many as the tolerance needs.
    program
        ``"natural"`` runs the program that builds its surface inside Stan,
        ``"surface"`` the one that takes LAPACK's, ``"auto"`` the faster.
    seed
        Root seed, by default a fresh one of 128 bits.
    cluster
        Workers that compute the surface of Vecchia's approximation: a number of processes on this
        machine, the address of a Dask scheduler or a ``distributed.Client``; see
        :func:`dsstan.core.distributed.connect`. The fit is the same bytes as without.
    resume
        Folder, for its owner alone, in which finished sums of such a surface are kept, and the
        seed where none is given: a run that was killed goes on when it is started again.
        Confidential.
    progress
        Show progress; by default in a terminal.

    Returns
    -------
    Fit
        Whether or not it converged: its ``verdict`` says.

    Raises
    ------
    InputError
        If arguments contradict each other.
    SurfaceError
        If the interpolation error is not below its tolerance.
    EngineError
        If the engine is missing or fails.
    """
    begin = time.perf_counter()
    root = root_seed(seed)
    settings = SamplerSettings(chains, warmup, samples, adapt_delta, max_treedepth)
    if weights is None and (gamma is not None or protection is not None):
        raise InputError("gamma and protection belong to a restricted fit: give weights as well")
    gamma = np.inf if gamma is None else gamma
    protection = "paper" if protection is None else protection
    A = check_arguments(problem, weights, gamma, protection, start, phi, hold_phi, program)
    cov_model = check_cov_model(cov_model, start)
    restricted = weights is not None
    used = protection if restricted else "none"
    rows = _informing(A, used, problem)
    y, X = problem.y[rows], problem.X[rows]
    if restricted and used == "cut":
        check_cut(X, len(rows), problem)
    if priors is None:
        priors = start.prior_settings if start is not None else Priors()
    resolved = priors.resolve(y, X, problem.d_max, cov_model=cov_model)
    held = None
    if restricted and hold_phi:
        # check_arguments has seen to it that there is one of the two.
        held = float(np.median(start.draws["phi"])) if phi is None and start else phi
    phi_bounds = resolved.phi_bounds if held is None else (held, held)
    kind = "restricted" if restricted else "unrestricted"
    label = f"{kind} fit"
    if covariance is None:
        covariance = "auto" if start is None else start.covariance
    reckoned = choose_covariance(covariance, len(rows))
    check_spread(reckoned, cluster, resume)
    root = kept_seed(
        *(resume, seed, root, problem, A),
        settings=(used, cov_model, reckoned, priors, held, nodes, settings),
    )
    runner = get_engine(engine)
    with progress_bar(f"{label}: surface", progress) as advance:
        built = fit_surface(
            reckoned,
            problem,
            rows,
            A=A,
            protection=used,
            phi_bounds=phi_bounds,
            r_bounds=resolved.r_bounds,
            cov_model=cov_model,
            nodes=nodes,
            seed=stan_seed(root),
            advance=advance,
            cluster=cluster,
            resume=resume,
        )
    surface, sampled = built.surface, built.sampled(resolved)
    natural = (
        reckoned is EXACT
        and _natural(program, kind, held, restricted, len(rows))
        and not problem.n_missing
    )
    if program == "natural" and not natural:
        raise InputError(
            "the program that takes natural data needs a response in every record, and the exact "
            'covariance: leave program at "auto"'
        )
    name = kind if natural else "surface"
    data = (
        natural_data(problem, A, used, held, resolved, surface, cov_model=cov_model)
        if natural
        else {**surface.stan_data(), **sampled.stan_data()}
    )
    _LOG.info(
        "%s: program %s on %s, %d of %d records inform it, %d x %d nodes",
        *(label, name, runner.name, len(rows), problem.n_records, *surface.nodes),
    )
    inits = (
        initial_values(start, surface, resolved, held, chains, root, natural)
        if built.window is None
        else built.starts(chains, root, held is not None)
    )
    with progress_bar(f"{label}: sampling ({runner.name})", progress) as advance:
        drawn = runner.sample(
            Program(name),
            data,
            settings=settings,
            seed=stan_seed(root),
            inits=inits,
            advance=advance,
        )
    draws = {key: drawn[key] for key in ("beta", "sigma_sq", "tau_sq")}
    draws["phi"] = drawn["phi"] if "phi" in drawn.names else np.full(draws["sigma_sq"].shape, held)
    notes = protection_notes(
        problem,
        weights,
        A,
        used,
        phi=float(np.median(draws["phi"])),
        phi_from_start=held is not None and phi is None,
        cov_model=cov_model,
    )
    if weights is not None and weights.n_flagged == 0:
        warnings.warn(notes[0], DsstanWarning, stacklevel=2)
    checks = at_window(draws, sampled, resolved)
    if weights is not None:
        chosen = weights.rule not in ("correlation", "distance")
        checks.append(most_flagged(weights.n_flagged, problem.n_records, chosen=chosen))
    error = surface.error
    if natural:
        error = max(error, float(np.max(drawn["surface_error"])))
    return Fit(
        problem=problem,
        kind=kind,
        protection=used,
        weights=weights,
        gamma=float(gamma) if restricted else 0.0,
        A=A,
        draws=draws,
        phi_held=held,
        priors=resolved,
        prior_settings=priors,
        engine=runner.name,
        engine_version=runner.version,
        program=name,
        fingerprint=Program(name).fingerprint,
        seed=root,
        settings=settings,
        surface_error=error,
        nodes=surface.nodes,
        verdict=diagnose(
            {
                **{f"beta_{j}": draws["beta"][:, :, j] for j in range(problem.n_terms)},
                "sigma_sq": draws["sigma_sq"],
                "tau_sq": draws["tau_sq"],
                **({} if held is not None else {"phi": draws["phi"]}),
            },
            drawn.sampler,
            max_treedepth=max_treedepth,
            surface_error=error,
            phi_bounds=None if held is not None else resolved.phi_bounds,
            r_bounds=resolved.r_bounds,
            more=tuple(checks),
        ),
        seconds=time.perf_counter() - begin,
        start=start.start if start is not None and start.kind == "restricted" else start,
        notes=notes,
        cov_model=cov_model,
        covariance=reckoned,
    )


def _informing(A: Floats, protection: str, problem: Problem) -> NDArray[np.intp]:
    """Positions of the informing records."""
    fitted = A == 1.0 if protection == "cut" else np.ones(A.size, dtype=bool)
    return np.flatnonzero(fitted & problem.observed)


def _natural(program: str, kind: str, held: float | None, restricted: bool, n: int) -> bool:
    """Whether the program that takes natural data runs."""
    if restricted and held is None:
        return False
    return program == "natural" or (program == "auto" and n <= NATURAL_LIMIT[kind])
