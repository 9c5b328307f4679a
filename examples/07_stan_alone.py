# %% [markdown]
# # 7. Stan alone: does the Python package add anything to the model?
#
# *Time: 20 minutes. Level: second course: a little Stan. Before it: example 4.*
#
# The models are Stan programs that can be read and run without Python. Here the restricted fit of
# San Francisco is done twice: with `ds.fit`, and with CmdStan's own command line on a JSON file.
# If the programs say all, both give the same posterior up to Monte Carlo error.
#
# Where there is no CmdStan or no compiler the next cell says so, and the embedded engine runs the
# same program on the same data instead.

# %%
import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
from arviz_stats.base import array_stats
from plotnine import (
    aes,
    element_blank,
    facet_wrap,
    geom_density,
    ggplot,
    labs,
    scale_color_manual,
    scale_linetype_manual,
    theme,
    theme_bw,
)
from scipy import stats

import dsstan as ds
from dsstan.core.files.workspace import private_folder
from dsstan.engines import CmdStanEngine, EmbeddedEngine, SamplerSettings
from dsstan.engines.base import jsonable
from dsstan.engines.programs import Program
from dsstan.release.pictures.save import show

QUICK = bool(os.environ.get("DSSTAN_QUICK"))  # fewer copies and iterations, for the tests
WARMUP, SAMPLES = (500, 800) if QUICK else (1000, 1000)
CHAINS = 4
program = Program("restricted")
lacking = CmdStanEngine.missing()
print("CmdStan is here" if lacking is None else f"no CmdStan here, the embedded engine: {lacking}")

# %% [markdown]
# ## The fit in Python
#
# 214 one-bedroom homes, seven of them flagged; `04_san_francisco.py` tells their story.

# %%
homes = ds.load_san_francisco(bedrooms=1)
problem = ds.prepare(
    homes,
    "log(price) ~ scale(log(squarefeet))",
    coords=("longitude", "latitude"),
    distance="degrees",
)
SAMPLER = {"chains": CHAINS, "warmup": WARMUP, "samples": SAMPLES, "progress": False}
free = ds.fit(problem, seed=1, **SAMPLER)
flags = ds.flag_isolated(free, distance=0.01)
kept = ds.fit(problem, weights=flags, start=free, program="natural", seed=2, **SAMPLER)
print(f"{kept.engine} ran {kept.program}.stan, verdict {kept.verdict}")

# %% [markdown]
# ## The program
#
# `stan/restricted.stan` begins with what it is a model of. Its data block and its model block:


# %%
def block(name):
    """One block of the program as it is written."""
    lines = program.source.splitlines()
    first = lines.index(f"{name} {{")
    return "\n".join(lines[first : lines.index("}", first) + 1])


print(block("data"), block("parameters"), block("model"), sep="\n\n")

# %% [markdown]
# ## The data
#
# `stan/README.md` has each name, its unit and its meaning. Nothing is rescaled: `y` is the log of
# the price in dollars, `coords` are degrees, `phi` is per degree. `A` is 0 for the flagged homes
# and 1 for all others: gamma is infinite, and no infinity enters the arithmetic.
#
# Python's fit started from an unrestricted one to get the decay. That one number is all that the
# restricted model takes from it.

# %%
priors = kept.priors
data = {
    "N": problem.n_records,
    "P": problem.n_terms,
    "X": problem.X,
    "y": problem.y,
    "coords": problem.sites,
    "A": np.where(flags.flagged, 0.0, 1.0),
    "protection": 1,  # paper
    "cov_model": 1,  # exponential
    "phi": float(np.median(free.draws["phi"])),
    "r_lower": priors.r_bounds[0],
    "r_upper": priors.r_bounds[1],
    "beta_scale": priors.beta_scale,
    "variance_prior": 1,  # half-normal on the roots sigma and tau
    "sigma_par": priors.sigma,
    "tau_par": priors.tau,
    "H": 56,  # nodes in log r
    "n_check": 5,  # points at which the program measures its own interpolation
    "check_r": np.geomspace(priors.r_bounds[0], priors.r_bounds[1], 5),
    "draw_latent": 0,
}
text = json.dumps(jsonable(data))
for name, value in json.loads(text).items():
    shown = json.dumps(value)
    print(f"{name}: {shown if len(shown) < 70 else shown[:60] + ' ...'}")

# %% [markdown]
# ## CmdStan's command line
#
# Without Python, two commands do it (`stan/README.md` has them in full):
#
#     make STANCFLAGS="--include-paths=$DSSTAN/stan" "$RUN/restricted"
#     "$RUN/restricted" sample ... data file=data.json output file=restricted.csv
#
# Here the compiled program is taken from the package's cache, so that it is not compiled twice.
# CmdStan reads and writes files, and both are confidential: the data, and draws that reveal
# single records. So they live in a private folder that is removed when the block ends.


