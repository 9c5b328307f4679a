"""Copies: their law, their bytes, and what is refused."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import dsstan as ds
from conftest import ROOT, small_table
from dsstan.core.errors import ConvergenceError, DsstanWarning, InputError
from dsstan.core.seeds import root_seed
from dsstan.covariance.latent import LatentModel
from dsstan.models.checks.conditions import Check
from dsstan.models.checks.verdict import Verdict
from dsstan.models.posterior import parameters_at
from dsstan.models.predictive import carried_effect, published
from mc import z_limit


def digest(release):
    return hashlib.sha256(release.values.tobytes()).hexdigest()


def test_the_same_seed_gives_the_same_bytes_whatever_the_workers(kept):
    digests = {digest(ds.synthesise(kept, 12, seed=5, workers=n)) for n in (1, 2, 5)}
    assert len(digests) == 1


def test_another_process_gives_the_same_bytes(tmp_path):
    script = tmp_path / "run.py"
    script.write_text(
        "import sys, hashlib\n"
        f"sys.path[:0] = [{str(ROOT / 'tests')!r}]\n"
        "import dsstan as ds\n"
        "from conftest import small_table\n"
        "r = ds.protect(small_table(), 'log(value) ~ x', coords=('east', 'north'),\n"
        "    threshold=0.15, engine='embedded', copies=5, seed=3, workers=int(sys.argv[1]),\n"
        "    chains=2, warmup=300, samples=500, progress=False, accept_failed=True)\n"
        "print(hashlib.sha256(r.values.tobytes()).hexdigest())\n"
    )
    out = {
        subprocess.run(
            [sys.executable, str(script), workers],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads},
        ).stdout
        for workers, threads in (("1", "1"), ("2", "2"))
    }
    assert len(out) == 1
    assert len(out.pop().strip()) == 64


def test_other_seeds_give_other_copies_and_zero_differs_from_one(kept):
    digests = {digest(ds.synthesise(kept, 3, seed=s)) for s in (0, 1, 2, None, None)}
    assert len(digests) == 5


def test_a_copy_does_not_depend_on_how_many_follow_it_but_for_its_draw(kept):
    release = ds.synthesise(kept, 8, seed=5)
    chains, counts = np.unique(release.draw_index[:, 0], return_counts=True)
    assert list(chains) == [0, 1, 2, 3]
    assert set(counts) == {2}


def test_copies_keep_everything_but_the_response():
    table = small_table()
    table.index = pd.Index([f"r{i}" for i in range(60)], name="id")
    table["group"] = pd.Categorical(["a", "b"] * 30)
    table["value"] = (1000 * table["value"]).round().astype("int32")
    problem = ds.prepare(table, "log(value) ~ x + group", coords=("east", "north"))
    fit = ds.fit(problem, seed=1, engine="embedded", progress=False)
    copy = ds.synthesise(fit, 2, seed=1).table(1)
    pd.testing.assert_frame_equal(copy.drop(columns="value"), table.drop(columns="value"))
    assert copy["value"].dtype == "int32"
    assert list(copy.columns) == list(table.columns)
    assert not copy["value"].equals(table["value"])


def scores(release):
    """Standardised copies under their law: the effect given y, plus the nugget."""
    fit, model = release.fit, LatentModel(release.fit)
    carried, _ = carried_effect(fit, release.effect)
    out = []
    for y, (chain, iteration) in zip(release.modelled(), release.draw_index, strict=True):
        p = parameters_at(fit, int(chain), int(iteration))
        mean = release.problem.X @ p.beta + carried * model.mean(p)
        variance = carried**2 * np.diag(model.covariance(p)) + p.tau_sq
        out.append((y - mean) / np.sqrt(variance))
    return np.array(out)


@pytest.mark.parametrize("protection", ["none", "paper", "preserving", "cut"])
@pytest.mark.parametrize("gamma", [np.inf, 4.0])
def test_copies_follow_the_law_stated_for_each_protection(small, free, kept, protection, gamma):
    fit = free
    if protection != "none":
        fit = ds.fit(
            small,
            weights=kept.weights,
            gamma=gamma,
            protection=protection,
            start=free,
            seed=4,
            engine="embedded",
            progress=False,
        )
    release = ds.synthesise(fit, 400, seed=9, accept_few_draws=True)
    partial = protection == "paper" and np.isfinite(gamma)
    assert release.effect == ("w*" if partial else "w")
    z = scores(release)
    limit = z_limit(2 * z.shape[1])
    assert np.all(np.abs(z.mean(axis=0)) < limit / np.sqrt(len(z)))
    assert np.all(np.abs(z.var(axis=0) - 1) < limit * np.sqrt(2 / len(z)) * 1.2)


def test_a_fully_smoothed_record_gets_its_conditional_prior_with_its_full_variance(kept):
    """The far record: sd near sqrt(sigma_sq + tau_sq), centred on x'beta."""
    record = 59
    assert kept.flagged[record]
    y = ds.synthesise(kept, 1000, seed=2, accept_few_draws=True).modelled()[:, record]
    beta = kept.draws["beta"].reshape(-1, 2)
    variance = (kept.draws["sigma_sq"] + kept.draws["tau_sq"]).mean()
    spread = np.sqrt(variance + (beta @ kept.problem.X[record]).var())
    # Its neighbours are 1.3 units away, at correlation below 0.01.
    assert y.std() == pytest.approx(spread, rel=5 * np.sqrt(0.5 / 1000) + 0.01)


