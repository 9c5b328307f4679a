"""The one screen that ``dsstan run`` and ``dsstan synthesise`` end with.

Its first five lines answer what a disclosure officer asks first: may it be published, and what
could somebody learn?
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dsstan.analysis.marginals import CONDITION, marginals
from dsstan.analysis.overlap import interval_overlap
from dsstan.analysis.utility import Utility
from dsstan.cli.screen_lines import LINES, WIDTH, ScreenLine, clipped, table_lines, wrapped
from dsstan.copies.options import SEARCH
from dsstan.copies.published import as_collected, columns_beside_the_model, unpublished_columns
from dsstan.copies.result import Synthesis
from dsstan.core.display import per_cent
from dsstan.models.checks.conditions import CONDITIONS
from dsstan.release.conditions import conditions
from dsstan.release.publication.ledger import ledger_folder
from dsstan.release.publication.ledger_note import ledger_line, read_note
from dsstan.release.report.content import findings
from dsstan.release.report.words import figure
from dsstan.release.verdicts import (
    FREE,
    GUESSES_IN_SHORT,
    KEEP_APART,
    NAMED,
    PlacingRow,
    answer,
    placing_rows,
    unmet,
    verdict_lines,
)
from dsstan.risk.assessment import Assessment
from dsstan.risk.disclosure import Disclosure
from dsstan.risk.placing import NEAR
from dsstan.table.column_roles import column_roles
from dsstan.table.weights_in_formula import weights_missed

COLOURS = {"ok": "green", "warning": "yellow", "failure": "red"}

WHO = "An intruder who knows all other records"
_PLACING = {
    "weakest": "places the weakest {group} record within",
    "near": f"best guesses within {100 * NEAR:g}%, {{group}} records",
    "public": "from the public files alone, {group}",
}


def release_screen(
    release: Synthesis,
    found: Assessment,
    estimates: Utility | None,
    *,
    accepted: str | None = None,
    searched: Sequence[str] = (),
    target: Path | None = None,
    page: Path | None = None,
) -> list[ScreenLine]:
    """What a release discloses, what it leaves to an analyst, and what to do next.

    Parameters
    ----------
    release, found, estimates
        The copies, their assessment, and the regression where there are two copies or more.
    accepted
        The reason why a missed floor is accepted.
    searched
        What a search for the floor came to, in sentences.
    target, page
        Where the release and its report are; None where they were not written.
    """
    lines = verdict_screen(release, found, accepted)
    lines += [ScreenLine(text) for text in placing_lines(found)]
    lines += wrapped(_naming_line(found))
    lines += wrapped(found.most_learnt_in_words())
    lines += wrapped("" if estimates is None else _utility_line(release, estimates))
    lines += [ScreenLine(text) for text in column_lines(release)]
    lines += wrapped(_rule(release))
    if found.risen.size:
        lines += wrapped(found.safer_and_less_safe(), "yellow")
    for sentence in searched or [_floor_line(found)]:
        lines += wrapped(sentence, None if found.verdict == "met" else "yellow")
    end = [ScreenLine(ledger_used(found, target))]
    end += [] if target is None else place_lines(release, found, target, page)
    return [*lines, *_filling(release, found, LINES - len(lines) - len(end)), *end]


def verdict_screen(
    release: Synthesis, found: Assessment, accepted: str | None = None
) -> list[ScreenLine]:
    """FIT, DISCLOSURE, and what follows from both."""
    verdicts = verdict_lines(release, found, accepted)
    lines = [part for v in verdicts for part in wrapped(str(v), COLOURS[v.severity])]
    said = answer(verdicts, _open_warnings(release, found), "the report")
    if accepted:
        said += f"; accepted: {accepted}"
    return [*lines, ScreenLine(clipped(said), "bold")]


def _open_warnings(release: Synthesis, found: Assessment) -> list[str]:
    """Warnings of the report that are in neither verdict."""
    return [one.title for one in findings(release, found) if one.severity == "warning"]


def step_screen(step: Synthesis, found: Assessment, estimates: Utility | None) -> list[ScreenLine]:
    """The same screen of one synthetic column among several, without verdicts and paths."""
    lines = [ScreenLine(text) for text in placing_lines(found)]
    texts = [*([] if estimates is None else [_utility_line(step, estimates)]), values_line(step)]
    texts.append(_rule(step))
    return lines + [part for text in [*texts, _shares_line(found.shares)] for part in wrapped(text)]


def placing_lines(found: Assessment) -> list[str]:
    """A table of how near to the truth intruders place records, the weaker group first."""
    rows = placing_rows(found)
    if not rows:
        return []
    stages = list(dict.fromkeys(stage for row in rows for stage in row.cells))
    known = found.after is not None
    table = [(WHO if known else "The public files alone", stages)]
    for row in sorted(rows, key=_weaker_first(found, rows)):
        label = _PLACING[row.measure if known else "near"].format(group=row.group)
        table.append((label, [row.cells.get(stage, "-") for stage in stages]))
    return table_lines([[label, *cells] for label, cells in table])


def _naming_line(found: Assessment) -> str:
    """The largest chance of naming a value exactly, where the column has a step."""
    if found.naming is None or not found.naming.coarse:
        return ""
    named = found.naming
    limit = "" if named.limit is None else f"; limit {per_cent(named.limit)}"
    return (
        f"The surest exact value: {per_cent(named.largest)} "
        f"({per_cent(float(named.surest_without.max()))} without a release{limit})"
    )


def _weaker_first(found: Assessment, rows: list[PlacingRow]) -> Callable[[PlacingRow], Any]:
    """The order of the table: measure by measure, and first the group with the weakest record."""
    placing = found.placing()
    last = placing[placing["stage"] == placing["stage"].iloc[-1]]
    groups = list(last.sort_values("within", kind="stable")["group"])
    measures = list(dict.fromkeys(row.measure for row in rows))
    return lambda row: (measures.index(row.measure), groups.index(row.group))


def _utility_line(release: Synthesis, estimates: Utility) -> str:
    """How far the copies' intervals of the regression overlap the original's; the worst term, or
    that the formula lacks the survey weights."""
    source = "restricted" if "restricted" in set(estimates.table["source"]) else "unrestricted"
    shares = {}
    for term in map(str, dict.fromkeys(estimates.table["term"])):
        ends = [estimates.get(side, term) for side in ("original", source)]
        both = [(float(row["low"]), float(row["high"])) for row in ends]
        shares[term] = float(interval_overlap(*both).truncated)
    worst = min(shares, key=shares.__getitem__)
    mean = per_cent(float(np.mean(list(shares.values()))))
    end = f"worst {per_cent(shares[worst])}, {worst}"
    what = "regression intervals" if estimates.weights is None else "weighted intervals"
    formula = weights_missed(release.problem)
    if formula is not None:
        end = f"the formula lacks {formula.removeprefix(f'{release.problem.formula} + ')}"
    return clipped(f"Utility: {what} overlap {mean}; {end}")


def values_line(release: Synthesis) -> str:
    """The middle 90% in the data and in the copies, the ends of the copies, and shares of zeros."""
    found = marginals(release)
    data, copies = found.summary().values()
    low, high, made_low, made_high = (
        figure(float(f"{m[name]:.2g}"), 2).replace("−", "-")
        for m in (data, copies)
        for name in ("q05", "q95")
    )
    least, most = (figure(copies[name]).replace("−", "-") for name in ("least", "most"))
    text = (
        f"{found.response}, middle 90%: data {low} to {high}, copies {made_low} to {made_high}; "
        f"all copies {least} to {most}"
    )
    zeros = f"; zeros {per_cent(data['zeros'])}, {per_cent(copies['zeros'])}"
    return text + (zeros if data["zeros"] + copies["zeros"] > 0 else "")


def column_lines(release: Synthesis, *, whole: bool = False) -> list[str]:
    """Which columns leave with the copies and which stay, or with ``whole`` all their names."""
    chosen = columns_beside_the_model(release)
    roles = {role.name: role.role for role in column_roles(release.problem)} if chosen else {}
    going = [
        f"{name} ({roles[name]}?)" if roles.get(name) in ("identifier", "code", "proxy") else name
        for name in as_collected(release)
    ]
    stay = [str(name) for name in unpublished_columns(release)]
    lists = [("Published as collected: ", going, "")]
    lists += [("Not published: ", stay, "; publish = [...] names more")] if stay else []
    one = release.problem.households
    lists += (
        [] if one is None else [("Records: ", [f"one for each {one.of}, from {one.rows} rows"], "")]
    )
    return [
        before
        + (", ".join(names) if whole else _listed(names, WIDTH - len(before + after)))
        + after
        for before, names, after in lists
    ]


def _listed(names: Sequence[str], most: int | None) -> str:
    """Names in so many characters; where there are more of them, how many."""
    listed = ", ".join(names)
    if most is None or len(listed) <= most:
        return listed
    more = f", ... ({len(names)} columns)"
    return listed[: most - len(more) + 2].rpartition(", ")[0] + more


def _rule(release: Synthesis) -> str:
    """How many records are flagged by which rule, how they are protected, and the copies."""
    fit, weights = release.fit, release.fit.weights
    if weights is None:
        how = release.protection if release.protected else "no protection"
        return f"Flagged: nobody; {how}, {release.copies} copies"
    rule = "as the floor needs" if weights.rule == "target" else "by weights of your own"
    if weights.column is not None:
        rule = f"by the weights of column {weights.column!r}"
    if np.isfinite(weights.threshold):
        which = neighbour_in_words(weights.neighbour, by_site=weights.by_site)
        M = weights.threshold
        rule = f"no {which} within {M:.4g} {release.problem.unit}{'s' * (M != 1)}"
    flagged = f"{int(fit.flagged.sum())} of {release.problem.n_records}"
    return f"Flagged: {flagged} ({rule}); {release.protection}, {release.copies} copies"


def neighbour_in_words(number: int, *, by_site: bool) -> str:
    """The neighbour that a rule looks at."""
    which = "neighbour" if number == 1 else f"neighbour no. {number}"
    return f"{which} at another place" if by_site else which


def _floor_line(found: Assessment) -> str:
    """What would meet a floor that is missed, or have the release judged; else nothing."""
    former = None if found.after is None else found.after.former
    if found.laid_bare:
        return f"Whoever has both releases has those true values: {KEEP_APART}"
    if found.verdict == "not judged" and former is not None and former.alike:
        return (
            "If they are the same records, what all of these releases tell together is not known: "
            "publish one of them and no other"
        )
    if found.after is not None and found.asked is None:
        return 'To have it judged: floor = "10%" in the job file (--floor 10%)'
    if found.verdict != "missed":
        return ""
    if found.hopeless:
        return f"No release meets the floor: {found.hopeless} records miss it without any copy"
    search = f'protection = "{SEARCH}", which searches'
    if found.searched:
        search = "a lower floor"
    if found.named_too_surely.size:
        return f"To meet it: fewer copies, more flagged, or {search}"
    most = found.largest_release
    if not most:
        return f"By the lower bounds fewer copies do not meet the floor; try {search}"
    return f"To meet the floor: {most} copies, perhaps more; or {search}"


def _filling(release: Synthesis, found: Assessment, room: int) -> list[ScreenLine]:
    """What fits into so many lines: the conditions not met and what they mean, notes of the fits,
    the response's values, what protection did, the paper's share.

    Conditions that the first line only counts are named in any case, and values that are not those
    of the data stand first.
    """
    names = unmet(release)
    values = wrapped(values_line(release))
    first = values[: max(room, 0)] if CONDITION in names else []
    room -= len(first)
    lines = [part for name in names for part in wrapped(_meaning(release, name), "yellow")]
    if len(lines) > room:
        lines = []
        if len(names) > NAMED:
            lines = wrapped(f"Conditions not met: {', '.join(names)}", "yellow")
    lines += _notes(release, room - len(lines))
    effect = "" if found.risen.size else found.safer_and_less_safe()
    guesses = wrapped(GUESSES_IN_SHORT if found.verdict == "met" else "")
    texts = found.sd_in_words, effect, _shares_line(found.shares)
    for more in (guesses, [] if first else values, *map(wrapped, texts)):
        if len(more) + len(lines) <= room:
            lines = [*more, *lines]
    return [*first, *lines]


def _notes(release: Synthesis, room: int) -> list[ScreenLine]:
    """Notes of the fits in so many lines: whole, their last sentences (what to do), or counted."""
    whole = list(dict.fromkeys(note for fit in release.fits.values() for note in fit.notes))
    last = list(dict.fromkeys(note.rpartition(". ")[2] for note in whole))
    for notes in (whole, last):
        lines = [part for note in notes for part in wrapped(f"Note: {note}", "yellow")]
        if len(lines) <= room:
            return lines
    return wrapped(f"Notes of the fits: {len(whole)}, see the report", "yellow") if room > 0 else []


def _meaning(release: Synthesis, name: str) -> str:
    """What a condition that is not met means, and what to do."""
    advice = next(str(c["advice"]) for c in conditions(release) if c["condition"] == name)
    return f"{name}: {CONDITIONS.get(name, 'not met')}. To do: {advice}"


def _shares_line(risks: Disclosure) -> str:
    """The paper's share of single copies near the truth, before and after protection."""
    fits = [name for name in ("unrestricted", "restricted") if name in set(risks.summary["fit"])]
    shares = []
    for group in ("flagged", "unflagged"):
        found = [risks.share("within_relative", name, group) for name in fits]
        percents = [f"{100 * share:.1f}%" for share in found if share is not None]
        if percents:
            shares.append(f"{group} {', now '.join(percents)}")
    near = f"{100 * risks.relative:g}%"
    return f"Single copies within {near}: {'; '.join(shares)}"


