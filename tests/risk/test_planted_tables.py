"""Ten planted tables: attacks written from the documentation alone against the printed numbers.

The attacks of ``outside_attack`` have the public files, the values of all other records, places and
covariates. Each printed sd is compared with the error of an estimate that never saw the value, so a
tolerance is needed for the sampling of that error alone.

An attack that beats a number is marked as expected to fail, with the reason: the number is too
large there until the mark goes.

The sum of squared errors over the sum of squared sds is near a chi-square over its degrees of
freedom, (sum s^2)^2 / sum s^4 for independent errors. Errors of neighbours are correlated:
the squared correlations of leave-one-out errors add up to 1.2 to 1.5 a record on these tables.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from outside_attack import (
    Estimate,
    Known,
    full_posterior,
    kriging,
    learn_from_others,
    within_brackets,
)
from planted_tables import GAUSSIAN, Planted, digest, planted
from scipy import stats
from scipy.spatial.distance import cdist

import dsstan as ds
from dsstan.core.errors import InputError, ReleaseError
from dsstan.models.brackets.fit import fit_bracketed
from dsstan.models.counts.fit import fit_counts
from dsstan.risk.bracket_cost import bracket_cost

COORDS = ("x", "y")
SEEDS = (1, 2)
MARGIN = 0.9  # an attack may beat the printed sd by a tenth
FALSE_ALARM = 1e-5  # of each comparison
CORRELATED = 1.5  # records behind one independent error, see above
SURER = {
    "proxy": "of a flagged record the copies leave two places, between which the proxy decides",
    "coarse_prices": "a step of the copies above tau tells more than the exact sd counts",
    "thirty_records": "an attack that takes a decay for known claims 0.89 of the printed sds",
}
SAMPLER = {"seed": 1, "engine": "embedded", "progress": False}
ATTACKS = {
    "others": learn_from_others,
    "posterior": lambda known: full_posterior(known, decay="unknown"),
    "held decay": full_posterior,
}


@dataclass(frozen=True)
class Attacked:
    """One release: what was printed of each record, and what the attacks found."""

    known: Known
    printed: np.ndarray
    chance: np.ndarray
    step: int
    estimates: dict[str, Estimate]

    def named(self, attack: str) -> int:
        """How many values the estimates hit exactly, rounded as the column is."""
        if not self.step:
            return int(np.sum(self.estimates[attack].mean.round(4) == self.known.y))
        prices = self.step * np.round(np.exp(self.estimates[attack].mean) / self.step)
        return int(np.sum(prices == np.exp(self.known.y).round()))

    def groups(self) -> dict[str, np.ndarray]:
        """Masks of records, shape (N,)."""
        weakest = np.zeros(self.printed.size, dtype=bool)
        weakest[np.argsort(self.printed)[: max(1, self.printed.size // 10)]] = True
        return {
            "all": np.ones(self.printed.size, dtype=bool),
            "not flagged": ~self.known.flagged,
            "flagged": self.known.flagged,
            "weakest tenth": weakest,
        }


def _public(case: Planted, folder: Path) -> Known:
    """What the intruder has: the public files, and the truth of the other records."""
    metadata = json.loads((folder / "public" / "metadata.json").read_text())
    assert metadata["model"]["protection"] == "paper"
    copies = [pd.read_csv(folder / "public" / name) for name in metadata["files"]]
    transform = np.log if metadata["model"]["formula"].startswith("log") else np.asarray
    first = copies[0]
    places = first[metadata["coordinates"]].to_numpy()
    apart = cdist(places, places)
    np.fill_diagonal(apart, np.inf)
    return Known(
        copies=np.stack([transform(c["value"].to_numpy(dtype=float)) for c in copies]),
        y=transform(case.table["value"].to_numpy(dtype=float)),
        X=np.column_stack([np.ones(len(first)), first["z"]]),
        hints=first.filter(["assessed"]).to_numpy(),
        places=places,
        flagged=apart.min(axis=1) >= case.threshold,
    )


def _release(case: Planted, seed: int) -> ds.Synthesis:
    return ds.protect(
        case.table,
        case.formula,
        coords=COORDS,
        threshold=case.threshold,
        engine="embedded",
        adapt_delta=0.99,
        accept_failed=True,  # an attack needs no fit that converged
        seed=seed,
        progress=False,
        **case.options,
    )


def _attacked(name: str, seed: int, folder: Path) -> Attacked:
    """The default way from the table to the release, its assessment, and the attacks."""
    case = planted(name, seed)
    floor = "10%" if case.formula.startswith("log") else 0.05
    release = _release(case, seed)
    assessment = ds.assess(release, floor=floor, progress=False)
    target = folder / f"{name}-{seed}"
    release.write(
        target, floor=floor, accept_below_floor=True, reason="a planted table", report=False
    )
    known = _public(case, target)
    shutil.rmtree(target)
    found = {attack: run(known) for attack, run in ATTACKS.items()}
    return Attacked(known, assessment.sd, assessment.naming.chance, case.step, found)


def least_ratio(printed: np.ndarray) -> float:
    """Least ratio of the rms error to the rms sd that chance explains of an attack as good.

    By :data:`FALSE_ALARM`, with the degrees of freedom of the module's docstring.
    """
    square = printed**2
    df = square.sum() ** 2 / (square**2).sum() / CORRELATED
    return float(np.sqrt(stats.chi2.ppf(FALSE_ALARM, df) / df))


def _compare(releases: Sequence[Attacked]) -> pd.DataFrame:
    """One row a group and attack, over several releases of one kind.

    ``own`` is the rms ratio of the sd that the attack gives itself to the printed sd,
    ``surprise`` the mean squared error in units of its own sd, and ``most surprise`` what chance
    explains of an attack whose own sds are true.
    """
    rows = []
    for group in releases[0].groups():
        masks = [r.groups()[group] for r in releases]
        printed = np.concatenate([r.printed[m] for r, m in zip(releases, masks, strict=True)])
        df = printed.size / CORRELATED
        for attack in ATTACKS:
            pairs = [
                (r.estimates[attack].mean[m] - r.known.y[m], r.estimates[attack].sd[m])
                for r, m in zip(releases, masks, strict=True)
            ]
            error, own = (np.concatenate(part) for part in zip(*pairs, strict=True))
            rms, said = np.sqrt(np.mean(error**2)), np.sqrt(np.mean(printed**2))
            rows.append(
                {
                    "group": group,
                    "attack": attack,
                    "records": printed.size,
                    "printed rms": said,
                    "attack rms": rms,
                    "ratio": rms / said,
                    "least ratio": MARGIN * least_ratio(printed),
                    "own": np.sqrt(np.mean((own / printed) ** 2)),
                    "surprise": np.mean((error / own) ** 2),
                    "most surprise": stats.chi2.isf(FALSE_ALARM, df) / df,
                }
            )
    return pd.DataFrame(rows)


def _most_named(chance: np.ndarray) -> float:
    """Most values that an attack may name exactly: a tenth beyond the printed, and chance."""
    spread = np.sqrt(CORRELATED * (chance * (1 - chance)).sum())
    return float(chance.sum() / MARGIN + stats.norm.isf(FALSE_ALARM) * spread)


def _check(releases: Sequence[Attacked]) -> None:
    compared = _compare(releases)
    print(compared.round(3).to_string(index=False))
    beaten = compared[compared["ratio"] < compared["least ratio"]]
    assert beaten.empty, f"\n{beaten.round(3).to_string(index=False)}"
    chance = np.concatenate([r.chance for r in releases])
    for attack in ATTACKS:
        named = sum(r.named(attack) for r in releases)
        print(f"{attack}: {named} of {chance.size} named, {chance.sum():.1f} printed")
        assert named <= _most_named(chance), attack


@pytest.fixture(scope="module")
def thirty(tmp_path_factory):
    return _attacked("thirty_records", 1, tmp_path_factory.mktemp("planted"))


def test_no_attack_on_thirty_records_beats_the_printed_sds(thirty):
    _check([thirty])


def test_an_attack_does_not_use_the_value_that_it_looks_for(thirty):
    known, i = thirty.known, int(np.argmin(thirty.printed))
    y = known.y.copy()
    y[i] += 10 * thirty.printed[i]
    moved = Known(known.copies, y, known.X, known.hints, known.places, known.flagged)
    for name, attack in ATTACKS.items():
        found = attack(moved)
        np.testing.assert_allclose(found.mean[i], thirty.estimates[name].mean[i], atol=1e-6)
        np.testing.assert_allclose(found.sd[i], thirty.estimates[name].sd[i], rtol=1e-6)


def test_an_attack_through_the_copies_is_better_than_kriging(thirty):
    error = {k: np.sum((e.mean - thirty.known.y) ** 2) for k, e in thirty.estimates.items()}
    alone = np.sum((kriging(thirty.known).mean - thirty.known.y) ** 2)
    assert max(error.values()) < alone


@pytest.fixture(scope="module", params=sorted(GAUSSIAN))
def releases(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    return request.param, [_attacked(request.param, seed, folder) for seed in SEEDS]


@pytest.mark.nightly("two releases and six attacks a table")
def test_no_attack_beats_the_printed_sds_by_more_than_a_tenth(releases):
    _check(releases[1])


@pytest.mark.nightly("two releases and six attacks a table")
def test_no_attack_that_knows_its_error_is_surer_than_printed(releases, request):
    """An attack's own sd has no sampling error; it counts where its errors bear it out."""
    name, attacked = releases
    if name in SURER:
        request.applymarker(pytest.mark.xfail(reason=SURER[name], strict=True))
    compared = pd.concat(
        _compare([release]).assign(seed=s) for s, release in zip(SEEDS, attacked, strict=True)
    )
    honest = compared[compared["surprise"] < compared["most surprise"]]
    assert set(honest["attack"]) >= {"posterior", "held decay"}
    surer = honest[honest["own"] < MARGIN]
    assert surer.empty, f"\n{surer.round(3).to_string(index=False)}"


