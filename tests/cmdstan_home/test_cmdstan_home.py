"""The CMDSTAN folder of this directory behaves as cmdstanpy expects of CmdStan."""

from __future__ import annotations

import importlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cmdstanpy
import numpy as np
import pytest
from numpy.typing import NDArray

# mu has a normal posterior; tau is independent of the data, and bounded.
PROGRAM = """
data {
  int<lower=0> N;
  vector[N] y;
  real<lower=0> sigma;
  int<lower=0, upper=1> refuse;
}
parameters {
  real mu;
  real<lower=0> tau;
}
model {
  if (refuse) reject("told to refuse ", N, " records");
  mu ~ normal(0, 10);
  tau ~ gamma(3, 2);
  y ~ normal(mu, sigma);
}
generated quantities {
  vector[2] both = [2 * mu, mu + tau]';
  real noise = normal_rng(mu, sigma);
}
"""
Y = np.random.default_rng(20180611).normal(3.0, 2.0, size=30)
SIGMA = 2.0
DATA: dict[str, Any] = {"N": len(Y), "y": Y.tolist(), "sigma": SIGMA, "refuse": 0}
PRECISION = 1 / 10**2 + len(Y) / SIGMA**2
MU_MEAN, MU_SD = Y.sum() / SIGMA**2 / PRECISION, PRECISION**-0.5
TAU_MEAN, TAU_SD = 3 / 2, 3**0.5 / 2

SEED = 8
# A log density of size 100 in double precision, summed in another order.
ROUNDING = 1e-10
# Newton's steps end when the log density gains less than 1e-8, at a curvature
# PRECISION = 7.5: sqrt(2 * 1e-8 / 7.5) = 5e-5 for the last step, and they halve.
# BFGS and L-BFGS end closer.
MODE_ERROR = 2e-4
# A step so small that a chain stays where it starts.
STILL = 1e-9
# 17 digits give every double back.
EXACT = 17


# tests/conftest.py puts the folder of the tests on the path.
build = importlib.import_module("cmdstan_home.build")
mc = importlib.import_module("mc")


@pytest.fixture(scope="session")
def home() -> Path:
    folder: Path = build.ensure()
    return folder


