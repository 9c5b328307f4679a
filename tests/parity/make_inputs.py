"""Write the inputs that the R twins and Python share, ``tests/parity/inputs/<topic>.json``.

``python tests/parity/make_inputs.py`` from the repository root. The same bytes every time: numbers
come from hand, from the example data, or from PCG64's raw uniforms.
San Francisco's data are never written; its twin reads the file itself.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

if __package__ in (None, ""):
    sys.path[:0] = [str(Path(__file__).resolve().parents[k]) for k in (1, 2)]

from dsstan.table.datasets import load_baltimore, load_simulated
from parity.counts_inputs import counts
from parity.multivariate_inputs import multivariate
from parity.posterior_inputs import posterior

INPUTS = Path(__file__).resolve().parent / "inputs"
Array = NDArray[np.float64]


def rounded(values: Array, decimals: int) -> Array:
    """Rounded so that libraries that differ in the last digit write the same file."""
    out: Array = np.round(values, decimals)
    return out


def uniforms(seed: int, *shape: int) -> Array:
    """Uniform numbers rounded to six decimals."""
    return rounded(np.random.Generator(np.random.PCG64(seed)).random(shape), 6)


def normals(seed: int, *shape: int) -> Array:
    """Normal numbers rounded to six decimals."""
    return rounded(norm.ppf(np.clip(uniforms(seed, *shape), 1e-6, 1 - 1e-6)), 6)


def steady(value: float) -> float:
    """Fifteen significant digits: exp may differ between processors in the last."""
    return float(f"{value:.15g}")


def node(bounds: tuple[float, float], number: int, of: int) -> float:
    """A Chebyshev node of the first kind in the logarithm of a range, numbered from 0."""
    x = -np.cos((number + 0.5) * np.pi / of)
    low, high = np.log(bounds)
    return steady(bounds[0] * np.exp(0.5 * (x + 1.0) * (high - low)))


NODES = (5, 7)
R_BOUNDS = (1e-4, 1e4)
# Nodes (phi, r) of the points: the first three share a decay, which a restricted fit holds.
AT = ((2, 3), (2, 2), (2, 4), (3, 3), (1, 2))
OFF = ((0.31, 0.047), (0.62, 0.9), (0.55, 11.0))


def points(phi_bounds: tuple[float, float], beta: Array, sigma_sq: float) -> dict[str, Any]:
    """Parameter points at nodes of a 5 x 7 surface, and off any node.

    Off the nodes the decay is a position in the logarithm of its range.
    """
    phi = [node(phi_bounds, g, NODES[0]) for g, _ in AT]
    r = [node(R_BOUNDS, h, NODES[1]) for _, h in AT]
    low, high = np.log(phi_bounds)
    phi_off = [steady(np.exp(low + share * (high - low))) for share, _ in OFF]
    out = {}
    for name, (decays, ratios) in {
        "at_nodes": (phi, r),
        "off_nodes": (phi_off, [ratio for _, ratio in OFF]),
    }.items():
        scale = 1.0 + 0.25 * np.arange(len(decays))
        out[name] = {
            "beta": [list(beta * (1 + 0.01 * k)) for k in range(len(decays))],
            "sigma_sq": list(sigma_sq * scale),
            "tau_sq": [steady(t) for t in np.array(ratios) * sigma_sq * scale],
            "phi": decays,
        }
    return out


def hand() -> dict[str, Any]:
    """Twelve records by hand: a square (ties), three shared sites, one far away."""
    u = [0, 0, 1, 1, 0, 0.5, 3, 3, 3, 2, 6, 1]
    v = [0, 0, 0, 1, 1, 0.5, 1, 1, 1.25, 2, -1, 0]
    return {
        "words": "hand-made records, three sites shared",
        "columns": {
            "u": u,
            "v": v,
            "x": [0.2, -1.0, 0.4, 1.3, -0.7, 0.1, 2.0, -1.6, 0.9, -0.3, 0.6, -0.1],
            "z": [1.7, 0.3, 1.1, 2.9, 0.4, 1.6, 4.2, 0.2, 2.6, 0.9, -3.5, 1.2],
        },
        "coords": ["u", "v"],
        "formula": "z ~ x",
        "a": [0, 0, 0, 0, 0, 0, 0, 0, 0, 0.5, 1, 0],
        "phi_bounds": [0.3, 30.0],
        **points((0.3, 30.0), np.array([1.2, 0.9]), 1.5),
        "places": [[0.25, 0.25], [1, 1], [3, 1], [5.5, -0.5], [10, 10]],
    }


def simulated() -> dict[str, Any]:
    """Forty of the simulated records, the outlier among them."""
    table = load_simulated().iloc[[*range(36), -4, -3, -2, -1]]
    a = np.zeros(40)
    a[[-1, -2, 7]] = 1.0, 0.5, 1.0
    return {
        "words": "forty simulated records",
        "columns": {name: table[name].tolist() for name in ("s1", "s2", "income")},
        "coords": ["s1", "s2"],
        "formula": "log(income) ~ s1 + s2",
        "a": list(a),
        "phi_bounds": [2.0, 200.0],
        **points((2.0, 200.0), np.array([11.0, 0.4, -0.3]), 3.5),
        "places": [[0.25, 0.25], [0.5, 0.5], [0.51, 0.01], [0.9, 0.1], [3, 3]],
    }


def baltimore() -> dict[str, Any]:
    """All of Baltimore; the records further than 6 thousand feet from any other flagged."""
    table = load_baltimore()
    sites = table[["x", "y"]].to_numpy(float)
    d = np.sqrt(((sites[:, None] - sites[None]) ** 2).sum(-1)) + np.diag(np.full(len(sites), 1e9))
    return {
        "words": "the Baltimore houses",
        "columns": {
            name: table[name].tolist() for name in ("x", "y", "price", "squarefeet", "age")
        },
        "coords": ["x", "y"],
        "formula": "log(price) ~ scale(log(squarefeet)) + age",
        "a": list((d.min(axis=1) >= 6.0).astype(float)),
        "phi_bounds": [0.02, 2.0],
        **points((0.02, 2.0), np.array([10.7, 0.25, -0.005]), 0.12),
        "places": [[900, 540], [911.5, 544.25], [860, 581]],
    }


def cases() -> dict[str, Any]:
    """The data sets that several topics share."""
    return {"hand": hand(), "simulated": simulated(), "baltimore": baltimore()}


def density() -> dict[str, Any]:
    """Prior settings, and a spatial effect for the hierarchical programs."""
    return {
        "nodes": list(NODES),
        "r_bounds": list(R_BOUNDS),
        "beta_scale": [10.0, 4.0, 2.5],
        "half_normal": {"sigma": 1.3, "tau": 0.7},
        "inverse_gamma": {"sigma": [2.0, 0.8], "tau": [3.0, 0.1]},
        "variances": [1e-4, 0.02, 0.6, 1.0, 3.7, 50.0],
        "w": {"hand": normals(11, 9).tolist(), "simulated": normals(12, 40).tolist()},
    }


def weights() -> dict[str, Any]:
    """Draws of phi for which distances of the hand-made case tie with the threshold."""
    return {
        "phi_draws": [[2.0, 4.0, 8.0, 4.0, 4.0, 16.0], [4.0, 1.0, 4.0, 32.0, 2.0, 8.0]],
        "distance": 0.25,
        "correlations": [0.2, 0.05, 0.6],
        "alpha": {
            "sigma_sq": [4.0, 3.83, 0.13, 1.0, 0.05],
            "tau_sq": [0.0625, 0.06, 0.043, 1.0, 0.4],
            "gamma": [0.0, 0.5, 4.0, 63.0, "Inf"],
            "alpha": [0.0, 0.02, 0.1],
        },
    }


def likelihood() -> dict[str, Any]:
    """Two simulated subsets whose maximum is inside the range; Baltimore's data are in cases."""
    table = load_simulated()
    out: dict[str, Any] = {"baltimore": {"start": {"range": 30.0, "nugget": 0.5}}}
    for name, first in (("first", 0), ("second", 100)):
        rows = table.iloc[first : first + 100]
        out[name] = {
            "words": f"simulated records {first + 1} to {first + 100}",
            "columns": {c: rows[c].tolist() for c in ("s1", "s2", "income")},
            "coords": ["s1", "s2"],
            "formula": "log(income) ~ s1",
            "a": [0.0] * 100,
            "start": {"range": 0.1, "nugget": 0.05},
            "phi_bounds": [1.0, 100.0],
        }
    return out


