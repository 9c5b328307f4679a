"""Make the folder of posteriors: data, programs and reference draws, laid out as posteriordb does.

Three posteriors of Gaussian processes in the plane whose geometry is hard for samplers: a decay
that the table hardly knows, a nugget of 2% of the partial sill, and a smoothed outlier. The
reference draws are independent ones of :mod:`dsstan.engines.direct`, not chains.

Run ``python data/posteriors/make_posteriors.py`` from the top of the repository to write the files
again.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import json
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.spatial.distance import cdist

import dsstan as ds
from dsstan.engines.base import jsonable
from dsstan.models.result import Fit
from dsstan.table.problem import Problem

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = "gaussian_process_2d"
CHAINS, DRAWS = 10, 1000
"""Reference draws, as posteriordb has them."""
DIGITS = 8
PARAMETERS = ("sigma_sq", "tau_sq", "phi")


@dataclass(frozen=True)
class Posterior:
    """One posterior: its name, a title, what it is, and the fit with its reference draws."""

    name: str
    title: str
    about: str
    fit: Fit


def small_table() -> pd.DataFrame:
    """The table of ``stan/data``."""
    path = ROOT / "stan" / "data" / "make_data.py"
    spec = importlib.util.spec_from_file_location("make_data", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    table: pd.DataFrame = module.table()
    return table


def weak_nugget() -> pd.DataFrame:
    """100 records on the unit square whose nugget is 2% of the partial sill."""
    rng = np.random.default_rng(11)
    sites = rng.uniform(size=(100, 2)).round(3)
    cov = np.exp(-4.0 * cdist(sites, sites)) + 0.02 * np.eye(100)
    y = (1.0 + np.linalg.cholesky(cov) @ rng.standard_normal(100)).round(4)
    return pd.DataFrame({"s1": sites[:, 0], "s2": sites[:, 1], "y": y})


def outlier() -> pd.DataFrame:
    """The town of ``data/simulated``: every third record, and the outlier."""
    town = ds.load_simulated()
    rows = np.union1d(np.arange(0, len(town), 3), [len(town) - 1])
    return town.iloc[rows].reset_index(drop=True)


def posteriors() -> list[Posterior]:
    """The three, with their draws."""
    direct = {"engine": "direct", "chains": CHAINS, "samples": DRAWS, "progress": False}
    where = {"coords": ("s1", "s2")}
    small = ds.prepare(small_table(), "y ~ x", name="small_table", **where)
    weak = ds.prepare(weak_nugget(), "y ~ 1", name="weak_nugget", **where)
    town = ds.prepare(outlier(), "log(income) ~ 1", name="town_with_outlier", **where)
    free = ds.fit(town, seed=3, **direct)
    flags = ds.flag_isolated(free, distance=0.2)
    kept = ds.fit(town, weights=flags, start=free, hold_phi=False, seed=4, **direct)
    return [
        Posterior(
            small.name,
            "Sixty records on the unit square",
            "A covariate, two shared sites, a nugget of a tenth of the partial sill.",
            ds.fit(small, seed=1, **direct),
        ),
        Posterior(
            weak.name,
            "A weak nugget",
            "A nugget of 2% of the partial sill, and an effect that reaches across the square.",
            ds.fit(weak, seed=2, **direct),
        ),
        Posterior(
            town.name,
            "A smoothed outlier",
            "One record without neighbours, to which the spatial effect is not added (gamma = "
            "infinity), as in differential smoothing.",
            kept,
        ),
    ]


def program() -> str:
    """The program in one file: what it includes stands in it."""
    text = (ROOT / "stan" / "reference" / "cholesky.stan").read_text(encoding="utf-8")

    def included(found: re.Match[str]) -> str:
        body = (ROOT / "stan" / found[1]).read_text(encoding="utf-8")
        return "".join(f"  {line}" if line.strip() else line for line in body.splitlines(True))

    return re.sub(r"^ *#include (\S+)\n", included, text, flags=re.MULTILINE)


def stan_data(fit: Fit) -> dict[str, Any]:
    """What the program reads."""
    problem: Problem = fit.problem
    low, high = fit.priors.phi_bounds
    return {
        "N": problem.n_records,
        "P": problem.n_terms,
        "X": problem.X,
        "y": problem.y,
        "coords": problem.sites,
        "cov_model": 1,
        "A": fit.A,
        "protection": 1,
        "phi_lower": low,
        "phi_upper": high,
        **fit.priors.stan_data(),
    }


def draws(fit: Fit) -> list[dict[str, list[float]]]:
    """One mapping a chain, from the parameter to its draws."""
    every = {f"beta[{k + 1}]": fit.draws["beta"][..., k] for k in range(fit.problem.n_terms)}
    every |= {name: fit.draws[name] for name in PARAMETERS}
    return [
        {name: [float(f"{v:.{DIGITS}g}") for v in values[chain]] for name, values in every.items()}
        for chain in range(CHAINS)
    ]


def zipped(name: str, content: Any) -> bytes:
    """A file of JSON in an archive, the same bytes each time."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
        entry.compress_type = zipfile.ZIP_DEFLATED
        archive.writestr(entry, json.dumps(content, separators=(",", ":")))
    return stream.getvalue()


