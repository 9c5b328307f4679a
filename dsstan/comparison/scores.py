"""One setting of a comparison: what it is, what was measured, and where it is kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dsstan.analysis.overlap import interval_overlap
from dsstan.analysis.spatial_surfaces import surface_correlation, surface_predictor
from dsstan.analysis.utility import least_squares, least_squares_of_copies
from dsstan.copies.result import Synthesis
from dsstan.copies.synthesis import synthesise
from dsstan.core.arrays import Floats, Truths
from dsstan.core.errors import InputError
from dsstan.core.files.workspace import keep_private, lasting_folder
from dsstan.core.seeds import root_seed, seed_of
from dsstan.covariance.protection import PROTECTIONS, protection_of
from dsstan.models.predictive import carried_effect
from dsstan.models.result import Fit
from dsstan.models.weights import PAPER_CORRELATION, smoothing
from dsstan.risk.disclosure import within
from dsstan.risk.intruder.attacker import attack
from dsstan.risk.placing import half_width
from dsstan.table.problem import Problem

LEGEND = (
    "within: how closely an intruder who knows all other records, and the variances behind each "
    "copy, places the weakest record, of those at risk (that any rule flags) or of all; sd: the "
    "same on the modelled scale. share: copies near the truth. overlap and width_ratio: of the "
    "regression's intervals. surface: correlation of predicted surfaces. passed: the fit's verdict"
)

MOST_SETS, ALL_COPIES = 10, 400
"""Sets of copies behind a mean of utility, and copies of all sets together."""


@dataclass(frozen=True)
class ProtectionSetting:
    """One way of protecting the table.

    Attributes
    ----------
    rule
        ``"none"``, ``"distance"``, ``"correlation"`` or ``"continuous"``.
    value
        M or c of the rule; NaN where it has none.
    gamma, protection
        See :func:`dsstan.fit`.
    """

    rule: str
    value: float = float("nan")
    gamma: float = 0.0
    protection: str = "none"

    def __str__(self) -> str:
        if self.rule == "none":
            return "no protection"
        if self.rule == "continuous":
            return f"continuous weights, {self.protection}"
        name = {"distance": f"M = {self.value:.4g}", "correlation": f"c = {self.value:.4g}"}
        no_gamma = protection_of(self.protection).flagged_leave
        gamma = "" if no_gamma else f", gamma {self.gamma:.4g}"
        return f"{name.get(self.rule, self.rule)}{gamma}, {self.protection}"


def grid_of(
    distances: Sequence[float],
    correlations: Sequence[float],
    continuous: bool,
    gammas: Sequence[float],
    protections: Sequence[str],
) -> list[ProtectionSetting]:
    """Every combination, once."""
    if not distances and not correlations and not continuous:
        correlations = (PAPER_CORRELATION,)
    for name, values in (("gammas", gammas), ("protections", protections)):
        if isinstance(values, str) or not len(values):
            raise InputError(f"{name} must be a sequence with at least one entry")
    for protection in protections:
        if protection not in PROTECTIONS:
            raise InputError(
                f"protections must be among {', '.join(PROTECTIONS)}, got {protection!r}"
            )
    for gamma in gammas:
        smoothing(gamma, np.zeros(1))
        if gamma == 0:
            raise InputError("gamma 0 is no protection, which is always in the table: leave it out")
    for M in distances:
        if not (np.isfinite(M) and M > 0):
            raise InputError(f"distances must be positive and finite, got {M!r}")
    for c in correlations:
        if not 0 < c < 1:
            raise InputError(f"correlations must lie between 0 and 1, got {c!r}")
    rules = [("distance", float(v)) for v in distances]
    rules += [("correlation", float(v)) for v in correlations]
    found = [
        ProtectionSetting(
            rule, value, np.inf if protection_of(name).flagged_leave else float(gamma), name
        )
        for rule, value in rules
        for name in protections
        for gamma in gammas
    ]
    if continuous:
        found.append(ProtectionSetting("continuous", protection="paper"))
    return list(dict.fromkeys(found))


@dataclass(frozen=True, eq=False)
class SettingScores:
    """What was measured of one setting. Confidential.

    Attributes
    ----------
    copies
        Each L.
    known, fixed
        Attacker sds after each L, shape (len(copies), N): the variances known, or
        telling nothing. NaN where the covariance has no attacker.
    shares
        Share of copies near the truth, shape (len(copies), N).
    overlap, width_ratio, surface
        Utility at each L, a mean over several sets of L copies, and its Monte Carlo error.
    left_out
        See :class:`dsstan.risk.intruder.attacker.Attack`; 0 where the sds are exact or there are
        none.
    """

    gamma: float
    effect: str
    passed: bool
    sigma_sq: float
    tau_sq: float
    copies: list[int]
    overlap: list[float]
    width_ratio: list[float]
    surface: list[float]
    overlap_error: list[float]
    width_ratio_error: list[float]
    surface_error: list[float]
    known: Floats = field(repr=False)
    fixed: Floats = field(repr=False)
    shares: Floats = field(repr=False)
    left_out: float = 0.0

    def rows(self, at_risk: Truths, problem: Problem) -> list[dict[str, Any]]:
        """One row for each L, the records at risk apart from the others."""
        out: list[dict[str, Any]] = []
        for i, count in enumerate(self.copies):
            known, fixed, shares = self.known[i], self.fixed[i], self.shares[i]
            within = np.where(np.isnan(known), np.nan, half_width(problem, known))
            row: dict[str, Any] = {
                "copies": count,
                "sd_at_risk_known": _known(np.min, known[at_risk]),
                "sd_at_risk_fixed": _known(np.min, fixed[at_risk]),
                "sd_at_risk_median": _known(np.median, known[at_risk]),
                "sd_all": _known(np.min, known),
                "within_at_risk": _known(np.min, within[at_risk]),
                "within_all": _known(np.min, within),
                "left_out": self.left_out,
                "share_at_risk": _known(np.mean, shares[at_risk]),
                "share_others": _known(np.mean, shares[~at_risk]),
            }
            for name in ("overlap", "width_ratio", "surface"):
                row[name] = getattr(self, name)[i]
                row[f"{name}_error"] = getattr(self, f"{name}_error")[i]
            out.append(row)
        return out


def _known(statistic: Callable[[Floats], Any], values: Floats) -> Any:
    """A statistic of some records; missing where there is no record, or a value is unknown."""
    found = float(statistic(values)) if values.size else np.nan
    return pd.NA if np.isnan(found) else found


def measure(
    fitted: Fit, free: Fit, copies: Sequence[int], relative: float, draws: int | None, seed: int
) -> SettingScores:
    """Risk and utility of one fit at every L.

    A fit that failed its verdict is measured all the same, and says so. Under an approximated
    covariance the attacker's sds come from the records around each, and beyond 2000 records the
    surfaces from the sites around each place: no matrix of all pairs is made.
    """
    known = fixed = np.full((len(copies), fitted.problem.n_records), np.nan)
    left_out = 0.0
    if fitted.covariance.has_attacker:
        found = attack(fitted, against=free, copies=max(copies), draws=draws, progress=False)
        known = np.stack([found.sd(count, variances="known") for count in copies])
        fixed = np.stack([found.sd(count) for count in copies])
        left_out = found.left_out or 0.0
    truth = fitted.problem.original()
    sigma_sq, tau_sq, phi = (float(np.median(free.draws[k])) for k in ("sigma_sq", "tau_sq", "phi"))
    surface_of = surface_predictor(fitted, (sigma_sq, tau_sq, phi))
    original = surface_of(fitted.problem.y)
    shares, means, errors = [], [], []
    for count in copies:
        near, utilities = np.zeros(len(truth)), []
        for release in _sets(fitted, count, seed):
            near += within(release.values, truth, relative * np.abs(truth))
            mean = surface_of(release.modelled().mean(axis=0))
            utilities.append((*_regression(release), surface_correlation(mean, original)))
        shares.append(near / len(utilities))
        means.append(np.mean(utilities, axis=0))
        errors.append(np.std(utilities, axis=0, ddof=1) / np.sqrt(len(utilities)))
    overlap, width, surface = np.transpose(means).tolist()
    overlap_error, width_error, surface_error = np.transpose(errors).tolist()
    return SettingScores(
        gamma=fitted.gamma,
        effect=carried_effect(fitted)[1],
        passed=fitted.verdict.passed and free.verdict.passed,
        sigma_sq=float(fitted.draws["sigma_sq"].mean()),
        tau_sq=float(fitted.draws["tau_sq"].mean()),
        copies=[int(count) for count in copies],
        overlap=overlap,
        width_ratio=width,
        surface=surface,
        overlap_error=overlap_error,
        width_ratio_error=width_error,
        surface_error=surface_error,
        known=known,
        fixed=fixed,
        shares=np.stack(shares),
        left_out=left_out,
    )


def _sets(fitted: Fit, count: int, seed: int) -> Iterator[Synthesis]:
    """Several sets of copies: 10, or as many as come to 400 copies, at least 2."""
    children = np.random.SeedSequence(seed).spawn(max(2, min(MOST_SETS, ALL_COPIES // count)))
    for child in children:
        yield synthesise(
            fitted,
            count,
            seed=seed_of(child),
            accept_failed=True,
            accept_few_draws=True,
            progress=False,
        )


def _regression(release: Synthesis) -> tuple[float, float]:
    """Mean overlap, at least 0 each, and mean width ratio of the least-squares intervals."""
    X, y = release.problem.X, release.problem.y
    w = release.problem.survey_weight_values
    mine = least_squares(X, y, weights=w)
    theirs = least_squares_of_copies(X, release.modelled(), weights=w)
    found = interval_overlap((mine.low, mine.high), (theirs.low, theirs.high))
    return float(np.mean(found.truncated)), float(np.mean(found.width_ratio))


def _checksum(raw: dict[str, Any]) -> str:
    """Of a setting as JSON."""
    return hashlib.sha256(json.dumps(raw, sort_keys=True).encode()).hexdigest()


class Store:
    """Finished settings in a private folder, or nowhere.

    One JSON file a setting, written whole and then renamed; ``run.json`` holds the root
    seed and what data the settings belong to.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = None if folder is None else lasting_folder(folder)

    def root(self, seed: int | None) -> int:
        """The folder's root seed, else the one given or a fresh one, which is kept."""
        known = self._json("run")
        if known is None and self.folder is not None and any(self.folder.glob("*.json")):
            raise InputError(
                f"the folder {self.folder} holds finished settings but its run.json is missing or "
                "damaged, so their table is unknown: choose another folder"
            )
        if known is None:
            root = root_seed(seed)
            self._write("run", {"seed": str(root), "belongs_to": None})
            return root
        root = int(known["seed"])
        if seed is not None and seed != root:
            raise InputError(
                f"the folder {self.folder} was made with another seed: leave the seed out to go "
                "on, or choose another folder"
            )
        return root

    def belongs_to(self, fingerprint: str) -> None:
        """Refuse a folder with settings of other data, or of another unrestricted fit."""
        known = self._json("run")
        if known is None:
            return
        if known["belongs_to"] is None:
            self._write("run", {**known, "belongs_to": fingerprint})
        elif known["belongs_to"] != fingerprint:
            raise InputError(
                f"the folder {self.folder} holds a comparison of another table or another "
                "unrestricted fit (its formula, survey weights, priors and sampler settings "
                "count): choose another folder"
            )

    def read(self, key: str) -> SettingScores | None:
        """A finished setting; None where there is none, or its file is damaged."""
        stored = self._json(key)
        try:
            raw = stored["cell"]
            if stored["sha256"] != _checksum(raw):
                return None
            for name in ("known", "fixed", "shares"):
                raw[name] = np.array(raw[name], dtype=np.float64)
            return SettingScores(**raw)
        except (TypeError, KeyError, ValueError):
            return None

    def write(self, key: str, scores: SettingScores) -> None:
        """Keep a finished setting."""
        raw = asdict(scores)
        for name in ("known", "fixed", "shares"):
            raw[name] = raw[name].tolist()
        self._write(key, {"sha256": _checksum(raw), "cell": raw})

    def _json(self, name: str) -> Any:
        """A file's content; None where it is missing or no JSON."""
        if self.folder is None:
            return None
        try:
            return json.loads((self.folder / f"{name}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def _write(self, name: str, content: dict[str, Any]) -> None:
        """Write a file whole: infinite sds and gammas are JSON's extension that Python reads."""
        if self.folder is not None:
            keep_private(self.folder / f"{name}.json", json.dumps(content).encode())