def regression() -> dict[str, Any]:
    """Copies of the Baltimore prices, and estimates to combine by hand."""
    price = np.array(load_baltimore()["price"], dtype=float)
    copies = np.round(price * np.exp(0.3 * normals(21, 5, len(price))))
    return {
        "copies": copies.tolist(),
        "estimates": [[1.0, 13.23, -2.0], [1.5, 13.24, -2.0], [0.7, 13.21, -2.0]],
        "variances": [[0.4, 3e-4, 1.0], [0.5, 4e-4, 1.5], [0.2, 2e-4, 1.1]],
        "level": 0.9,
    }


def diagnostics() -> dict[str, Any]:
    """Draws of several kinds, shape (chains, samples), and energies."""
    white = normals(31, 4, 200)
    # Halves of 120 draws: where halves are of odd length and chains don't mix, arviz-stats adds
    # one more pair of lags than posterior does (both are right to sum until the sums turn
    # negative, and then they never do).
    walk = np.zeros((4, 240))
    step = normals(32, 4, 240)
    walk[:, 0] = step[:, 0]
    for t in range(1, 240):
        walk[:, t] = 0.9 * walk[:, t - 1] + step[:, t]
    return {
        "draws": {
            "white noise": white.tolist(),
            "autocorrelated": rounded(walk, 9).tolist(),
            "chains apart": np.round(white + 0.4 * np.arange(4)[:, None], 9).tolist(),
            "heavy tails": np.round(np.tan(np.pi * (uniforms(33, 4, 200) - 0.5)), 9).tolist(),
            "many ties": np.round(normals(34, 2, 150), 1).tolist(),
            "odd length": normals(35, 4, 101).tolist(),
        },
        "energy": np.round(100 + np.cumsum(normals(36, 4, 200), axis=1), 9).tolist(),
        "probabilities": [0.0, 0.025, 0.25, 0.5, 0.975, 1.0],
    }


