# %% [markdown]
# # 11. Studios, one and two bedrooms: what do homes of one kind say about another?
#
# *Time: 30 minutes. Level: research: several correlated effects. Before it: example 4.*
#
# Section 6 of Quick, Holan and Wikle (2018) names a model for homes of several sizes: each number
# of bedrooms has a regression, a nugget and a spatial effect of its own, and the effects of one
# place go together, `Cov(w_k(s), w_l(s')) = T_kl R(phi)`. We fit it to the flats downtown in San
# Francisco and ask what a two-bedroom home without another one nearby borrows from the smaller
# flats around it, and what that means for its protection.

# %%
import os
from dataclasses import replace

import numpy as np
import pandas as pd
from plotnine import (
    aes,
    facet_wrap,
    geom_point,
    geom_tile,
    ggplot,
    labs,
    scale_x_continuous,
    theme,
)

import dsstan as ds
from dsstan.models.groups.effect_map import surface_by_group
from dsstan.models.groups.fit import fit_multivariate
from dsstan.models.weights import neighbour_distances
from dsstan.release.pictures.save import show

QUICK = bool(os.environ.get("DSSTAN_QUICK"))  # fewer copies and iterations, for the tests
SAMPLER = {"warmup": 200, "samples": 600} if QUICK else {"warmup": 1000, "samples": 1000}
COPIES = 200 if QUICK else 1000
CELLS, DRAWS = (20, 20) if QUICK else (40, 100)  # of a map
AREA = ["Downtown", "Nob Hill", "Financial District", "Chinatown"]
FORMULA = "log(price) ~ scale(log(squarefeet))"

homes = ds.load_san_francisco(bedrooms=[0, 1, 2])
sizes = homes.groupby("bedrooms")["squarefeet"]
for bedrooms, median in sizes.median().items():
    print(f"{bedrooms} bedrooms: median {median:.0f} square feet")

# %% [markdown]
# Homes with 0 bedrooms are larger than those with 2: in this file 0 mostly means that nobody
# entered the number. We count as studios those of at most 600 square feet and leave the others
# out.

# %%
studio = (homes["bedrooms"] == 0) & (homes["squarefeet"] <= 600)
flats = homes[homes["neighborhood"].isin(AREA) & (studio | (homes["bedrooms"] > 0))]
flats = flats.astype({"bedrooms": "int64"}).reset_index(drop=True)
problem = ds.prepare(
    flats, FORMULA, coords=("longitude", "latitude"), distance="projected", name="downtown"
)
print(f"{problem.n_records} flats at {problem.n_sites} sites")
print("by bedrooms:", flats["bedrooms"].value_counts().sort_index().to_dict())

# %% [markdown]
# Here the rare kind is the studio. A group so small learns its nugget and much of its regression
# from the prior; the fit says so in its notes where a coefficient can't be estimated at all.

# %%
free = fit_multivariate(problem, "bedrooms", seed=1, progress=False, **SAMPLER)
table = free.summary().drop(columns=["q50", "ess_tail"])
print(table.to_string(float_format=lambda v: f"{v:.3g}"))
for note in free.notes:
    print("note:", note)
print(f"verdict: {'passed' if free.verdict.passed else 'failed'}")

# %% [markdown]
# ## Do the effects go together?

# %%
low, middle, high = np.quantile(free.group_correlation[..., 2, 1], [0.025, 0.5, 0.975])
print(f"correlation of one and two bedrooms: median {middle:.2f}, 95% {low:.2f} to {high:.2f}")
low, middle, high = np.quantile(free.group_correlation[..., 1, 0], [0.025, 0.5, 0.975])
print(f"correlation of studios and one bedroom: median {middle:.2f}, 95% {low:.2f} to {high:.2f}")
below = (2.0 * np.random.default_rng(1).beta(2.5, 2.5, 100_000) - 1.0 < 0).mean()
share = (free.group_correlation[..., 2, 1] < 0).mean()
print(f"share below 0: prior {below:.2f}, posterior {share:.2f} (one and two bedrooms)")

# %% [markdown]
# The prior of each correlation is symmetric about 0, so what moved came from the homes.
#
# One map a group: posterior mean of the effect, in log dollars, and its posterior sd. Points are
# the group's own flats. The effect of a group is known where it has no flat of its own, too.

# %%
surface = surface_by_group(free, cells=CELLS, draws=DRAWS, progress=False)
KILOMETRES = np.arange(np.ceil(surface["x"].min()), surface["x"].max())
own = pd.DataFrame(problem.sites, columns=["x", "y"]).assign(group=flats["bedrooms"])
show(
    ggplot(surface, aes("x", "y"))
    + geom_tile(aes(fill="w"))
    + geom_point(data=own, size=0.8, fill="white")
    + facet_wrap("group", labeller=lambda k: f"{k} bedrooms")
    + scale_x_continuous(breaks=KILOMETRES)
    + labs(x="kilometres", y="kilometres", fill="w")
    + theme(figure_size=(8, 3.2)),
    "11_effect",
)

# %%
show(
    ggplot(surface, aes("x", "y"))
    + geom_tile(aes(fill="sd"))
    + geom_point(data=own, size=0.8, fill="white")
    + facet_wrap("group", labeller=lambda k: f"{k} bedrooms")
    + scale_x_continuous(breaks=KILOMETRES)
    + labs(x="kilometres", y="kilometres", fill="sd of w")
    + theme(figure_size=(8, 3.2)),
    "11_effect_sd",
)