# %%
def run_cmdstan(folder):
    """Draws of CmdStan, one row a draw, from its own files."""
    (folder / "data.json").write_text(text, encoding="utf-8")
    command = [
        str(CmdStanEngine().executable(program)),
        *f"sample num_chains={CHAINS} num_warmup={WARMUP} num_samples={SAMPLES}".split(),
        *["adapt", "delta=0.9", "algorithm=hmc", "metric=dense_e", "random", "seed=3"],
        *["data", "file=data.json", "output", "file=restricted.csv", "sig_figs=17"],
    ]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    print(" ".join(["restricted", *command[1:]]))
    files = sorted(folder.glob("restricted_*.csv"))
    print("wrote", ", ".join(file.name for file in files))
    chains = [pd.read_csv(file, comment="#") for file in files]
    return pd.concat(chains, keys=range(len(chains)), names=["chain", "draw"])


def run_embedded():
    """The same from the embedded engine, in the same form."""
    b, *_ = np.linalg.lstsq(problem.X, problem.y, rcond=None)
    start = {"beta": b, "sigma_sq": 0.1, "tau_sq": 0.05}
    drawn = EmbeddedEngine().sample(
        program,
        json.loads(text),
        settings=SamplerSettings(CHAINS, WARMUP, SAMPLES),
        seed=3,
        inits=[start] * CHAINS,
    )
    columns = [name.replace("[", ".").replace("]", "") for name in drawn.names]
    chains = [pd.DataFrame(values, columns=columns) for values in drawn.values]
    for table, sampler in zip(chains, drawn.sampler, strict=True):
        table["divergent__"] = sampler[:, 2]
    print("the embedded engine ran restricted.stan on the same data")
    return pd.concat(chains, keys=range(CHAINS), names=["chain", "draw"])


with private_folder() as folder:
    alone = run_cmdstan(folder) if lacking is None else run_embedded()
print("the private folder is gone:", not Path(folder).exists())

# %%
print(f"{len(alone)} draws, {int(alone['divergent__'].sum())} divergent")
print(f"largest error of the interpolated log density {alone['surface_error'].max():.1e}")
print(alone[["beta.1", "beta.2", "sigma_sq", "tau_sq"]].describe().loc[["mean", "std"]])

# %% [markdown]
# ## The same posterior?
#
# Two runs of a sampler never agree to the digit. The difference of two means has a standard error,
# made of both Monte Carlo errors. We call them the same where no difference is larger than `limit`
# of its standard errors: two equal posteriors would fail that about once in 100,000 tables.

# %%
NAMES = {"beta.1": "beta_0", "beta.2": "beta_1", "sigma_sq": "sigma_sq", "tau_sq": "tau_sq"}
limit = stats.norm.isf(1e-5 / (2 * len(NAMES)))


def mean_and_error(draws):
    """Mean of draws of shape (chains, samples), and its Monte Carlo standard error."""
    error = array_stats.mcse(draws, chain_axis=0, draw_axis=1, method="mean")
    return float(np.mean(draws)), float(error)


rows = {}
for column, name in NAMES.items():
    mean_stan, error_stan = mean_and_error(alone[column].to_numpy().reshape(CHAINS, SAMPLES))
    mean_fit, error_fit = mean_and_error(kept.scalars[name])
    error = np.hypot(error_stan, error_fit)
    rows[name] = [mean_stan, mean_fit, error, (mean_stan - mean_fit) / error]
table = pd.DataFrame(rows, index=["Stan alone", "ds.fit", "standard error", "z"]).T
print(table.round({"Stan alone": 5, "ds.fit": 5, "standard error": 6, "z": 2}).to_string())
within = int((table["z"].abs() < limit).sum())
ran = "CmdStan" if lacking is None else "the embedded engine"
print(f"\n{ran} alone: {within} of {len(table)} means within {limit:.1f} standard errors")

# %% [markdown]
# Both run the same program; the package brings the data, the starting values, the checks and what
# comes after. The two posteriors of the variances, drawn over each other:

# %%
sources = {"Stan alone": alone[["sigma_sq", "tau_sq"]], "ds.fit": None}
sources["ds.fit"] = pd.DataFrame({k: kept.draws[k].ravel() for k in ("sigma_sq", "tau_sq")})
long = pd.concat([t.melt(var_name="parameter").assign(run=run) for run, t in sources.items()])
show(
    ggplot(long, aes("value", color="run", linetype="run"))
    + geom_density(size=0.9)
    + facet_wrap("parameter", scales="free")
    + scale_color_manual({"Stan alone": "#d95f02", "ds.fit": "#1b6ca8"}, name="run")
    + scale_linetype_manual({"Stan alone": "dashed", "ds.fit": "solid"}, name="run")
    + labs(x="variance of the log price", y="posterior density")
    + theme_bw()
    + theme(figure_size=(7, 3.2), legend_position="bottom", panel_grid_minor=element_blank()),
    "07_posteriors",
)

# %% [markdown]
# ## Exercises
#
# 1. Set `protection` to 2 (preserving) in the JSON data. Which of the four means moves most, in
#    units of its posterior sd?
# 2. Set `draw_latent` to 1. Which columns are new in the output, and where do the
#    `y_synthetic` of the first flagged home centre?
# 3. Set `H` to 12. What does `surface_error` say, and do the means still agree?
# 4. Set `A` to 1 for all homes. Compare `tau_sq` with that of the unrestricted fit, `free`.
