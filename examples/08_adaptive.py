# %% [markdown]
# # 8. Adaptive smoothing: what if the weights follow the parameters?
#
# *Time: 20 minutes. Level: research: models whose weights depend on parameters. Before it:
# examples 2 and 3.*
#
# Section 6 of Quick, Holan and Wikle (2018), "the paper" below, suggests a way without flags. The
# weight of a record grows with the distance d to its nearest neighbour, and the variances say
# how far to smooth:
#
# - `a_i = 1 - exp(-phi d_i)`
# - `gamma = max(0, sigma_sq / tau_sq - 1)`
#
# Both change with every draw of the sampler. The paper leaves open whether that converges
# and what it does to the records. We fit it beside the two-stage way of
# [example 2](02_differential_smoothing.ipynb), look at who is smoothed, and measure what an
# intruder learns about the isolated records and about the others.

# %%
import os

import numpy as np
import pandas as pd
from plotnine import aes, facet_wrap, geom_hline, geom_point, ggplot, labs, scale_x_log10

import dsstan as ds
from dsstan.models.adaptive.fit import fit_adaptive
from dsstan.release.pictures.save import show
from dsstan.risk.intruder.attacker import attack

QUICK = bool(os.environ.get("DSSTAN_QUICK"))  # fewer records and draws, for the tests
COPIES = 20
DRAWN = 400  # copies behind the shares, so that chance barely moves them
DRAWS = 10 if QUICK else 40  # posterior draws behind the intruder's sds
SAMPLER = {"warmup": 1000, "samples": 1500}

# %% [markdown]
# ## The town
#
# The simulated incomes of [example 3](03_simulated_study.ipynb): 500 people, three of whom have no
# neighbour within 0.13, one of these on a very low income. (The tests take every third person.)
# The truth is `sigma_sq = 4`, `tau_sq = 0.0625`, `phi = 12.7`.

# %%
people = ds.load_simulated()
if QUICK:
    people = people.iloc[1::3].reset_index(drop=True)
problem = ds.prepare(people, "log(income) ~ 1", coords=("s1", "s2"), name="simulated")
free = ds.fit(problem, seed=1, progress=False, **SAMPLER)
flags = ds.flag_isolated(free, distance=0.13)
alone = flags.flagged
print(problem)
print(f"{alone.sum()} people have no neighbour within 0.13")

# %% [markdown]
# ## Four fits
#
# - **two-stage**: the paper's main method. Flags from M, gamma infinite, phi held.
# - **ratio**: the paper's suggestion.
# - **alpha 0.2**: the same weights, with the gamma that leaves a record far from all others a fifth
#   of its own deviation. The ratio rule is alpha = 1/2.
# - **step**: the paper's flag made smooth, a step in log distance about M(phi) = -log(0.20) / phi.
#   As its width goes to 0 it is the flag; the likelihood would then jump in phi.

# %%
common = {"start": free, "progress": False, **SAMPLER}
fits = {
    "unrestricted": free,
    "two-stage": ds.fit(problem, weights=flags, seed=2, **common),
    "ratio": fit_adaptive(problem, seed=3, **common),
    "alpha 0.2": fit_adaptive(problem, rule="alpha", alpha=0.2, seed=4, **common),
    "step": fit_adaptive(problem, rule="step", seed=5, **common),
}


def posterior_row(fit):
    """Convergence, and the variances with their 95% intervals."""
    row = {"passed": fit.verdict.passed, "ess": round(fit.worst_ess)}
    for name in ("sigma_sq", "tau_sq"):
        low, middle, high = np.quantile(fit.draws[name], [0.025, 0.5, 0.975])
        row[name] = f"{middle:.3g} ({low:.2g}, {high:.2g})"
    row["phi"] = f"{np.median(fit.draws['phi']):.3g}"
    return row


print(pd.DataFrame({name: posterior_row(fit) for name, fit in fits.items()}).T.to_string())

# %% [markdown]
# All converge: the kink of gamma at `tau_sq = sigma_sq` costs the sampler nothing, and the surface
# of the likelihood has one panel on each side of it. But look at `tau_sq`. What smoothing takes
# from w has to go somewhere, and the nugget takes it up.
#
# ## Who is smoothed?
#
# `A^2` is the share of the variance of w that a record keeps.

# %%
parts = []
for name in ("two-stage", "ratio", "alpha 0.2", "step"):
    kept = pd.DataFrame({"distance": flags.nearest, "kept": fits[name].A ** 2, "alone": alone})
    kept["alone"] = np.where(alone, "stands alone", "has neighbours")
    parts.append(kept[kept["distance"] > 0].assign(fit=name))
shown = pd.concat(parts)
print(shown.groupby(["fit", "alone"])["kept"].mean().unstack().round(3).to_string())
show(
    ggplot(shown, aes("distance", "kept", colour="alone"))
    + geom_hline(yintercept=0, colour="#bbbbbb")
    + geom_point(size=0.9)
    + scale_x_log10()
    + facet_wrap("fit")
    + labs(
        x="distance to the nearest neighbour (log scale)",
        y="share of the variance of w kept, A squared",
        colour="record",
    ),
    "08_adaptive",
)

# %% [markdown]
# With the paper's suggestion almost everybody is smoothed. The weight of a record with a neighbour
# at a tenth of the effective range is already a quarter, and gamma is large where the nugget is
# small.
#
# ## What an intruder learns
#
# `share` is that of copies within 10% of the true income, over 400 copies, and `sd` what an
# intruder who knows all others, and the variances behind each copy, is left with after 20 copies
# (log scale).

# %%
rows = {}
for name, fit in fits.items():
    release = ds.synthesise(fit, DRAWN, seed=9, accept_few_draws=True, progress=False)
    near = np.abs(release.values / problem.original() - 1.0) <= 0.10
    found = attack(release, copies=COPIES, against=free, draws=DRAWS, progress=False)
    sd = found.sd(variances="known")
    rows[name] = {
        "share, alone": near[:, alone].mean(),
        "share, others": near[:, ~alone].mean(),
        "sd, alone": sd[alone].min(),
        "sd, others": sd[~alone].min(),
        "sd, median other": np.median(sd[~alone]),
    }
table = pd.DataFrame(rows).T
print(table.round(3).to_string())

# %% [markdown]
# Three things to see.
#
# - **The paper's suggestion blurs the whole map.** The copies of those who were safe among
#   neighbours leave the truth as those of the isolated records do, since both carry the larger
#   nugget. The intruder's sd is larger for everybody: noise protects. The analyst gets that
#   noise too.
# - **The isolated records get no special treatment.** Given the variances, a record far from all
#   others keeps half of its own deviation (alpha = 1/2), so its copies are near the truth
#   more often than with flags. A smaller alpha smooths further, and inflates the nugget further.
# - **The step protects almost nobody.** Where the flag follows phi, the posterior moves phi until
#   the isolated records are barely smoothed: the data fit better so. The two-stage method holds
#   phi, and this is why it should.

# %% [markdown]
# ## Exercises
#
# 1. Let the weights look at the fifth neighbour (`neighbour=5`). Who gains?
# 2. Fit the step with widths 0.5, 0.25 and 0.15. What happens to phi, and to `fit.nodes`? What
#    does a width of 0.05 say?
# 3. Take `protection="preserving"`, for the step and for the paper's suggestion. For which of them
#    does `tau_sq` stay where it was without smoothing, and why not for the other?