@pytest.fixture(autouse=True)
def environment(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CMDSTAN", str(home))
    # cmdstanpy sets this one for the whole process; monkeypatch takes it back.
    monkeypatch.setenv("STAN_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def model(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[cmdstanpy.CmdStanModel]:
    program = tmp_path_factory.mktemp("program") / "conjugate.stan"
    program.write_text(PROGRAM)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CMDSTAN", str(home))
        yield cmdstanpy.CmdStanModel(stan_file=program)


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("data") / "data.json"
    path.write_text(json.dumps(DATA))
    return str(path)


def sample(model: cmdstanpy.CmdStanModel, **options: Any) -> cmdstanpy.CmdStanMCMC:
    defaults = {"data": DATA, "chains": 2, "seed": SEED, "show_progress": False}
    return model.sample(**(defaults | options))


def run(model: cmdstanpy.CmdStanModel, *words: str) -> subprocess.CompletedProcess[str]:
    command = [str(model.exe_file), *words]
    return subprocess.run(command, capture_output=True, text=True)


def log_density(mu: float, tau: float, jacobian: bool) -> float:
    """Without the constants that `~` drops; tau by its logarithm."""
    prior = -(mu**2) / 200 + 2 * np.log(tau) - 2 * tau
    likelihood = -np.sum((Y - mu) ** 2) / (2 * SIGMA**2)
    return float(prior + likelihood + jacobian * np.log(tau))


def by_chain(fit: cmdstanpy.CmdStanMCMC, column: str) -> NDArray[np.float64]:
    draws: NDArray[np.float64] = fit.draws()[:, :, fit.column_names.index(column)]
    return draws


def assert_posterior(fit: cmdstanpy.CmdStanMCMC) -> None:
    mu, tau = by_chain(fit, "mu").T, by_chain(fit, "tau").T
    found = {
        "mean of mu": mc.mean_of(mu),
        "sd of mu": mc.sd_of(mu),
        "mean of tau": mc.mean_of(tau),
        "sd of tau": mc.sd_of(tau),
    }
    truth = {"mean of mu": MU_MEAN, "sd of mu": MU_SD, "mean of tau": TAU_MEAN, "sd of tau": TAU_SD}
    mc.assert_same(found, truth)


def test_cmdstanpy_reads_the_versions(model: cmdstanpy.CmdStanModel) -> None:
    assert cmdstanpy.utils.cmdstan_version() == (2, 39)
    info = model.exe_info()
    assert (info["stan_version_major"], info["stan_version_minor"]) == ("2", "39")
    assert info["STAN_THREADS"] == "false"


def test_the_posterior_is_the_closed_form_within_monte_carlo_error(
    model: cmdstanpy.CmdStanModel,
) -> None:
    fit = sample(model, iter_sampling=4000)
    assert_posterior(fit)
    assert set(fit.method_variables()) == {
        "lp__",
        "accept_stat__",
        "stepsize__",
        "treedepth__",
        "n_leapfrog__",
        "divergent__",
        "energy__",
    }


def test_a_seed_fixes_the_draws_in_one_process_or_in_two(
    model: cmdstanpy.CmdStanModel,
) -> None:
    apart = sample(model).draws()
    together = sample(model, force_one_process_per_chain=False).draws()
    np.testing.assert_array_equal(apart, together)
    assert not np.array_equal(apart, sample(model, seed=SEED + 1).draws())


def test_the_chain_id_selects_the_stream_of_random_numbers(
    model: cmdstanpy.CmdStanModel,
) -> None:
    both = sample(model).draws()
    second = sample(model, chains=1, chain_ids=2).draws()
    np.testing.assert_array_equal(both[:, 1], second[:, 0])
    assert not np.array_equal(both[:, 0], both[:, 1])


@pytest.mark.parametrize("apart", [True, False])
def test_initial_values_come_from_a_file_for_each_chain(
    model: cmdstanpy.CmdStanModel, apart: bool
) -> None:
    inits = [{"mu": 1.5, "tau": 0.25}, {"mu": -2.0, "tau": 4.0}]
    fit = sample(
        model,
        inits=inits,
        iter_warmup=0,
        iter_sampling=3,
        adapt_engaged=False,
        step_size=STILL,
        max_treedepth=1,
        force_one_process_per_chain=apart,
    )
    first = [[by_chain(fit, name)[0, chain] for name in ("mu", "tau")] for chain in (0, 1)]
    np.testing.assert_allclose(first, [[1.5, 0.25], [-2.0, 4.0]], rtol=0, atol=1000 * STILL)


def test_fixed_parameters_stay_at_their_initial_values(model: cmdstanpy.CmdStanModel) -> None:
    fit = sample(model, inits={"mu": 1.5, "tau": 0.25}, fixed_param=True, iter_sampling=3)
    np.testing.assert_allclose(by_chain(fit, "mu"), 1.5)
    np.testing.assert_allclose(by_chain(fit, "tau"), 0.25)


def test_a_given_metric_and_step_size_are_used_without_adaptation(
    model: cmdstanpy.CmdStanModel,
) -> None:
    metrics = [np.array([0.1, 0.3]), np.array([0.2, 0.4])]
    fit = sample(
        model,
        inv_metric=metrics,
        step_size=0.5,
        adapt_engaged=False,
        force_one_process_per_chain=False,
    )
    np.testing.assert_allclose(fit.inv_metric, metrics)
    np.testing.assert_allclose(fit.step_size, 0.5)


@pytest.mark.parametrize("metric", ["dense_e", "unit_e"])
def test_other_metrics_sample_the_same_posterior(
    model: cmdstanpy.CmdStanModel, metric: str
) -> None:
    fit = sample(model, metric=metric, iter_sampling=4000)
    assert_posterior(fit)
    assert fit.metric_type == metric
    if metric == "dense_e":
        assert fit.inv_metric is not None
        assert fit.inv_metric.shape == (2, 2, 2)
        assert np.all(np.linalg.eigvalsh(fit.inv_metric) > 0)


def test_warmup_and_thinning_give_the_rows_that_cmdstanpy_counts(
    model: cmdstanpy.CmdStanModel,
) -> None:
    fit = sample(model, iter_warmup=101, iter_sampling=51, thin=2, save_warmup=True)
    assert fit.draws(inc_warmup=True).shape[:2] == (51 + 26, 2)
    again = cmdstanpy.from_csv(fit.runset.csv_files)
    assert isinstance(again, cmdstanpy.CmdStanMCMC)
    np.testing.assert_array_equal(again.draws(), fit.draws())


def test_divergences_tree_depths_and_energies_are_read(
    model: cmdstanpy.CmdStanModel,
) -> None:
    wild = sample(model, step_size=1.9, adapt_engaged=False)
    divergent = by_chain(wild, "divergent__").sum(axis=0)
    slow = sample(model, step_size=0.01, adapt_engaged=False, max_treedepth=1)
    deep = (by_chain(slow, "treedepth__") >= 1).sum(axis=0)
    # cmdstanpy 1.3 counts neither in a chain's first draw.
    for counted, there in ((wild.divergences, divergent), (slow.max_treedepths, deep)):
        assert counted is not None
        assert np.all(counted > 0)
        assert np.all(np.isin(there - counted, [0, 1]))

    energy = by_chain(sample(model, iter_sampling=2000), "energy__")
    e_bfmi = np.square(np.diff(energy, axis=0)).mean(axis=0) / energy.var(axis=0)
    assert np.all(e_bfmi > 0.3)


@pytest.mark.parametrize("jacobian", [True, False])
def test_log_prob_is_the_closed_form(model: cmdstanpy.CmdStanModel, jacobian: bool) -> None:
    mu, tau = 1.25, 0.75
    row = model.log_prob({"mu": mu, "tau": tau}, DATA, jacobian=jacobian, sig_figs=EXACT)
    gradient_mu = -mu / 100 + np.sum(Y - mu) / SIGMA**2
    gradient_tau = 2 - 2 * tau + jacobian
    np.testing.assert_allclose(
        row[["lp__", "g_mu", "g_tau"]].to_numpy()[0],
        [log_density(mu, tau, jacobian), gradient_mu, gradient_tau],
        rtol=0,
        atol=ROUNDING,
    )


def test_log_prob_takes_unconstrained_points(
    model: cmdstanpy.CmdStanModel, data: str, tmp_path: Path
) -> None:
    points = tmp_path / "points.json"
    points.write_text(json.dumps({"params_r": [[0.5, 0.0], [1.0, -1.0]]}))
    output = tmp_path / "lp.csv"
    words = ["log_prob", f"unconstrained_params={points}", "data", f"file={data}"]
    done = run(model, *words, "output", f"file={output}", f"sig_figs={EXACT}")
    assert done.returncode == 0, done.stderr
    found = np.loadtxt(output, delimiter=",", skiprows=0, comments=("#", "lp__"))
    expected = [log_density(0.5, 1.0, True), log_density(1.0, np.exp(-1.0), True)]
    np.testing.assert_allclose(found[:, 0], expected, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("jacobian", [True, False])
@pytest.mark.parametrize("algorithm", ["lbfgs", "bfgs", "newton"])
def test_optimize_finds_the_mode(
    model: cmdstanpy.CmdStanModel, algorithm: str, jacobian: bool
) -> None:
    fit = model.optimize(DATA, seed=SEED, algorithm=algorithm, jacobian=jacobian, sig_figs=EXACT)
    mode = [fit.stan_variable("mu"), fit.stan_variable("tau")]
    # The gamma's mode is 2 / 2, and 3 / 2 with the Jacobian of the logarithm.
    expected = [MU_MEAN, 1.5 if jacobian else 1.0]
    np.testing.assert_allclose(mode, expected, rtol=0, atol=MODE_ERROR)


def test_generated_quantities_follow_from_the_draws(
    model: cmdstanpy.CmdStanModel,
) -> None:
    fit = sample(model, sig_figs=EXACT)
    quantities = model.generate_quantities(DATA, previous_fit=fit, seed=SEED, sig_figs=EXACT)
    mu, tau = fit.stan_variable("mu"), fit.stan_variable("tau")
    expected = np.column_stack([2 * mu, mu + tau])
    # tau comes back through its logarithm.
    np.testing.assert_allclose(quantities.stan_variable("both"), expected, rtol=1e-14)
    noise = mc.mean_of(quantities.stan_variable("noise").reshape(2, -1))
    mc.assert_same({"mean of noise": noise}, {"mean of noise": MU_MEAN})


@pytest.mark.parametrize("options", [{}, {"num_paths": 1}, {"psis_resample": False}])
def test_pathfinder_draws_near_the_posterior(
    model: cmdstanpy.CmdStanModel, options: dict[str, Any]
) -> None:
    fit = model.pathfinder(DATA, seed=SEED, **options)
    mu = fit.stan_variable("mu")
    # Its approximation is exact for mu but for the noise of 1000 draws.
    assert abs(mu.mean() - MU_MEAN) < 0.25 * MU_SD
    assert 0.75 < mu.std() / MU_SD < 1.25


def test_laplace_and_variational_draw_near_the_posterior(
    model: cmdstanpy.CmdStanModel,
) -> None:
    laplace = model.laplace_sample(DATA, seed=SEED).stan_variable("mu")
    fit = model.variational(DATA, seed=SEED)
    variational = fit.stan_variable("mu", mean=False)
    for mu in (laplace, variational):
        assert abs(mu.mean() - MU_MEAN) < MU_SD
        assert 0.5 < mu.std() / MU_SD < 2


def test_gradients_agree_with_finite_differences(
    model: cmdstanpy.CmdStanModel,
) -> None:
    table = model.diagnose(inits={"mu": 1.0, "tau": 1.0}, data=DATA)
    assert np.all(np.abs(table["error"]) < 1e-6)


def test_configuration_and_adapted_metric_are_saved_as_json(
    model: cmdstanpy.CmdStanModel, data: str, tmp_path: Path
) -> None:
    words = ["sample", "num_samples=10", "adapt", "save_metric=1", "data"]
    words += [f"file={data}", "random", f"seed={SEED}", "output"]
    words += [f"file={tmp_path / 'out.csv'}", "save_cmdstan_config=1"]
    done = run(model, *words)
    assert done.returncode == 0, done.stderr
    config = json.loads((tmp_path / "out_config.json").read_text())
    assert config["method"]["sample"]["num_samples"] == 10
    assert config["random"]["seed"] == SEED
    metric = json.loads((tmp_path / "out_metric.json").read_text())
    assert metric["metric_type"] == "diag_e"
    assert len(metric["inv_metric"]) == 2


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("sample num_smaples=10", "num_smaples=10"),
        ("sample adapt delta=2", "delta=2"),
        ("sample algorithm=hmc engine=static", "engine=static"),
        ("sample num_chains=2 num_chains=3", "num_chains"),
        ("sample num_threads=2", "num_threads=2"),
        ("sample random seed=4294967296", "seed=4294967296"),
        ("pathfinder save_single_paths=1", "save_single_paths=1"),
        ("output file=x.csv", "method"),
    ],
)
def test_a_wrong_argument_is_refused_by_its_name(
    model: cmdstanpy.CmdStanModel, words: str, name: str
) -> None:
    done = run(model, *words.split())
    assert done.returncode != 0
    assert name in done.stderr


def test_a_program_that_rejects_fails_with_its_message(
    model: cmdstanpy.CmdStanModel,
) -> None:
    with pytest.raises(RuntimeError, match="told to refuse 30 records"):
        sample(model, data=DATA | {"refuse": 1})


def test_missing_data_fail_with_the_name_of_the_variable(
    model: cmdstanpy.CmdStanModel,
) -> None:
    with pytest.raises(RuntimeError, match="variable name=sigma"):
        sample(model, data={"N": 0, "y": [], "refuse": 0})


@pytest.mark.nightly("compiles the main program again, for minutes")
def test_a_program_with_threads_gives_the_same_draws(
    model: cmdstanpy.CmdStanModel, tmp_path: Path
) -> None:
    program = tmp_path / "conjugate.stan"
    program.write_text(PROGRAM)
    threaded = cmdstanpy.CmdStanModel(stan_file=program, cpp_options={"STAN_THREADS": "TRUE"})
    assert threaded.exe_info()["STAN_THREADS"] == "true"
    fit = sample(threaded, parallel_chains=2)
    assert not fit.runset.one_process_per_chain
    np.testing.assert_array_equal(fit.draws(), sample(model).draws())
    pathfinder = threaded.pathfinder(DATA, seed=SEED, num_threads=2)
    assert abs(pathfinder.stan_variable("mu").mean() - MU_MEAN) < 0.25 * MU_SD