def test_the_plug_option_warns_and_is_recorded(kept):
    with pytest.warns(DsstanWarning, match="nearly as exposed"):
        release = ds.synthesise(kept, 4, seed=1, effect="plug")
    assert release.effect == "plug"
    carried, _ = carried_effect(kept, "plug")
    np.testing.assert_array_equal(carried == 0, kept.flagged)


def failed(fit):
    check = Check("rhat", 1.2, "below 1.01", "failure", "phi", "run more iterations")
    return dataclasses.replace(fit, verdict=Verdict((check,)))


def test_a_fit_that_failed_does_not_reach_synthesis_unless_the_caller_says_so(kept):
    with pytest.raises(ConvergenceError, match="rhat"):
        ds.synthesise(failed(kept), 3, seed=1)
    release = ds.synthesise(failed(kept), 3, seed=1, accept_failed=True)
    assert release.accepted == (True, False)


def test_more_copies_than_the_effective_sample_size_are_refused(kept):
    count = int(kept.worst_ess) + 1
    if count <= kept.n_draws:
        with pytest.raises(ConvergenceError, match="effective sample size"):
            ds.synthesise(kept, count, seed=1)
    with pytest.raises(InputError, match="posterior draws"):
        ds.synthesise(kept, kept.n_draws + 1, seed=1)


def test_whole_numbers_may_come_as_floats_as_from_r(kept):
    release = ds.synthesise(kept, 2.0, seed=3.0, workers=1.0, progress=False)
    assert release.values.tobytes() == ds.synthesise(kept, 2, seed=3).values.tobytes()
    assert release.table(1.0).equals(release.table(1))
    with pytest.raises(InputError, match="copies are counted from 0 to 1"):
        release.table(0.5)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"copies": 0}, "copies"),
        ({"copies": 2.5}, "copies"),
        ({"copies": 2, "effect": "W"}, "effect"),
        ({"copies": 2, "workers": 0}, "workers"),
        ({"copies": 2, "seed": -1}, "seed"),
    ],
)
def test_wrong_arguments_are_refused(kept, arguments, match):
    with pytest.raises(InputError, match=match):
        ds.synthesise(kept, **arguments)


def test_a_rounded_copy_stays_inside_the_domain_of_the_transform():
    table = pd.DataFrame({"u": [0.0, 1, 2, 3, 5], "v": [0.0, 1, 0, 1, 4], "z": [1, 2, 4, 3, 2]})
    problem = ds.prepare(table, "log(z) ~ 1", coords=("u", "v"))
    np.testing.assert_array_equal(
        published(problem, np.array([0.2, 1.4, 2.6, 0.5, 7.0])), [1, 1, 3, 1, 7]
    )


def test_protect_is_the_whole_way_in_one_call(small):
    release = ds.protect(
        small_table(),
        "log(value) ~ x",
        coords=("east", "north"),
        threshold=0.15,
        copies=4,
        seed=8,
        engine="embedded",
        progress=False,
    )
    assert release.copies == 4
    assert release.fit.kind == "restricted"
    assert release.fit.start.kind == "unrestricted"
    seeds = {release.seed, release.fit.seed, release.fit.start.seed}
    assert len(seeds) == 3


def test_a_fresh_seed_has_128_bits_of_the_secure_source(monkeypatch):
    seeds = [root_seed(None) for _ in range(200)]
    assert len(set(seeds)) == 200
    bits = np.array([[(seed >> i) & 1 for i in range(128)] for seed in seeds])
    # Each bit is 0 or 1 in half of the seeds, to 6 standard errors.
    assert (np.abs(bits.mean(axis=0) - 0.5) < 3 / np.sqrt(200)).all()
    monkeypatch.setattr("dsstan.core.seeds.secrets.randbits", lambda n: n)
    assert root_seed(None) == 128


def test_releases_of_one_seed_do_not_share_their_noise(small, free, kept):
    """Copies minus their own law's mean: uncorrelated between two protections."""
    first = ds.synthesise(free, 100, seed=9)
    second = ds.synthesise(kept, 100, seed=9)
    a, b = (scores(r).ravel() for r in (first, second))
    assert abs(np.corrcoef(a, b)[0, 1]) < z_limit(1) / np.sqrt(60)


def test_values_that_the_column_can_not_hold_are_counted_and_told(small):
    table = small_table()
    table["value"] = np.clip(np.round(22 * np.log(table["value"])), 1, 127).astype("int8")
    problem = ds.prepare(table, "value ~ x", coords=("east", "north"))
    fit = ds.fit(problem, seed=1, engine="embedded", progress=False)
    with pytest.warns(DsstanWarning, match="outside what the column"):
        release = ds.synthesise(fit, 200, seed=1)
    assert 0 < release.moved_share < 0.5
    assert (release.values == 127).mean() > 0