def test_a_proxy_is_refused_unless_it_is_accepted_by_name():
    case = planted("proxy", 1)
    case.options.pop("accept_proxy")
    with pytest.raises(ReleaseError, match="assessed"):
        _release(case, 1)


@pytest.mark.nightly("one release")
def test_a_hash_stays_at_home_unless_it_is_published_by_name(tmp_path):
    case = planted("hashed", 1)
    case.options.pop("publish")
    _release(case, 1).write(tmp_path / "release", report=False)
    assert "key" not in pd.read_csv(tmp_path / "release" / "public" / "copy_001.csv")


@pytest.mark.nightly("one release")
def test_a_hash_published_by_name_is_not_judged(tmp_path):
    case = planted("hashed", 1)
    release = _release(case, 1)
    assessment = ds.assess(release, floor="10%", progress=False)
    release.write(tmp_path / "release", report=False)
    keys = pd.read_csv(tmp_path / "release" / "public" / "copy_001.csv")["key"]
    prices = {digest(price): price for price in range(0, 10_000_000, case.step)}
    assert np.all(keys.map(prices) == case.table["value"])
    assert assessment.verdict == "not judged"
    assert "'key' goes out and may be a code of the response" in assessment.why


@pytest.fixture
def bracketed():
    case = planted("brackets", 1)
    cuts = list(case.table["value"].quantile([1 / 3, 2 / 3]).round(2))
    problem = ds.prepare(case.table, case.formula, coords=COORDS)
    free = fit_bracketed(problem, cuts, **SAMPLER, adapt_delta=0.99)
    flags = ds.flag_isolated(free, distance=case.threshold)
    kept = fit_bracketed(problem, cuts, weights=flags, start=free, **SAMPLER, adapt_delta=0.99)
    return case, ds.synthesise(kept, seed=1, accept_failed=True, progress=False), cuts


