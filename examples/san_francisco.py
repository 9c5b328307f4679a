# %% [markdown]
# # San Francisco: what does protection change, and what do the paper's numbers say?
#
# Section 5 of Quick, Holan and Wikle (2018): 214 sales of one-bedroom homes, the
# log price modelled by the log of the square feet and a Gaussian process. Seven
# homes stand alone on the map. We fit the model with and without differential
# smoothing, and put every figure beside the paper's.

# %%
import numpy as np
import pandas as pd

import dsstan as ds

FORMULA = "log(price) ~ scale(log(squarefeet))"
PRICE_WITHIN = 0.10  # the paper's tolerance, as a share of the true price

homes = ds.load_san_francisco(bedrooms=1)
problem = ds.prepare(
    homes, FORMULA, coords=("longitude", "latitude"), distance="degrees", name="san-francisco"
)
print(problem)

# %% [markdown]
# ## The unrestricted fit, the flags, the restricted fit
#
# The paper does not print its threshold. Its seven homes are those with no
# neighbour within M, for any M above 0.0074 and up to 0.0130 degrees; we take 0.01.

# %%
free = ds.fit(problem, seed=1)
flags = ds.flag_isolated(free, distance=0.01)
kept = ds.fit(problem, weights=flags, start=free, seed=2)
release = ds.synthesise(kept, copies=500, seed=3)
print(free, kept, sep="\n\n")

# %%
alone = flags.table(problem)[flags.flagged].drop(columns=["weight", "flagged"])
print(f"{flags.n_flagged} homes with no neighbour within {flags.threshold} degrees")
print(alone.sort_values("neighbour_distance", ascending=False).to_string(index=False))
by_rule = ds.flag_isolated(free, correlation=0.20)
print(
    f"The paper's rule c = 0.20 gives M = {by_rule.threshold:.4f} degrees here "
    f"and flags {by_rule.n_flagged}"
)

# %% [markdown]
# ## Beside the paper
#
# The home at (-122.48, 37.76) is one of the two most isolated.

# %%
home = int(np.argmax(flags.nearest * (np.round(problem.coords[:, 0], 2) == -122.48)))
risks = ds.disclosure(release, against=free, relative=PRICE_WITHIN)
kept_by_analyst = ds.utility(release, FORMULA)
slope = problem.terms[1]


def level(fit):
    """Posterior mean of x'beta at the home."""
    return float((fit.draws["beta"] @ problem.X[home]).mean())


def share(kind):
    """Share of copies of the home within ten per cent of its price."""
    return float(risks.records[f"within_relative_{kind}"].iloc[home])


def fall(group):
    """Percentage by which protection lowers a group's mean share."""
    r = risks.reduction
    return float(r[r["group"] == group]["percent"].iloc[0])


def estimate(source, term):
    return float(kept_by_analyst.get(source, term)["estimate"])


rows = [
    ("partial sill sigma_sq, unrestricted", 0.13, free.draws["sigma_sq"].mean()),
    ("nugget tau_sq, unrestricted", 0.043, free.draws["tau_sq"].mean()),
    ("y at the home", 13.30, problem.y[home]),
    ("x'beta at the home, unrestricted", 14.15, level(free)),
    ("x'beta at the home, restricted", 14.04, level(kept)),
    ("within 10% at the home, unrestricted (%)", 46.2, 100 * share("unrestricted")),
    ("within 10% at the home, restricted (%)", 3.0, 100 * share("restricted")),
    ("reduction at the home (%)", 93, 100 * (1 - share("restricted") / share("unrestricted"))),
    ("reduction, flagged (%)", 50, fall("flagged")),
    ("reduction, others (%)", 11, fall("unflagged")),
    ("intercept, real data", 13.232, estimate("original", "Intercept")),
    ("intercept, restricted copies", 13.233, estimate("restricted", "Intercept")),
    ("slope, real data", 0.2706, estimate("original", slope)),
    ("slope, restricted copies", 0.269, estimate("restricted", slope)),
]
comparison = pd.DataFrame(rows, columns=["quantity", "paper", "here"]).set_index("quantity")
print(comparison.to_string(float_format=lambda v: f"{v:.4g}"))

# %% [markdown]
# ## Why some differ
#
# - **sigma_sq and tau_sq are smaller here.** The paper does not print its priors.
#   Half-normal priors on the roots let the nugget be small; an inverse gamma with a
#   fixed scale holds both up, the nugget most.
# - **46.2% within ten per cent is out of reach** with the paper's own nugget: a
#   normal with variance 0.043 puts at most the share printed below within ten per
#   cent of any point.
# - **The rule c = 0.20 flags none or few**: phi is weakly identified, and with this
#   posterior the threshold lies beyond every home's distance. The seven come
#   from M.
# - **The reductions agree**, though the shares do not: they are ratios.
# - The intercept and slope of the real data agree once the covariate is the log of
#   the square feet, centred and divided by its standard deviation; the paper does
#   not say log.

# %%
from scipy import stats  # noqa: E402

sd = np.sqrt(0.043)
offsets = np.linspace(-0.3, 0.3, 601)
most = max(stats.norm.cdf(np.log(1.1), m, sd) - stats.norm.cdf(np.log(0.9), m, sd) for m in offsets)
print(f"Most that a nugget of 0.043 allows within ten per cent: {100 * most:.1f}%")

# %% [markdown]
# ## Exercises
#
# 1. Flag by the second nearest neighbour. Which pairs of homes appear?
# 2. Use `protection="preserving"`. What happens to x'beta at the home, and why?
# 3. Set `ds.Priors(variance="inverse-gamma", sigma=(2, 1), tau=(2, 1))`. Which rows
#    move towards the paper's, and which away?