def survey() -> dict[str, Any]:
    """Survey weights of the Baltimore houses, and groups of them."""
    return {
        "weight": rounded(1.0 + 19.0 * uniforms(91, 211) ** 2, 3).tolist(),
        "group": ["abc"[int(3 * u)] for u in uniforms(92, 211)],
    }


def places() -> dict[str, Any]:
    """Places of two groups on a rectangle of cells, some of them on an L of the cells."""
    at = rounded(uniforms(101, 70, 2) * [4.0, 3.0], 4)
    return {
        "places": at.tolist(),
        "second": [int(u > 0.6) for u in uniforms(102, 70)],
        "width": 0.5,
        "reach": 0.75,
        "steps": 6,
    }


def truncated() -> dict[str, Any]:
    """Truncated normals: brackets of both kinds, open ends, tails."""
    return {
        "mean": [0.0, 1.0, 11.2, 11.2, -0.5, 0.0],
        "sd": [1.0, 2.0, 0.25, 0.25, 3.0, 1.0],
        "low": [-1.0, 0.0, 10.8, 11.5, "-Inf", 3.0],
        "high": [1.0, "Inf", 11.5, 12.2, 0.7, 5.0],
        "share": [0.05, 0.3, 0.5, 0.8, 0.99],
    }


def bracketed() -> dict[str, Any]:
    """Brackets of the hand-made case, scores of w, and normalising constants far out."""
    return {
        "cuts": [0.5, 1.5, 2.6],
        "z": normals(41, 9).tolist(),
        "tails": {
            "mean": [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0],
            "sd": [1.0, 1.0, 1.0, 1.0, 0.5, 0.5, 0.1, 1.0],
            "low": [-1.0, 8.0, -30.0, -40.5, 21.0, "-Inf", -2.0, 1.0],
            "high": [0.5, 9.0, -29.0, -40.0, "Inf", -24.0, 5.0, 1.001],
        },
    }


