"""The posterior of the chances: calibrated, that of the Stan program, with slopes beside kppm."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from calibration import FAMILY_ALPHA, uniformity
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from conftest import ROOT
from dsstan.models.intensity.fit import fit_intensity
from dsstan.models.intensity.result import Intensity
from dsstan.table.mask.mask import Mask
from mc import assert_same, mean_of

Floats = NDArray[np.float64]
NUMBERS = (60, 20)
"""Records of the two groups."""
THINNED = 100
REGION = slice(0, 10)


def grid(side: int) -> Mask:
    """Cells of width 1 with a covariate that is no function of one coordinate."""
    x, y = (a.ravel() for a in np.meshgrid(np.arange(side) + 0.5, np.arange(side) + 0.5))
    height = pd.DataFrame({"height": np.sin(1.3 * x) + np.cos(0.9 * y)})
    return Mask(np.column_stack([x, y]), 1.0, 1.0 + 0.5 * (x > y), height)


def simulate(mask: Mask, seed: int) -> tuple[Floats, Floats, list[str], Floats]:
    """Chances (2, C) from the default priors, and records that follow them with their groups.

    The number of each group is given, so that a flat prior of its intercept needs no draw.
    """
    rng = np.random.default_rng(seed)
    d = cdist(mask.centres, mask.centres)
    phi = rng.uniform(3.0, 300.0) / d.max()
    sigma = abs(rng.standard_normal())  # below 0.01 once in 125: the cut is not felt
    u = sigma * np.linalg.cholesky(np.exp(-phi * d)) @ rng.standard_normal(mask.n_cells)
    height = mask.covariates["height"].to_numpy()
    slope, more = rng.normal(
        0.0, 2.5 / height.std(), 2
    )  # of the first group; of the second, beside it
    logs = np.log(mask.exposure) + np.outer([slope, slope + more], height) + u
    p = np.exp(logs - logs.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    cells = np.concatenate(
        [rng.choice(mask.n_cells, n, p=row) for n, row in zip(NUMBERS, p, strict=True)]
    )
    return p, mask.draw(cells, rng), ["a"] * NUMBERS[0] + ["b"] * NUMBERS[1], np.array([sigma, phi])


def rank(mask: Mask, seed: int) -> dict[str, int]:
    """Ranks of the true chance of a region, and of the parameters, among posterior draws."""
    p, sites, groups, (sigma, phi) = simulate(mask, seed)
    found = fit_intensity(
        sites,
        mask,
        groups=groups,
        formula="height",
        held_back=0,
        seed=seed,
        chains=2,
        progress=False,
    )
    fit = found.fits["unrestricted"]
    rng = np.random.default_rng(seed)
    draws = found.law.draws(found.informing, THINNED, rng)[:, :, REGION].sum(axis=2)
    thin = rng.permutation(fit.draws["phi"].size)[:THINNED]
    return {
        "region of a": int(np.sum(draws[:, 0] < p[0, REGION].sum())),
        "region of b": int(np.sum(draws[:, 1] < p[1, REGION].sum())),
        "sigma": int(np.sum(np.sqrt(fit.draws["sigma_sq"].ravel()[thin]) < sigma)),
        "phi": int(np.sum(fit.draws["phi"].ravel()[thin] < phi)),
    }


@pytest.mark.nightly("100 fits")
def test_the_posterior_of_the_chance_of_a_region_is_calibrated() -> None:
    mask = grid(5)
    seeds = np.random.SeedSequence(21).generate_state(100)
    ranks = [rank(mask, int(seed)) for seed in seeds]
    for name in ranks[0]:
        judged = uniformity([r[name] for r in ranks], FAMILY_ALPHA / len(ranks[0]))
        assert judged.passed, (name, judged)


@pytest.mark.nightly("a long run of the Stan program")
def test_the_chances_are_those_of_a_long_run_of_the_stan_program() -> None:
    mask = grid(5)
    _, sites, groups, _ = simulate(mask, 4)

    def logs(found: Intensity) -> dict[str, Floats]:
        fit = found.fits["unrestricted"]
        X = np.asarray(fit.problem.X).reshape(2, 25, -1)
        eta = np.einsum("kcp,ijp->ijkc", X, fit.draws["beta"]) + fit.draws["w"][:, :, None]
        eta += np.log(mask.exposure)
        eta -= np.log(np.exp(eta).sum(axis=-1, keepdims=True))
        return {f"log p {k} {c}": eta[:, :, k, c] for k in range(2) for c in range(0, 25, 4)}

    common: dict[str, Any] = {
        "groups": groups,
        "formula": "height",
        "held_back": 0,
        "progress": False,
    }
    ours = fit_intensity(sites, mask, **common, seed=1, samples=3000)
    nuts = {"sampler": "nuts", "engine": "embedded", "covariance": "exact", "samples": 5000}
    theirs = fit_intensity(sites, mask, **common, seed=2, adapt_delta=0.98, warmup=2000, **nuts)
    first, second = logs(ours), logs(theirs)
    assert_same(
        {name: mean_of(d) for name, d in first.items()},
        {name: mean_of(d) for name, d in second.items()},
    )


@pytest.mark.nightly("20 fits and 20 of spatstat")
def test_slopes_are_no_farther_from_the_truth_than_those_of_kppm(
    rscript: str, tmp_path: Path
) -> None:
    """kppm takes two steps: a Poisson regression, then the surface; the slope is of the first."""
    side, slope, tables = 10, 0.5, 20
    mask = Mask(grid(side).centres, 1.0, np.ones(side**2), grid(side).covariates)
    height = mask.covariates["height"].to_numpy()
    root = np.linalg.cholesky(np.exp(-0.6 * cdist(mask.centres, mask.centres)))
    rng, patterns, ours = np.random.default_rng(8), [], []
    for seed in range(tables):
        logs = slope * height + root @ rng.standard_normal(side**2)
        chance = np.exp(logs) / np.exp(logs).sum()
        sites = mask.draw(rng.choice(side**2, 400, p=chance), rng)
        patterns.append(sites.tolist())
        found = fit_intensity(sites, mask, formula="height", held_back=0, seed=seed, progress=False)
        beta = found.fits["unrestricted"].draws["beta"][:, :, 1]
        ours.append([beta.mean(), beta.std()])
    given, written = tmp_path / "patterns.json", tmp_path / "slopes.json"
    lattice = height.reshape(side, side).tolist()  # rows are y, as spatstat's images have them
    given.write_text(json.dumps({"patterns": patterns, "height": lattice}))
    script = Path("tests", "parity", "kppm.R")
    run = subprocess.run(
        [rscript, str(script), str(given), str(written)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    theirs = np.array(json.loads(written.read_text()))
    error = np.array(ours)[:, 0] - slope
    rms, rms_theirs = (float(np.sqrt(np.mean(e**2))) for e in (error, theirs - slope))
    # The two see the same tables, and errors of theirs hold ours and more.
    assert rms < 1.1 * rms_theirs, (rms, rms_theirs)
    # chi-squared of 20 standardised errors: false alarm 1e-5 on either side.
    assert 3.0 < np.sum((error / np.array(ours)[:, 1]) ** 2) < 61.0