# %% [markdown]
# ## Leaving homes out
#
# Take the two-bedroom homes whose next own kind is far while a smaller flat is near, and leave
# them out (protection `"cut"`): their prices inform nothing. Then predict their effect and their
# price twice, from all the flats and from the two-bedroom homes alone, with one decay for both.

# %%
group = free.groups.index
any_kind = neighbour_distances(problem, by_site=True)
own_kind = neighbour_distances(problem, by_site=True, within=group)
two = np.flatnonzero(flats["bedrooms"] == 2)
left = two[np.argsort(any_kind[two] - own_kind[two])[:8]]
out = np.zeros(problem.n_records)
out[left] = 1.0
decay = float(np.median(free.draws["phi"]))
together = fit_multivariate(
    problem,
    "bedrooms",
    weights=ds.own_weights(problem, out),
    protection="cut",
    start=free,
    phi=decay,
    seed=2,
    progress=False,
    **SAMPLER,
)
alone_problem = ds.prepare(
    flats.iloc[two].reset_index(drop=True),
    FORMULA,
    coords=("longitude", "latitude"),
    distance="projected",
)
where = np.searchsorted(two, left)
alone = fit_multivariate(
    alone_problem,
    "bedrooms",
    weights=ds.own_weights(alone_problem, np.isin(np.arange(len(two)), where)),
    protection="cut",
    phi=decay,
    seed=3,
    progress=False,
    **SAMPLER,
)


def effect_sd(fit, rows):
    """Posterior sd of the two-bedroom effect at the homes left out."""
    places = fit.problem.sites[rows]
    return surface_by_group(fit, places, groups=[2], draws=DRAWS, progress=False)["sd"].to_numpy()


def predictions(fit, rows):
    """Draws of the log price of the homes left out."""
    copies = ds.synthesise(
        fit, COPIES, seed=4, progress=False, accept_few_draws=True, rounding="none"
    )
    return copies.modelled()[:, rows]


truth = problem.y[left]
sds = {"all flats": effect_sd(together, left), "two bedrooms": effect_sd(alone, where)}
drawn = {"all flats": predictions(together, left), "two bedrooms": predictions(alone, where)}
print("distance in metres, sd of w, and sd of the predicted log price:")
print(
    pd.DataFrame(
        {
            "own kind": (1000 * own_kind[left]).round(),
            "any kind": (1000 * any_kind[left]).round(),
            **{f"sd w, {name}": v for name, v in sds.items()},
            **{f"sd price, {name}": v.std(axis=0) for name, v in drawn.items()},
        }
    ).to_string(index=False, float_format=lambda v: f"{v:.3g}")
)
for name, v in drawn.items():
    error = np.sqrt(np.mean((v.mean(axis=0) - truth) ** 2))
    print(f"from {name}: mean sd of w {sds[name].mean():.3f}, error of log price {error:.3f}")

# %% [markdown]
# Little is borrowed here: the correlation is barely known, so the model leans on the other kinds
# only a little, and eight homes say nothing firm on which prediction is better. What would be
# borrowed if the effects did go together? Take the same draws, with another correlation between the
# groups in T.

# %%


def with_correlation(fit, rho):
    """The same draws of all but the correlation between groups."""
    root = np.sqrt(fit.draws["sigma_sq"])
    n = root.shape[-1]
    T = root[..., :, None] * root[..., None, :] * (rho + (1.0 - rho) * np.eye(n))
    return replace(fit, draws={**fit.draws, "T": T})


for rho in (0.0, 0.5, 0.9, 0.99):
    mean_sd = effect_sd(with_correlation(together, rho), left).mean()
    print(f"correlation {rho:.2f}: mean sd of w {mean_sd:.3f}")

# %% [markdown]
# ## What borrowing means for protection
#
# A home may stand alone within its kind though other homes are near. Which rule flags it is a
# choice: by default neighbours of every kind count, since all of them inform the surface;
# `within_group=True` counts the own kind only.

# %%
M = 0.25  # kilometres
rules = {
    "every kind": ds.flag_isolated(free, distance=M, by_site=True),
    "own kind": ds.flag_isolated(free, distance=M, by_site=True, within_group=True),
}
for name, flags in rules.items():
    count = flats["bedrooms"][flags.flagged].value_counts().sort_index().to_dict()
    print(f"{name}: {flags.n_flagged} flats flagged, by bedrooms {count}")

# %%
kept = fit_multivariate(
    problem, "bedrooms", weights=rules["own kind"], start=free, seed=5, progress=False, **SAMPLER
)
release = ds.synthesise(kept, 50, seed=6, progress=False)
risks = ds.disclosure(release, relative=0.10)
shares = {k: risks.records[f"within_relative_{k}"] for k in ("unrestricted", "restricted")}
for label in free.groups.labels:
    members = (flats["bedrooms"] == label) & rules["own kind"].flagged
    means = ", ".join(f"{k} {v[members].mean():.2f}" for k, v in shares.items())
    print(f"{label} bedrooms, flagged flats, copies within 10%: {means}")

# %% [markdown]
# Smoothing acts on the spatial effect. A group of few records has a regression of its own, which
# follows its records whatever A is; protection `"cut"` alone keeps it from them.
#
# ## Exercises
#
# 1. Fit with `lkj_eta=20`. What happens to the correlations, and to the sd of w of the homes left
#    out?
# 2. Put the studios with the one-bedroom homes (`flats["bedrooms"].clip(lower=1)`). Does the
#    prediction of the two-bedroom homes change?
# 3. Protect the studios with `protection="cut"` and own weights. Where do their copies come from?
