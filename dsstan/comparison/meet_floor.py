"""The least damaging release that leaves every record a floor.

Copies, flagged set, protection and added noise are searched together: plans by the unrestricted
fit, in the order of what they cost the analyst; then each plan's own fit, its noise again at the
very draws that are released, the copies, and the verdict of :func:`dsstan.assess` on them. The
first that keeps the floor is the answer.

The search looks at the confidential table, as every choice does that is made after looking: that
is not counted in an intruder's sd. No set of copies is drawn again because it missed the floor;
the setting steps on, with more noise or to the next plan.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Unpack

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from dsstan.comparison.copy_laws import Cost
from dsstan.comparison.floor_aims import Floors
from dsstan.comparison.floor_plans import copies_to_try, planned_settings
from dsstan.comparison.floor_search import Search, row_of, seed_for
from dsstan.copies.result import Synthesis
from dsstan.copies.synthesis import synthesise
from dsstan.core.arrays import Floats, Truths
from dsstan.core.errors import ConvergenceError, DisclosureError, InputError, check_count
from dsstan.core.progress import progress_bar
from dsstan.core.seeds import root_seed, seed_bits
from dsstan.covariance.latent import require_all_pairs
from dsstan.covariance.protection import PROTECTIONS, check_protection
from dsstan.models.arguments import settings_of
from dsstan.models.fit import fit
from dsstan.models.flagging.flags import flag_isolated
from dsstan.models.request import FitKeywords
from dsstan.models.result import Fit
from dsstan.risk.assessment_result import Assessment
from dsstan.risk.chance_named import least_sd_unnamed
from dsstan.risk.floors import Floor, FloorLike
from dsstan.risk.intruder.former import ledger_precision
from dsstan.risk.intruder.leave_one_out import leave_one_out
from dsstan.risk.intruder.proxies import proxies_of
from dsstan.risk.naming import ATTRIBUTION
from dsstan.table.order_leaks import check_order
from dsstan.table.problem import Problem, require_complete

__all__ = ["MetFloor", "protect_to"]


FEWEST_COPIES = 2
"""Fewer copies cannot be combined."""


@dataclass(frozen=True, eq=False)
class MetFloor:
    """A release, whether it keeps the floor, and what was tried on the way. Confidential.

    Attributes
    ----------
    release, assessment
        The copies, and :func:`dsstan.assess` on them.
    floor
        What was asked for.
    met
        Whether every record keeps it.
    setting
        Protection, number of flagged, copies and noise, in words.
    cost
        What the release costs the analyst.
    trail
        One row a setting: ``setting``, ``protection``, ``flagged``, ``copies``, ``noise`` (root
        mean square of its sds), ``noisy`` (records with noise), ``weakest`` (the smallest sd over
        its floor, of the records that can reach it), ``met``, ``regression`` and ``copy`` (see
        :class:`dsstan.comparison.copy_laws.Cost`), ``cost`` (their sum), ``stage`` (planned, fitted
        or released) and ``reason``.
    hopeless
        Records that are below the floor without any copy, shape (N,).
    seconds
        Wall time.
    """

    release: Synthesis = field(repr=False)
    assessment: Assessment = field(repr=False)
    floor: Floor
    met: bool
    setting: str
    cost: Cost
    trail: pd.DataFrame = field(repr=False)
    hopeless: Truths = field(repr=False)
    seconds: float

    def __str__(self) -> str:
        return "\n".join(self.sentences)

    @property
    def sentences(self) -> tuple[str, ...]:
        """What the search came to. They name no record."""
        word = "met" if self.met else "missed; the closest that was found"
        if not self.met and self.assessment.verdict == "not judged":
            word = "kept by this release alone, and not judged"
        return (
            f"Floor {self.floor} {word}: {self.setting}",
            f"Cost to the analyst: {self.cost}",
            *self.reasons,
        )

    @property
    def reasons(self) -> list[str]:
        """Why the floor was missed. They name no record."""
        if self.met or self.assessment.verdict == "not judged":
            return []
        below, hopeless = self.assessment.below_floor, int(self.hopeless.sum())
        others = int(np.sum(~self.hopeless[below]))
        found = []
        if hopeless:
            former = self.assessment.after and self.assessment.after.former
            and_former = " and from what was published before" if former else ""
            are = "record is" if hopeless == 1 else "records are"
            found.append(
                f"{hopeless} {are} known better than that without any copy, from the others"
                f"{and_former}: no release helps. Lower the floor, or leave a column or records out"
            )
        if others:
            found.append(
                f"{others} other records miss it: no setting that was tried leaves it to all. "
                "Fewer copies, every protection and noise, if they were not tried, or a lower "
                "floor help"
            )
        named = int(self.assessment.named_too_surely.size)
        if named:
            found.append(
                f"{named} values are named exactly with too large a chance, as the column has a "
                "step: a higher floor, or a finer column, helps"
            )
        failed = self.trail["reason"].str.startswith("fit failed")
        if failed.any():
            found.append(f"the fits of {int(failed.sum())} settings failed their verdict")
        return found


def protect_to(
    problem: Problem,
    floor: FloorLike,
    *,
    copies: int = 20,
    least_copies: int = FEWEST_COPIES,
    distance: float | None = None,
    neighbour: int = 1,
    protections: Sequence[str] = PROTECTIONS,
    noise: bool = True,
    start: Fit | None = None,
    rounding: str = "auto",
    absolute: float | None = None,
    attribution: float | None = None,
    strict: bool = False,
    seed: int | None = None,
    progress: bool | None = None,
    **fitting: Unpack[FitKeywords],
) -> MetFloor:
    """Search for the release that leaves every record a floor at the least cost to the analyst.

    Parameters
    ----------
    problem
        The prepared table.
    floor
        What an intruder must be left with: ``"10%"``, or a least sd; see :func:`dsstan.assess`.
    copies, least_copies
        Most and fewest copies to release.
    distance, neighbour
        M: records whose k-th nearest neighbour is no nearer are flagged in any case. Others are
        flagged by need.
    protections
        Those that may be used.
    noise
        Whether noise may be added to the copies.
    start
        The unrestricted fit; by default fitted here.
    rounding, strict
        See :func:`dsstan.synthesise`.
    absolute, attribution
        See :func:`dsstan.assess`.
    seed
        Root seed.
    fitting
        What else :func:`dsstan.fit` takes; by default that of ``start``.

    Returns
    -------
    MetFloor
        The release that meets it, or the closest that was found and why.

    Raises
    ------
    InputError
        If an argument is out of range, or the covariance is approximated.
    ConvergenceError
        If the unrestricted fit failed its verdict.
    DisclosureError
        If no setting could be fitted and released.
    """
    begin = time.perf_counter()
    asked = Floor.parse(floor)
    asked.check_scale(problem.transform)
    _check(problem, copies, least_copies, protections, start)
    root = root_seed(seed)
    settings = {**({} if start is None else settings_of(start)), **fitting, "progress": progress}
    free = start or fit(problem, seed=seed_for(root, "unrestricted"), **settings)
    require_all_pairs("protect_to", free)
    if not free.verdict.passed:
        raise ConvergenceError(f"the unrestricted fit did not pass: {free.verdict}")
    stated = None
    if distance is not None:
        stated = flag_isolated(free, distance=distance, neighbour=neighbour)
    base = np.zeros(problem.n_records, dtype=bool) if stated is None else stated.flagged
    with (
        threadpool_limits(limits=1, user_api="blas"),
        progress_bar("plans", progress) as advance,
    ):
        limit = ATTRIBUTION if attribution is None else attribution
        least = np.maximum(asked.least_sd(problem), least_sd_unnamed(problem, limit))
        floors = Floors.of(least, _known_without_copies(free, root))
        counts = copies_to_try(int(copies), int(least_copies))
        plans = planned_settings(free, floors, base, protections, counts, noise)
        ahead = next(plans)
        advance(1.0)
    search = Search(
        free=free,
        floors=floors,
        noise=noise,
        root=root,
        stated=stated,
        settings=settings,
        drawing={"rounding": rounding, "strict": strict, "progress": progress},
        judging={"floor": asked, "absolute": absolute, "attribution": attribution},
    )
    search.run(chain([ahead], plans))
    if search.best is None:
        raise DisclosureError(
            f"no setting could be released: {search.rows[-1]['reason']}. Give longer chains, or "
            "another formula"
        )
    release, assessment, plan = search.best
    tried = {row["setting"] for row in search.rows}
    rows = search.rows + [row_of(p, "planned") for p in search.planned if str(p) not in tried]
    return MetFloor(
        release=replace(release, seed_bits=seed_bits(seed)),
        assessment=assessment,
        floor=asked,
        met=assessment.verdict == "met",
        setting=str(plan),
        cost=plan.cost,
        trail=pd.DataFrame(rows),
        hopeless=floors.hopeless,
        seconds=time.perf_counter() - begin,
    )


def _known_without_copies(free: Fit, root: int) -> Floats:
    """sd of each record for an intruder who has the others, the published columns and the former
    releases of the table, shape (N,)."""
    columns = synthesise(  # never published: it says which columns would be
        free,
        FEWEST_COPIES,
        seed=seed_for(root, "columns"),
        rounding="none",
        accept_few_draws=True,
        progress=False,
    )
    precision = 1.0 / (leave_one_out(free).sd ** 2 * proxies_of(columns, free).factor)
    former = ledger_precision(free.problem)
    with np.errstate(divide="ignore"):
        return np.asarray((precision + (0.0 if former is None else former)) ** -0.5)


def _check(
    problem: Problem, copies: int, least: int, protections: Sequence[str], start: Fit | None
) -> None:
    """Refuse what would fail only after the first fit."""
    require_complete(problem)
    check_order(problem)
    check_count("copies", copies)
    check_count("least_copies", least)
    if not FEWEST_COPIES <= least <= copies:
        raise InputError("least_copies must be from 2 on, and at most copies")
    if isinstance(protections, str) or not len(protections):
        raise InputError("protections must be a sequence with at least one entry")
    for name in protections:
        check_protection(name)
    if start is not None and (start.problem is not problem or start.kind != "unrestricted"):
        raise InputError("start must be the unrestricted fit of this problem")