def files(made: list[Posterior]) -> dict[str, bytes]:
    """Every file of the folder, by its path."""

    def written(content: Any) -> bytes:
        return (json.dumps(content, indent=2) + "\n").encode()

    model = f"models/stan/{PROGRAM}.stan"
    found = {
        model: program().encode(),
        f"models/info/{PROGRAM}.info.json": written(
            {
                "name": PROGRAM,
                "keywords": ["gaussian process", "spatial", "geostatistics"],
                "title": "A Gaussian process in the plane with a nugget, integrated out",
                "description": "Marginal likelihood by one Cholesky factor a gradient.",
                "model_implementations": {
                    "stan": {"model_code": model, "stan_version": ">=2.26.0"}
                },
            }
        ),
    }
    for one in made:
        name = f"{one.name}-{PROGRAM}"
        data, draw = f"data/data/{one.name}.json", f"reference_posteriors/draws/draw/{name}.json"
        terms = one.fit.problem.n_terms
        found[f"{data}.zip"] = zipped(f"{one.name}.json", jsonable(stan_data(one.fit)))
        found[f"data/info/{one.name}.info.json"] = written(
            {
                "name": one.name,
                "keywords": ["spatial"],
                "title": one.title,
                "description": one.about,
                "data_file": data,
            }
        )
        found[f"posteriors/{name}.json"] = written(
            {
                "name": name,
                "keywords": ["gaussian process", "spatial"],
                "model_name": PROGRAM,
                "data_name": one.name,
                "reference_posterior_name": name,
                "dimensions": {"beta": terms, **dict.fromkeys(PARAMETERS, 1)},
            }
        )
        found[f"{draw}.zip"] = zipped(f"{name}.json", draws(one.fit))
        found[f"reference_posteriors/draws/info/{name}.info.json"] = written(
            {
                "name": name,
                "inference": {
                    "method": "independent draws by tables and rejection (dsstan, engine direct)",
                    "method_arguments": {"chains": CHAINS, "draws": DRAWS},
                },
                "diagnostics": {
                    "ndraws": CHAINS * DRAWS,
                    "nchains": CHAINS,
                    "effective_sample_size_bulk": _column(one.fit, "ess_bulk", "min"),
                    "r_hat": _column(one.fit, "rhat", "max"),
                },
                "checks_made": {"independent_draws": True},
                "comments": one.about,
            }
        )
    return found


def _column(fit: Fit, name: str, how: str) -> float:
    """The worst of a column of the fit's summary."""
    return float(f"{getattr(fit.summary()[name], how)():.6g}")


def main() -> None:
    """Write the folder."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "posterior_database")
    out = parser.parse_args().out
    for path, content in files(posteriors()).items():
        (out / path).parent.mkdir(parents=True, exist_ok=True)
        (out / path).write_bytes(content)


if __name__ == "__main__":
    main()
