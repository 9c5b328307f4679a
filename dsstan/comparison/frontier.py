"""Risk and utility of every setting in a grid of protections.

Every setting (rule, gamma, protection) is fitted once and judged at every planned L, beside
no protection at all. All settings are judged on the same records, those that any rule of the
grid flags, so that a rule does not look safe by flagging few. Finished settings are kept
in a private folder, so that a run that was stopped goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from dsstan._version import __version__
from dsstan.comparison.frontier_result import Frontier
from dsstan.comparison.scores import ProtectionSetting, SettingScores, Store, grid_of, measure
from dsstan.core.distributed import connect
from dsstan.core.errors import DsstanError, InputError, is_number, whole_number
from dsstan.core.executors import ThisProcess
from dsstan.core.progress import progress_bar
from dsstan.core.seeds import FRONTIER, seed_of, stream
from dsstan.covariance.approximations import Covariance, choose_covariance
from dsstan.engines import get_engine
from dsstan.models.arguments import check_cov_model, settings_of
from dsstan.models.fit import fit
from dsstan.models.flagging.continuous_weights import continuous_weights
from dsstan.models.flagging.flags import flag_isolated
from dsstan.models.priors import Priors
from dsstan.models.request import SamplerKeywords
from dsstan.models.result import Fit
from dsstan.models.weights import Weights
from dsstan.risk.intruder.leave_one_out import unrestricted_terms
from dsstan.table.problem import Problem, require_complete


def compare(
    problem: Problem,
    *,
    distances: Sequence[float] = (),
    correlations: Sequence[float] = (),
    continuous: bool = False,
    gammas: Sequence[float] = (np.inf,),
    protections: Sequence[str] = ("paper",),
    copies: Sequence[int] = (20,),
    start: Fit | None = None,
    cov_model: str | None = None,
    covariance: str | Covariance | None = None,
    priors: Priors | None = None,
    relative: float = 0.10,
    draws: int | None = None,
    engine: str = "direct",
    seed: int | None = None,
    workers: int = 1,
    cluster: Any = None,
    folder: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    **sampler: Unpack[SamplerKeywords],
) -> Frontier:
    """Judge every combination of rule, gamma, protection and L.

    Parameters
    ----------
    problem
        The prepared table.
    distances, correlations
        Rules: values of M, values of c; see :func:`dsstan.flag_isolated`. With neither,
        c = 0.20.
    continuous
        Also judge continuous weights (protection ``paper``, their own gamma).
    gammas, protections, copies
        See :func:`dsstan.fit`; under ``cut`` gamma makes no difference and is left out.
        Each L is at least 2.
    start
        The unrestricted fit; by default fitted here.
    cov_model, priors, sampler
        See :func:`dsstan.fit`; by default those of ``start``.
    engine
        Of the fits made here; by default ``"direct"``, whose draws are independent and whose
        fits converge. ``"auto"`` is that of ``start``, without one as in :func:`dsstan.fit`.
    covariance
        Of all fits, as :func:`dsstan.fit` takes it: by default that of ``start``, else exact up
        to 2000 records and Vecchia's approximation beyond. Under Vecchia's the sds come from the
        records around each; the predictive process has none, and its risk is the shares.
    relative
        Tolerance of the shares.
    draws
        Posterior draws behind the attacker's sds; see :func:`dsstan.risk.intruder.attacker.attack`.
    seed
        Root seed. Every setting has a stream of its own, so its fit and copies do not depend
        on the rest of the grid, on ``workers``, ``cluster`` or on what was resumed. Which are
        at risk does depend on the grid.
    workers
        Settings judged at a time, in threads; the sampler runs in processes of its own.
    cluster
        Worker processes that judge settings instead, here or on other machines: a number of them,
        the address of a Dask scheduler or a ``distributed.Client``; see
        :func:`dsstan.core.distributed.connect`.
    folder
        Where finished settings are kept, readable by their owner only; made if need be.
        Confidential. A second call with the same folder, problem and settings reads them.

    Returns
    -------
    Frontier
        ``table``: ``setting``, ``rule``, ``value``, ``threshold`` (M), ``flagged``, ``gamma``,
        ``protection``, ``effect``, ``copies``, ``passed`` (the fit's verdict); ``sd_at_risk_known``
        and ``sd_at_risk_fixed``, the smallest sd of a record at risk for an intruder who
        knows all others, if they know the variances behind each copy and if the variances
        are of no use to them; ``sd_at_risk_median`` and ``sd_all``, if they know the
        variances, the median of those at risk and the smallest of all records;
        ``within_at_risk`` and ``within_all``, within which share of its value they place the record
        at risk, and of all records, that they place most narrowly (95%); ``left_out``, by how
        much an approximated sd may be too large (:class:`dsstan.risk.intruder.attacker.Attack`), 0
        where sds are exact; ``share_at_risk``, ``share_others``, mean shares of copies near the
        truth; ``overlap`` (Karr et al. 2006, at least 0) and ``width_ratio`` of the least-squares
        intervals, means over the terms; ``surface``, correlation of the copies' mean predicted
        surface with the original's; of these, ``_error``, the Monte Carlo error of a mean over up
        to ten sets of L copies; ``sigma_sq``, ``tau_sq``, posterior means.

    Raises
    ------
    InputError
        If an argument is out of range, ``start`` has another covariance, or the folder belongs
        to another problem.
    """
    begin = time.perf_counter()
    settings = grid_of(distances, correlations, continuous, gammas, protections)
    check_comparison(problem, copies, workers, start)
    workers = int(workers)
    chosen = _covariance_of_all(problem, covariance, start, check_cov_model(cov_model, start))
    if cluster is not None and workers != 1:
        raise InputError("workers are threads of this process: leave them out with a cluster")
    store = Store(None if folder is None else Path(folder))
    root = store.root(seed)
    common: dict[str, Any] = {} if start is None else settings_of(start)
    if start is None or engine != "auto":
        # Chosen here: a worker might choose another, and other draws with it.
        common["engine"] = get_engine(engine).name
    common |= {"progress": False, "priors": priors, "covariance": chosen, **sampler}
    common["cov_model"] = check_cov_model(cov_model, start)
    with threadpool_limits(limits=1, user_api="blas"):
        first = seed_of(stream(root, FRONTIER, b"unrestricted"))
        free = start or fit(problem, seed=first, **{**common, "progress": progress})
        of = fingerprint(free)
        store.belongs_to(of)
        if chosen.has_attacker:
            unrestricted_terms(free)  # what every attack needs, once, before the threads
        smoothed, unusable = _all_smoothed(free, settings)
        counts = sorted({int(c) for c in copies})
        judged = {"copies": counts, "relative": relative, "draws": draws}
        tasks = _tasks(of, smoothed, judged, common, root)
        where = ThisProcess(workers) if cluster is None else cluster
        cells, failed, computed = _run(tasks, store, free, where, progress)
    at_risk = np.zeros(problem.n_records, dtype=bool)
    for own, _ in smoothed.values():
        at_risk |= own.flagged & (own.rule != "continuous")
    rows = [
        {**_labels(s, smoothed[s][0] if s in smoothed else None, cells[s]), **row}
        for s in tasks
        if s in cells
        for row in cells[s].rows(at_risk, problem)
    ]
    return Frontier(
        table=pd.DataFrame(rows),
        at_risk=at_risk,
        failed={str(s): why for s, why in {**unusable, **failed}.items()},
        seed=root,
        computed=computed,
        seconds=time.perf_counter() - begin,
    )


def check_comparison(
    problem: Problem, copies: Sequence[int], workers: int, start: Fit | None
) -> None:
    """Refuse what would fail only after the first fit."""
    require_complete(problem)
    if isinstance(copies, str) or is_number(copies) or not len(copies):
        raise InputError("copies must be a sequence of numbers of copies")
    for count in (*copies, workers):
        if (whole_number(count) or 0) < 1:
            raise InputError("copies and workers must be whole numbers from 1 on")
    if min(copies) < 2:
        raise InputError("utility needs at least two copies, so copies must be at least 2")
    if start is not None and start.problem is not problem:
        raise InputError("start is a fit of another problem")
    if start is not None and start.kind != "unrestricted":
        raise InputError("start must be the unrestricted fit")


def _covariance_of_all(
    problem: Problem, covariance: str | Covariance | None, start: Fit | None, cov_model: str
) -> Covariance:
    """The covariance of every fit, so that settings differ in their protection alone."""
    if covariance is None:
        covariance = "auto" if start is None else start.covariance
    chosen = choose_covariance(covariance, problem.n_records, cov_model)
    if start is not None and chosen != start.covariance:
        raise InputError(
            f"start was fitted with another covariance ({start.covariance}) than the one asked for "
            f"({chosen}): leave covariance out, or fit start with it"
        )
    return chosen


def fingerprint(free: Fit) -> str:
    """What a kept setting depends on beside itself: table, unrestricted fit, software."""
    problem = free.problem
    words = (
        *(__version__, problem.formula, problem.table[problem.response].dtype),
        *(free.prior_settings, free.fingerprint, free.engine, free.engine_version),
    )
    digest = hashlib.sha256("\n".join(map(str, words)).encode())
    draws = [free.draws[name] for name in sorted(free.draws)]
    if problem.survey_weight_values is not None:
        draws.append(problem.survey_weight_values)
    for part in (problem.y, problem.original(), problem.X, problem.sites, *draws):
        digest.update(np.ascontiguousarray(part, dtype=np.float64).tobytes())
    return digest.hexdigest()


Smoothed = tuple[Weights, float]
"""Weights and gamma of a setting."""


def _all_smoothed(
    free: Fit, settings: list[ProtectionSetting]
) -> tuple[dict[ProtectionSetting, Smoothed], dict[ProtectionSetting, str]]:
    """Weights and gamma of every setting, and why those that have none do not."""
    smoothed, unusable = {}, {}
    for setting in settings:
        try:
            smoothed[setting] = _smoothed(free, setting)
        except DsstanError as error:
            unusable[setting] = str(error)
    return smoothed, unusable


def _smoothed(free: Fit, setting: ProtectionSetting) -> Smoothed:
    """The setting's weights and gamma."""
    if setting.rule == "continuous":
        return continuous_weights(free)
    if setting.rule == "distance":
        return flag_isolated(free, distance=setting.value), setting.gamma
    return flag_isolated(free, correlation=setting.value), setting.gamma


def _labels(
    setting: ProtectionSetting, weights: Weights | None, cell: SettingScores
) -> dict[str, Any]:
    """Columns that say what a row is."""
    return {
        "setting": str(setting),
        "rule": setting.rule,
        "value": setting.value if np.isfinite(setting.value) else pd.NA,
        "threshold": weights.threshold
        if weights is not None and np.isfinite(weights.threshold)
        else pd.NA,
        "flagged": 0 if weights is None else weights.n_flagged,
        "gamma": cell.gamma,
        "protection": setting.protection,
        "effect": cell.effect,
        "passed": cell.passed,
        "sigma_sq": cell.sigma_sq,
        "tau_sq": cell.tau_sq,
    }


@dataclass(frozen=True, eq=False)
class _Task:
    """One setting to be judged: its key in the store, and what :func:`_judge` takes."""

    key: str
    arguments: tuple[Any, ...]


def _tasks(
    of: str,
    smoothed: dict[ProtectionSetting, Smoothed],
    judged: dict[str, Any],
    common: dict[str, Any],
    root: int,
) -> dict[ProtectionSetting, _Task]:
    """No protection first, then every setting. Settings that flag the same records share a key."""
    settled = {**judged, **common, "root": str(root), "of": of}
    settled |= {"priors": repr(common["priors"]), "covariance": str(common["covariance"])}
    shared = json.dumps(settled, sort_keys=True).encode()
    out = {}
    for setting in (ProtectionSetting("none"), *smoothed):
        own, gamma = smoothed.get(setting, (None, setting.gamma))
        mark = f"{gamma} {setting.protection} ".encode()
        mark += b"" if own is None else own.a.tobytes()
        key = hashlib.sha256(mark + shared).hexdigest()[:32]
        protection = {"weights": own, "gamma": gamma, "protection": setting.protection}
        out[setting] = _Task(key, (protection, judged, common, root, mark))
    return out


def _judge(
    free: Fit,
    protection: dict[str, Any],
    judged: dict[str, Any],
    common: dict[str, Any],
    root: int,
    mark: bytes,
) -> SettingScores:
    """Fit a setting, unless it protects nothing, and measure it."""
    fitted = free
    if protection["weights"] is not None:
        seed = seed_of(stream(root, FRONTIER, b"fit " + mark))
        fitted = fit(free.problem, start=free, seed=seed, **protection, **common)
    return measure(fitted, free, **judged, seed=seed_of(stream(root, FRONTIER, b"copies " + mark)))


def _run(
    tasks: dict[ProtectionSetting, _Task],
    store: Store,
    free: Fit,
    cluster: Any,
    progress: bool | None,
) -> tuple[dict[ProtectionSetting, SettingScores], dict[ProtectionSetting, str], int]:
    """Judge what the store lacks; a setting that fails costs itself alone."""
    found = {task.key: store.read(task.key) for task in tasks.values()}
    cells = {key: cell for key, cell in found.items() if cell is not None}
    missing = {task.key: task.arguments for task in tasks.values() if task.key not in cells}
    failures: dict[str, str] = {}
    with (
        progress_bar("compare", progress) as advance,
        # No worker starts where nothing is missing.
        connect(cluster if missing else ThisProcess()) as executor,
        executor.share(free) as shared,
        closing(executor.each(_judge, {k: (shared, *a) for k, a in missing.items()})) as judged,
    ):
        for done, (key, outcome) in enumerate(judged, 1):
            if isinstance(outcome, DsstanError):
                failures[key] = str(outcome)
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                cells[key] = outcome
                store.write(key, outcome)
            advance(done / len(missing))
    good = {s: cells[task.key] for s, task in tasks.items() if task.key in cells}
    bad = {s: failures[task.key] for s, task in tasks.items() if task.key in failures}
    return good, bad, len(missing) - len(failures)