def ledger_used(found: Assessment, target: Path | None) -> str:
    """Which ledger was looked into, and how many former releases of the table it had.

    Of a written release by its own note, of another by its assessment.
    """
    former = None if found.after is None else found.after.former
    uncounted = 0 if former is None else former.alike
    sure = bool(found.laid_bare)
    if target is None:
        count = 0 if former is None else former.releases + former.unjudged
        return ledger_line(ledger_folder(), count, uncounted, sure=sure)
    note = read_note(target / "confidential")
    if note is None:
        return "Ledger: none, so no former release of this table was counted"
    counted = max(len(entry.counted) for entry in note.entries) - uncounted
    return ledger_line(note.folder, counted, uncounted, sure=sure)


def place_lines(
    release: Synthesis, found: Assessment, target: Path, page: Path | None
) -> list[ScreenLine]:
    """The step to publish, and what to read before it."""
    fine = answer(verdict_lines(release, found)) == FREE
    reason = "" if fine else ' --accept "REASON"'
    read = f"Read first, keep to yourself: {_short(page)}" if page else ""
    return [
        ScreenLine(f"To publish: dsstan publish {shlex.quote(_short(target))} --to DIR{reason}"),
        ScreenLine(read or f"Keep to yourself: {_short(target / 'confidential')}"),
    ]


def _short(path: Path) -> str:
    """A path as it may be typed from the current folder."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
