"""What the report says in words: verdict, warnings with what to do, settings, provenance."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from dsstan.copies.published import as_collected, unpublished_columns
from dsstan.covariance.pairs import effect_words
from dsstan.release.conditions import conditions
from dsstan.release.report.tables import meaning, sampler
from dsstan.release.report.words import NOTHING, figure, plural
from dsstan.release.settings import settings
from dsstan.release.verdicts import KEEP_APART
from dsstan.risk.assessment import Assessment
from dsstan.risk.placing import placed_within
from dsstan.table.column_roles import column_roles
from dsstan.table.weights_in_formula import weights_missed

if TYPE_CHECKING:
    from dsstan.copies.result import Synthesis
    from dsstan.models.result import Fit


SMALL_FLOOR = 0.01
"""A floor below this share of the value protects next to nothing."""


@dataclass(frozen=True)
class ReportItem:
    """Something the steward should know.

    Attributes
    ----------
    severity
        ``"failure"``, ``"warning"`` or ``"note"``.
    title, text, todo
        What it is, what was measured, and what to do; the last may be empty.
    """

    severity: str
    title: str
    text: str
    todo: str = ""


def findings(release: Synthesis, risks: Assessment) -> list[ReportItem]:
    """Conditions not met, what the assessment found, notes of the fits; the worst first."""
    found = condition_items(conditions(release))
    found += _accepted(release)
    found += _of_risks(release, risks)
    found += notes_of(release.fits.values())
    order = {"failure": 0, "warning": 1, "note": 2}
    return sorted(found, key=lambda f: order[f.severity])


def condition_items(unmet: Sequence[Mapping[str, Any]]) -> list[ReportItem]:
    """Conditions that are not met, as :func:`dsstan.release.conditions.entries_of` has them."""
    return [
        ReportItem(
            c["severity"],
            f"{c['condition']} ({c['fit']} fit)" if c["condition"] else f"{c['fit']} fit",
            f"{_sentence(meaning(c['condition']))}Measured: {c['name']}"
            + (f" of {c['where']}" if c["where"] else "")
            + f" {figure(c['value'])}; should be {c['limit']}.",
            _sentence(c["advice"]).strip(),
        )
        for c in unmet
    ]


def notes_of(fits: Iterable[Fit]) -> list[ReportItem]:
    """What fits say of themselves, each sentence once."""
    reported: set[str] = set()
    found = []
    for fit in fits:
        fresh = [note for note in fit.notes if note not in reported]
        found += [ReportItem("note", f"{fit.kind.capitalize()} fit", _sentence(n)) for n in fresh]
        reported |= set(fresh)
    return found


def _accepted(release: Synthesis) -> Iterator[ReportItem]:
    """What the caller let pass, and releases that are special."""
    failed = {c["condition"] for c in conditions(release) if c["severity"] == "failure"}
    few = "copies-beyond-ess"
    let = ["a fit that failed its verdict"] if release.accepted[0] and failed - {few} else []
    let += ["more copies than independent draws"] if release.accepted[1] and few in failed else []
    if let:
        yield ReportItem(
            "warning",
            "Accepted by the caller",
            f"The copies were drawn from {' and '.join(let)}, by request.",
            "Make sure that somebody answers for it, or run again without it.",
        )
    for step in release.steps:
        missed = weights_missed(step.problem)
        if missed is not None:
            yield ReportItem(
                "warning",
                "Survey weights outside the formula",
                f"The formula {step.problem.formula} does not use the survey weights "
                f"{step.problem.survey_weights}, so copies lose what ties {step.problem.response} "
                "to them beyond the formula, and weighted estimates may be biased.",
                f"Make the release again with the formula {missed}.",
            )
    if not release.protected:
        yield ReportItem(
            "warning",
            "Nobody is protected",
            "No record is flagged and no noise added: the copies tell all that the model knows.",
            "Nothing is needed where the floor is the right one and is met. Else flag isolated "
            'records by a shorter distance, or have protection found (protection = "auto").',
        )
    if release.copies == 1:
        yield ReportItem(
            "note",
            "One copy",
            "One copy does not show the variance between copies, so no estimates are combined.",
            "Publish two copies or more if analysts need intervals.",
        )
    if release.moved_share > 0:
        yield ReportItem(
            "note",
            "Values moved",
            f"{100 * release.moved_share:.2g}% of the synthetic values could not be held by "
            "the column and were moved to the end of its range.",
            "Look at the distribution of a copy at its ends.",
        )


def _of_risks(release: Synthesis, risks: Assessment) -> Iterator[ReportItem]:
    """What the intruder gains."""
    if risks.after is None:
        yield ReportItem(
            "warning",
            "No intruder assessed",
            _sentence(str(risks.absence))
            + "What is known is what the public files alone give, and the shares of single "
            "copies near the truth.",
            "Judge the release by these, and by the copies of the records that stand out.",
        )
        return
    if risks.asked is None:
        yield ReportItem(
            "warning",
            "No floor",
            "No floor was asked for, so the disclosure of this release was not judged.",
            'Choose one, such as floor = "10%" in the job (--floor 10%), before you look at '
            "the numbers, and make the release again.",
        )
    elif risks.floor_share is not None and risks.floor_share < SMALL_FLOOR:
        yield ReportItem(
            "warning",
            "A floor of next to nothing",
            f"The floor of {risks.asked} allows an intruder to place a value within "
            f"{placed_within(risks.floor_share)}.",
            'Ask for more, such as floor = "10%" (--floor 10%).',
        )
    for said in risks.laid_bare:
        yield ReportItem(
            "failure",
            "True values go out",
            f"{_sentence(said)}Whoever has both releases has those values, which no number here "
            "counts.",
            _sentence(KEEP_APART).strip(),
        )
    if risks.rose_most is not None:
        yield ReportItem(
            "warning",
            "Protection raised a risk",
            risks.remarks()[0] + " (variances known to the intruder).",
            "Give that record a weight, try the protection preserving or cut, or publish "
            "fewer copies; dsstan compare shows what each gives.",
        )
    for remark in risks.floor_remarks()[:1] if risks.below_floor.size else []:
        most = risks.largest_release
        yield ReportItem(
            "warning",
            "Records below the floor",
            remark + ".",
            f"Publish at most {plural(most, 'copy', 'copies')}, which keep it by the lower bounds "
            "(more may)."
            if most
            else "No number of copies meets it for all: smooth further "
            "(dsstan.risk.targets.solve_targets), take those records out, or lower the floor.",
        )
    if risks.proxies is not None and risks.proxies.used:
        known = {*risks.release.problem.design.formula.columns}
        inside = [name for name in risks.proxies.used if name in known]
        todo = []
        if len(inside) < len(risks.proxies.used):
            todo.append("Drop those that the formula lacks from the table, or bring them into it.")
        if inside:
            todo.append(
                f"The formula has {', '.join(inside)}, and not in the form that tells most: try a "
                "curve, such as bs(), of numbers, and pool levels that have few records."
            )
        yield ReportItem(
            "warning", "Columns that predict the response", f"{risks.proxies}.", " ".join(todo)
        )
    if risks.naming is not None and risks.naming.coarse:
        beyond = risks.naming.above_limit.size
        yield ReportItem(
            "warning" if beyond else "note",
            "Values that can be named exactly",
            ". ".join([str(risks.naming), *risks.naming.remarks()]) + ".",
            "Publish fewer copies, smooth further, or allow it with --attribution."
            if beyond
            else "Nothing, if such chances are small enough.",
        )


def _sentence(text: str) -> str:
    """With a capital, a full stop and a space after it."""
    text = text.strip().rstrip(".")
    return f"{text[0].upper()}{text[1:]}. " if text else ""


def data_and_settings(release: Synthesis, risks: Assessment) -> dict[str, dict[str, str]]:
    """Two lists of names and values."""
    problem, fit = release.problem, release.fit
    data = {
        "Data set": problem.name,
        "Records": f"{problem.n_records:,} at {plural(problem.n_sites, 'place')}",
        "Sharing a place": plural(problem.n_coincident, "record")
        if problem.n_coincident
        else "no record",
        "Response": f"{problem.response}, modelled as {problem.transform.name}",
        "Formula": problem.formula,
        "Survey weights": problem.survey_weights or NOTHING,
        "Households": str(problem.households or NOTHING),
        "Coordinates": " and ".join(problem.coord_names),
        "Distance": f"{problem.distance}, in {problem.unit}s",
        "Reference system": problem.crs or "not stated",
        "Distances measured in": problem.sites_crs or "the coordinates as they are",
        "Correlation function": effect_words(fit),
        "Covariance": str(fit.covariance),
        "Largest distance": f"{figure(problem.d_max, 4)} {problem.unit}",
        **_columns(release),
    }
    former = None if risks.after is None else risks.after.former
    counted = [] if former is None else [str(former), former.uncounted]
    chosen = {
        "Earlier releases": "; ".join(filter(None, counted)) or "none known",
        "Floor": NOTHING if risks.asked is None else str(risks.asked),
        "Copies, L": f"{release.copies:,}",
        "Rule of the flags": _rule(fit, problem.unit),
        "Flagged": f"{int(fit.flagged.sum()):,} of {problem.n_records:,}",
        "Protection": release.protection,
        "Gamma": "infinity (fully smoothed)" if math.isinf(fit.gamma) else figure(fit.gamma),
        "Spatial effect in the copies": release.effect,
        "Decay held": NOTHING if fit.phi_held is None else figure(fit.phi_held, 4),
        "Rounding": "none" if release.rounding is None else "like the input",
        "Sampler": sampler(release),
    }
    return {"data": data, "settings": chosen}


OF_MEMBERS = "differs within a household"
"""In place of the role of a column that households left out."""


def _columns(release: Synthesis) -> dict[str, str]:
    """Which columns leave with the copies, and which stay, each with its role as it is guessed."""
    roles = {role.name: role.role for role in column_roles(release.problem)}
    lists = {"Published as collected": as_collected(release)}
    lists["Not published"] = [str(name) for name in unpublished_columns(release)]
    return {
        label: ", ".join(f"{name} ({roles.get(name, OF_MEMBERS)})" for name in names) or NOTHING
        for label, names in lists.items()
    }


def _rule(fit: Fit, unit: str) -> str:
    weights = fit.weights
    if weights is None:
        return "none: the fit is unrestricted"
    if weights.rule == "own":
        return "own weights" + (f", column {weights.column}" if weights.column else "")
    if weights.rule in ("continuous", "adaptive"):
        return f"{weights.rule} weights, which grow with the distance to the neighbour"
    which = "nearest neighbour" if weights.neighbour == 1 else f"neighbour no. {weights.neighbour}"
    site = " at another place" if weights.by_site else ""
    site += " of its group" if weights.within_group else ""
    return (
        f"{which}{site} at {weights.threshold:.4g} {unit} or more, "
        f"where the correlation is {weights.correlation:.2g} or less"
    )


def provenance(release: Synthesis) -> dict[str, str]:
    """Versions, engines, programs, date; no seed."""
    known = settings(release)
    out = {"Written": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")}
    out |= {name: str(value) for name, value in known["versions"].items()}
    for kind, fit in known["fits"].items():
        out[f"Engine, {kind} fit"] = str(fit["engine"])
        out[f"Program, {kind} fit"] = f"{fit['program']}.stan"
        out[f"SHA-256 of it, {kind} fit"] = str(fit["program_sha256"])
        out[f"Nodes, {kind} fit"] = " by ".join(str(n) for n in fit["nodes"])
    out["Seeds"] = "in settings.json beside this page; they are confidential"
    return out