def bracketed_posterior() -> dict[str, Any]:
    """Eighty records in three brackets, two of them flagged, for JAGS."""
    n, cuts = 80, [1.2, 2.8]
    sites = uniforms(51, n, 2)
    sites[-1] = 1.5, 0.1
    x = normals(52, n)
    d = np.sqrt(((sites[:, None] - sites[None]) ** 2).sum(-1))
    factor = np.linalg.cholesky(1.5 * np.exp(-5.0 * d) + 0.3 * np.eye(n))
    y = rounded(2.0 + 0.7 * x + factor @ normals(53, n), 4)
    return {
        "words": "80 simulated records, two flagged, brackets cut at 1.2 and 2.8",
        "columns": {"u": sites[:, 0].tolist(), "v": sites[:, 1].tolist(), "x": x.tolist()},
        "y": y.tolist(),
        "cuts": cuts,
        "flagged": [10, n - 1],
        "watched": [0, 10, n - 1],
        "phi": 5.0,
        "beta_scale": [10.0, 5.0],
        "root": 1.0,
        "r_bounds": [1e-9, 1e9],
        "chains": 2,
        "warmup": 1000,
        "kept": 5000,
        "seed": 71,
    }


def san_francisco() -> dict[str, Any]:
    """Settings of the San Francisco twin; no value of the data."""
    return {
        "distance": 0.01,
        "phi_bounds": [20.0, 2000.0],
        "nodes": list(NODES),
        "r_bounds": list(R_BOUNDS),
        "beta_scale": [50.0, 5.0],
        "half_normal": {"sigma": 0.5, "tau": 0.4},
        **points((20.0, 2000.0), np.array([13.23, 0.27]), 0.13),
    }


def panel() -> dict[str, Any]:
    """Forty places with four years each, ten groups that are not nested in places."""
    place, year = np.repeat(np.arange(40), 4), np.tile(np.arange(4), 40)
    zips = (7 * place + 3 * year) % 10
    sites, x = uniforms(61, 40, 2)[place], normals(62, 160)
    step, noise, of_zip = normals(63, 40, 4), normals(64, 160), normals(65, 10)
    w = step.copy()
    for t in range(1, 4):
        w[:, t] = 0.7 * w[:, t - 1] + 0.7 * step[:, t]
    y = rounded(2.0 + 0.5 * x + w.ravel() + 0.6 * of_zip[zips] + 0.5 * noise, 6)
    names = ("phi", "c", "q", "sigma_sq", "r")
    at = ((3.0, 0.4, 0.3, 1.2, 0.25), (0.8, 0.05, 0.7, 2.0, 0.9), (20.0, 2.0, 0.05, 0.6, 0.05))
    return {
        "columns": {
            "a": sites[:, 0].tolist(),
            "b": sites[:, 1].tolist(),
            "place": place.tolist(),
            "year": year.tolist(),
            "zip": zips.tolist(),
            "x": x.tolist(),
            "y": y.tolist(),
        },
        "points": [dict(zip(names, values, strict=True)) for values in at],
        "phi": 3.0,
        "c": 0.4,
        "q": 0.4,
        "r": 0.25,
    }


TOPICS = {
    "cases": cases,
    "density": density,
    "weights": weights,
    "likelihood": likelihood,
    "regression": regression,
    "survey": survey,
    "diagnostics": diagnostics,
    "truncated": truncated,
    "bracketed": bracketed,
    "bracketed_posterior": bracketed_posterior,
    "san_francisco": san_francisco,
    "posterior": posterior,
    "multivariate": multivariate,
    "counts": counts,
    "panel": panel,
    "places": places,
}


def text_of(name: str) -> str:
    """Contents of one inputs file."""
    return json.dumps(TOPICS[name](), indent=None, separators=(", ", ": ")) + "\n"


def main() -> None:
    """Write every file."""
    INPUTS.mkdir(exist_ok=True)
    for name in TOPICS:
        (INPUTS / f"{name}.json").write_text(text_of(name), encoding="utf-8")
        print(f"inputs/{name}.json")


if __name__ == "__main__":
    main()
