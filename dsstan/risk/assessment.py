"""The whole disclosure report: shares near the truth, and what an intruder could work out.

The paper's shares (section 4 of Quick, Holan and Wikle 2018) look at one copy at a
time. Beside them stands the intruder who knows every other record and sees all the
copies (:mod:`dsstan.risk.intruder.attacker`), before protection and after it, for every record:
protecting one can expose another.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from dsstan.copies.published import columns_beside_the_model
from dsstan.copies.result import Synthesis
from dsstan.core.arrays import Floats, Indices
from dsstan.core.errors import InputError
from dsstan.covariance.eigenbasis import alone
from dsstan.models.result import Fit
from dsstan.risk.assessed_numbers import narrowest, reported
from dsstan.risk.assessment_result import Assessment
from dsstan.risk.chance_named import check_attribution, least_sd_unnamed
from dsstan.risk.disclosure import RELATIVE, disclosure, sides
from dsstan.risk.floors import Floor, FloorLike, as_floor
from dsstan.risk.intruder.attacker import Attack, attack
from dsstan.risk.intruder.exact import WORST, ExactIntruder, exact_intruder
from dsstan.risk.intruder.former import Former, published_before
from dsstan.risk.intruder.proxies import exact_with_proxies, proxies_of, with_proxies
from dsstan.risk.intruder.public_files import public_files
from dsstan.risk.intruder.variance_grid import MOST_RECORDS, integrable
from dsstan.risk.naming import ATTRIBUTION, naming
from dsstan.table.column_roles import possible_codes
from dsstan.table.problem import Problem

__all__ = ["Assessment", "assess", "measured", "unassessed", "why_no_intruder"]


MOST_EXACT = 60
"""Most of 600 records that are integrated exactly without being asked, and most without
protection."""

FEW = 5
"""Records of each group that are integrated next while the weakest is known by its bound alone;
twice as many each time."""

OF_MISSING = "no intruder is computed where values are missing"
"""Why a release with missing values has no intruder."""

OF_A_HEAP = "no intruder is computed of a model with a heap or a range"
"""Why a two-part model has no intruder."""

OF_A_CHAIN = (
    "no intruder is computed for several synthetic columns, as its formulas take one, and the "
    "copies of each tell of the others"
)
"""Why a chain has no intruder."""


def assess(
    release: Synthesis,
    *,
    against: Fit | Synthesis | None = None,
    relative: float = RELATIVE,
    absolute: float | None = None,
    floor: FloorLike | None = None,
    attribution: float | None = None,
    draws: int | None = None,
    exact: int | None = None,
    former: Former | bool = True,
    progress: bool | None = None,
) -> Assessment:
    """The disclosure report of a release.

    The same question of the same copies is answered once: the release keeps the answer, as long as
    nothing of the table was published in between.

    Parameters
    ----------
    release
        The copies.
    against
        The unrestricted fit, or copies drawn from it, to compare with; by default the
        fit that the release's started from.
    relative, absolute
        Tolerances of the shares; see :func:`dsstan.disclosure`.
    floor
        What an intruder must be left with about every record: ``"10%"`` if nobody's value may be
        placed within +/-10% with a probability of 95%, or a least sd on the modelled scale, such
        as 0.05.
    attribution
        Largest chance with which an intruder who knows all other records may name a value
        exactly, where the response's column has a step (:mod:`dsstan.risk.naming`). With a floor
        it is 0.5 by default; 1 allows any.
    draws
        Posterior draws behind the attacker's sds, spread evenly over the chains; see
        :func:`dsstan.risk.intruder.attacker.attack`.
    exact
        For how many of the weakest records, with a few of each group, the exact posterior is
        computed (:func:`dsstan.risk.intruder.exact.exact_intruder`); 0 for none. By default 10 of
        up to 600 records under the exact covariance, then more until the weakest of each group is
        one of them or, with a floor, until the verdict hangs on none that is below it by the lower
        bound alone: up to as many as take as long as 60 of 600, all of 278. Else none.
    former
        Other releases of the table, which count too; by default those that the ledger says were
        published (:mod:`dsstan.release.publication.ledger`), none for False.

    Raises
    ------
    InputError
        If the floor is neither an sd nor a percentage, attribution no probability, or there is
        no unrestricted fit to compare with.
    """
    asked = as_floor(floor)
    check_attribution(attribution)
    counted = published_before(release.problem, release.values, former)
    settings = repr((relative, absolute, attribution, draws, exact))
    question = (against, asked, settings, _stated(counted))
    if question not in release.assessed:
        release.assessed[question] = _assess(
            release,
            against,
            relative,
            absolute,
            asked,
            attribution,
            draws,
            exact,
            counted,
            progress,
        )
    found: Assessment = release.assessed[question]
    return found


def most_integrated(records: int) -> int:
    """Most of so many records that are integrated exactly without being asked."""
    return int(MOST_EXACT * (MOST_RECORDS / records) ** 2)


def _stated(former: Former | None) -> tuple[object, ...] | None:
    """What former releases say, as something that can be compared."""
    if former is None:
        return None
    precision = former.fixed.tobytes(), former.known.tobytes()
    counts = former.releases, former.copies, former.unjudged, former.alike
    return *precision, *counts, former.laid_bare


def _assess(
    release: Synthesis,
    against: Fit | Synthesis | None,
    relative: float,
    absolute: float | None,
    asked: Floor | None,
    attribution: float | None,
    draws: int | None,
    exact: int | None,
    counted: Former | None,
    progress: bool | None,
) -> Assessment:
    """Answer one question of :func:`assess`."""
    begin = time.perf_counter()
    other = sides(release, against).get("unrestricted")
    bare = None if other is release else other  # drawn once, for the shares and the attack
    shares = disclosure(release, against=bare, relative=relative, absolute=absolute)
    free = None if bare is None else bare.fit
    known = counted or False
    bounds = attack(release, against=free, draws=draws, former=known, progress=progress)
    proxies = proxies_of(release, free or release.fits["unrestricted"])
    after = with_proxies(bounds, proxies)
    found, least = None, None if asked is None else asked.least_sd(release.problem)
    limit = ATTRIBUTION if attribution is None and asked is not None else attribution
    undecided = np.array([], dtype=np.intp)
    stated = exact is not None
    if exact is None:
        able = integrable(release.fit) and not release.fit.smoothing_moves
        exact = WORST if able else 0
        if able and least is not None and limit is not None:
            undecided = _undecided(release, after, least, limit)
    before, found_before = None, None
    if bare is not None:
        bare_attack = attack(bare, draws=draws, former=known, progress=False)
        before = replace(with_proxies(bare_attack, proxies), flagged=release.fit.flagged)
    if exact:
        most = most_integrated(release.problem.n_records)
        weakest = _weakest(release, after, before, exact)
        rows = np.union1d(weakest, undecided[:most]).tolist()
        found = exact_intruder(
            release, records=rows, against=free, bounds=bounds, progress=progress
        )
        found = exact_with_proxies(found, after, proxies)
        few = FEW
        while not stated and len(found.records) < most:
            rest = _weaker(release, after, found, few)
            if not rest.size:
                break
            few *= 2
            more = exact_intruder(
                release, records=rest.tolist(), against=free, bounds=bounds, progress=False
            )
            found = found.with_more(exact_with_proxies(more, after, proxies))
        if bare is not None and before is not None:  # some of the same records
            done = found.records["position"].to_numpy()
            some = np.setdiff1d(done, np.setdiff1d(undecided[MOST_EXACT:], weakest)).tolist()
            found_before = exact_intruder(bare, records=some, bounds=bare_attack, progress=False)
            found_before = exact_with_proxies(found_before, before, proxies)
    whole = Assessment(
        release,
        shares,
        after,
        before,
        absence=None,
        asked=asked,
        least_sd=least,
        exact=found,
        exact_before=found_before,
        public=public_files(release),
        public_before=None if bare is None else public_files(bare, flagged=release.fit.flagged),
        proxies=proxies,
        codes=possible_codes(release.problem, columns_beside_the_model(release)),
        seconds=0.0,
    )
    sd = whole.sd / (1.0 + (after.left_out or 0.0))
    peak = narrowest(sd, found)
    named = naming(release, sd, after.leave_one_out, narrowest=peak, limit=limit)
    return replace(whole, naming=named, seconds=time.perf_counter() - begin)


LEARNT = 3
"""Records of which most is learnt by the lower bound, that are integrated."""


def _weakest(release: Synthesis, after: Attack, before: Attack | None, exact: int) -> list[int]:
    """Positions of the records with the least sd by the lower bound, so many of all, and a few
    of each group with and without protection; and of those of which most is learnt."""
    own = alone(release.problem.X)
    flagged, few = release.fit.flagged, min(exact, WORST) // 2
    learnt = after.sd(variances="known") / after.leave_one_out
    learnt[own] = np.inf
    chosen = [np.argsort(learnt, kind="stable")[: min(exact, LEARNT)]]
    for found in (after, before):
        if found is None:
            continue
        order = np.argsort(found.sd(release.copies, variances="known"), kind="stable")
        order = order[~own[order]]
        groups = [order[flagged[order]][:few], order[~flagged[order]][:few]]
        chosen += [order[:exact], *groups] if found is after else groups
    return [int(i) for i in np.unique(np.concatenate(chosen))]


def _weaker(release: Synthesis, after: Attack, found: ExactIntruder, few: int) -> Indices:
    """Positions whose lower bound is below every exact sd of their group, a few at most of each.

    Without them the weakest record that is reported would be weak by its bound alone.
    """
    sd = reported(after, found, "known")
    done = found.records["position"].to_numpy()
    own, rest = alone(release.problem.X), []
    for group in (release.fit.flagged, ~release.fit.flagged):
        exact = done[group[done]]
        least = sd[exact].min() if exact.size else np.inf
        open_ = np.flatnonzero(group & ~own & (sd < least))
        open_ = open_[~np.isin(open_, done)]
        rest.append(open_[np.argsort(sd[open_], kind="stable")[:few]])
    return np.concatenate(rest)


def _undecided(release: Synthesis, after: Attack, least: Floats, limit: float) -> Indices:
    """Positions of the records that the verdict on a floor hangs on, the shortest of it first.

    They are below what they need by the lower bound alone; none where the verdict is clear.
    """
    needed = np.maximum(least, least_sd_unnamed(release.problem, limit))
    if np.any(after.sd() < needed):
        return np.array([], dtype=np.intp)
    ratio = after.sd(variances="known") / needed
    ratio[alone(release.problem.X)] = np.inf
    order = np.argsort(ratio, kind="stable")
    return order[ratio[order] < 1.0]


def measured(
    release: Synthesis,
    *,
    absolute: float | None = None,
    floor: FloorLike | None = None,
    attribution: float | None = None,
    progress: bool | None = None,
) -> Assessment:
    """The assessment of a release, without an intruder where none can be computed.

    Raises
    ------
    InputError
        If there is a floor, and no intruder to compare it with.
    """
    absence = why_no_intruder(release)
    if absence is None:
        return assess(
            release, absolute=absolute, floor=floor, attribution=attribution, progress=progress
        )
    if as_floor(floor) is not None:
        raise _no_floor(absence)
    return unassessed(release, absence, absolute=absolute)


def check_judgeable(problem: Problem, floor: FloorLike | None, *, heaped: bool = False) -> None:
    """Refuse before sampling a floor that no release of a problem could be compared with.

    ``heaped`` says that its model has a heap or a range. Raises InputError.
    """
    if heaped and as_floor(floor) is not None:
        raise _no_floor(OF_A_HEAP)
    if problem.n_missing and as_floor(floor) is not None:
        raise _no_floor(OF_MISSING)


def _no_floor(absence: str) -> InputError:
    return InputError(
        f"a floor is compared with an intruder's sd, and {absence}: leave the floor out; the "
        "release is then NOT JUDGED"
    )


def unassessed(
    release: Synthesis, absence: str = OF_A_CHAIN, *, absolute: float | None = None
) -> Assessment:
    """The assessment of a release without an intruder, for the reason given.

    A step of a chain is one: what its own copies give, the columns of the other steps add to.
    """
    begin = time.perf_counter()
    shares = disclosure(release, absolute=absolute)
    public = public_files(release)
    seconds = time.perf_counter() - begin
    return Assessment(release, shares, None, None, absence, None, None, seconds, public=public)


def why_no_intruder(release: Synthesis) -> str | None:
    """Why the intruder's closed forms do not hold for a release; None where they do."""
    if len(release.steps) > 1:
        return OF_A_CHAIN
    for fit in release.fits.values():
        if fit.outcome != "Gaussian":
            return f"no intruder is computed for this model ({fit.outcome})"
        if not fit.covariance.has_attacker:
            return "no intruder is computed under the predictive process"
    if release.problem.n_missing:
        return OF_MISSING
    if release.fit.kind != "unrestricted" and release.fit.start is None:
        return "no intruder is computed without an unrestricted fit"
    return None
