"""The folder of posteriors is what its script makes, and its reference draws are the posterior."""

from __future__ import annotations

import importlib.util
import json
import sys
import zipfile
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from conftest import ROOT
from dsstan.engines import SamplerSettings, get_engine
from dsstan.engines.programs import Program
from mc import assert_same, estimates_of, z_limit

FOLDER = ROOT / "data" / "posteriors" / "posterior_database"
NAMES = sorted(path.stem for path in (FOLDER / "posteriors").glob("*.json"))
NODES = 41


def content(path: str) -> Any:
    """What a file of JSON holds, in an archive or not."""
    if (FOLDER / path).exists():
        return json.loads((FOLDER / path).read_text())
    with zipfile.ZipFile(FOLDER / f"{path}.zip") as archive:
        [name] = archive.namelist()
        assert path.endswith(name)
        return json.loads(archive.read(name))


def parts_of(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The data of a posterior, and its reference draws of shape (chains, draws) by parameter."""
    posterior = content(f"posteriors/{name}.json")
    info = content(f"data/info/{posterior['data_name']}.info.json")
    drawn = content(f"reference_posteriors/draws/draw/{name}.json")
    chains = {key: np.array([chain[key] for chain in drawn]) for key in drawn[0]}
    return content(info["data_file"]), chains


@pytest.fixture
def made(monkeypatch) -> dict[str, bytes]:
    spec = importlib.util.spec_from_file_location("make", FOLDER.parent / "make_posteriors.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "make", module)
    spec.loader.exec_module(module)
    return module.files(module.posteriors())


def test_the_folder_is_what_its_script_makes(made):
    assert {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.*")} == set(made)
    for path, wanted in made.items():
        if "draws" not in path:  # whose last digits depend on the processor
            assert (FOLDER / path).read_bytes() == wanted, path


@pytest.mark.parametrize("name", NAMES)
def test_every_part_of_a_posterior_is_there(name):
    posterior = content(f"posteriors/{name}.json")
    data, drawn = parts_of(name)
    assert len(data["y"]) == len(data["coords"]) == data["N"]
    assert {values.shape for values in drawn.values()} == {(10, 1000)}
    dimensions = posterior["dimensions"]
    assert len(drawn) == sum(dimensions.values())
    assert {f"beta[{k + 1}]" for k in range(dimensions["beta"])} < set(drawn)
    model = content(f"models/info/{posterior['model_name']}.info.json")
    program = FOLDER / model["model_implementations"]["stan"]["model_code"]
    assert "#include" not in program.read_text()
    info = content(f"reference_posteriors/draws/info/{name}.info.json")
    assert info["diagnostics"]["effective_sample_size_bulk"] > 9_000
    assert info["diagnostics"]["r_hat"] < 1.01


@pytest.mark.parametrize("name", NAMES)
def test_the_draws_have_the_moments_of_a_sum_over_a_grid(name):
    """Of log sigma_sq, log tau_sq and log phi, beta integrated out, by numpy alone."""
    data, drawn = parts_of(name)
    names = ("sigma_sq", "tau_sq", "phi")
    logs = np.log([drawn[key].ravel() for key in names])
    axes = []
    for key, values in zip(names, logs, strict=True):
        low, high = values.mean() + np.array([-5.0, 5.0]) * values.std()
        if key == "phi":
            ends = np.log([data["phi_lower"], data["phi_upper"]])
            low, high = max(low, ends[0]), min(high, ends[1])
        axes.append(low + (high - low) * (np.arange(NODES) + 0.5) / NODES)
    X, y, A = (np.array(data[key], dtype=float) for key in ("X", "y", "A"))
    d, scale = cdist(data["coords"], data["coords"]), np.array(data["beta_scale"])
    roots = [(2, data["sigma_par"][0]), (2, data["tau_par"][0])]
    assert data["variance_prior"] == 1
    density = np.empty((NODES,) * 3)
    for k, log_phi in enumerate(axes[2]):
        values, Q = np.linalg.eigh(A[:, None] * np.exp(-np.exp(log_phi) * d) * A)
        Xq, yq = Q.T @ X, Q.T @ y
        for i, log_sigma in enumerate(axes[0]):
            V = np.exp(log_sigma) * np.maximum(values, 0.0) + np.exp(axes[1])[:, None]
            XVX = np.einsum("np,tn,nq->tpq", Xq, 1 / V, Xq) + np.diag(scale**-2.0)
            XVy = np.einsum("np,tn,n->tp", Xq, 1 / V, yq)
            fit = np.einsum("tp,tp->t", XVy, np.linalg.solve(XVX, XVy[..., None])[..., 0])
            quadratic = (yq**2 / V).sum(axis=1) - fit
            log_det = np.log(V).sum(axis=1) + np.linalg.slogdet(XVX)[1]
            # Half-normal roots: with the Jacobian of the logarithm a half-density each.
            prior = sum(
                0.5 * log - 0.5 * np.exp(log) / par**2
                for log, (_, par) in zip((log_sigma, axes[1]), roots, strict=True)
            )
            r = np.exp(axes[1] - log_sigma)
            within = (r > data["r_lower"]) & (r < data["r_upper"])
            whole = -0.5 * (log_det + quadratic) + prior + log_phi
            density[i, :, k] = np.where(within, whole, -np.inf)
    weight = np.exp(density - density.max())
    weight /= weight.sum()
    limit = z_limit(2 * len(names) * len(NAMES))
    for axis, (values, drawn_logs) in enumerate(zip(axes, logs, strict=True)):
        mass = weight.sum(axis=tuple(k for k in range(3) if k != axis))
        mean = mass @ values
        sd = np.sqrt(mass @ (values - mean) ** 2)
        n = drawn_logs.size
        assert abs(drawn_logs.mean() - mean) < limit * sd / np.sqrt(n) + 0.005 * sd
        kurtosis = mass @ ((values - mean) / sd) ** 4
        error = 0.5 * np.sqrt((kurtosis - 1) / n)
        assert abs(drawn_logs.std() / sd - 1) < limit * error + 0.005


@pytest.mark.nightly("the yardstick of speed on three tables")
@pytest.mark.parametrize("name", NAMES)
def test_nuts_on_the_program_gives_the_reference_draws(name):
    data, drawn = parts_of(name)
    center = {key: float(np.median(values)) for key, values in drawn.items()}
    beta = [center[f"beta[{k + 1}]"] for k in range(data["P"])]
    start = {"beta": beta, **{key: center[key] for key in ("sigma_sq", "tau_sq", "phi")}}
    found = get_engine("embedded").sample(
        Program("reference/cholesky"),
        data,
        settings=SamplerSettings(chains=4, samples=2000),
        seed=7,
        inits=[start] * 4,
    )
    nuts = {key: found.values[..., found.names.index(key)] for key in drawn}
    assert_same(estimates_of(nuts), estimates_of(drawn))