@pytest.fixture
def counted():
    case = planted("counts", 1)
    problem = ds.prepare(case.table, case.formula, coords=COORDS)
    free = fit_counts(problem, **SAMPLER)
    flags = ds.flag_isolated(free, distance=case.threshold)
    kept = fit_counts(problem, weights=flags, start=free, **SAMPLER)
    return case, ds.synthesise(kept, seed=1, accept_failed=True, progress=False)


def _not_judged(release: ds.Synthesis, folder: Path) -> None:
    with pytest.raises(InputError, match="NOT JUDGED"):
        release.write(folder / "refused", floor=0.05, report=False)
    assert not (folder / "refused").exists()
    release.write(folder / "release", report=False)
    summary = json.loads((folder / "release" / "confidential" / "summary.json").read_text())
    assert summary["disclosure_verdict"] == "not judged"
    print(summary["disclosure_reason"])


@pytest.mark.nightly("two fits")
def test_brackets_are_not_judged_and_copies_reveal_more_than_the_bracket(bracketed, tmp_path):
    case, release, cuts = bracketed
    _not_judged(release, tmp_path)
    known = _public(case, tmp_path / "release")
    inside = within_brackets(learn_from_others(known), known.copies, cuts)
    rms = np.sqrt(np.mean((inside.mean - known.y) ** 2))
    cost = bracket_cost(release).iloc[-1]["sd_bracket"]
    print(f"attack rms {rms:.3f}, sd before a copy {cost:.3f}")
    assert rms < cost


@pytest.mark.nightly("two fits")
def test_counts_are_not_judged_and_copies_reveal_more_than_kriging(counted, tmp_path):
    case, release = counted
    _not_judged(release, tmp_path)
    count = _public(case, tmp_path / "release")
    known = replace(count, copies=np.log(count.copies + 0.5), y=np.log(count.y + 0.5))
    rms = {}
    for attack in (kriging, learn_from_others):
        estimate = attack(known).mean
        rms[attack] = np.sqrt(np.mean((estimate - known.y) ** 2))
        named = np.mean(np.round(np.exp(estimate) - 0.5) == count.y)
        print(f"{attack.__name__}: rms {rms[attack]:.3f} in the log, {named:.1%} named")
    print(f"copies that equal the truth: {np.mean(count.copies == count.y):.1%}")
    assert rms[learn_from_others] < rms[kriging]
