# %% [markdown]
# # 2. Differential smoothing: how far is a record at risk smoothed, and what becomes of the rest?
#
# *Time: 30 minutes. Level: second course: Gaussian processes. Before it: example 1.*
#
# Section 3 of Quick, Holan and Wikle (2018). The surface reveals a record that stands
# alone. The paper's remedy smooths such records more than the others: it finds them by a
# rule, and shrinks what the model may know of each about its own place. This page turns
# the one knob, $\gamma$, from 0 to infinity, and then asks what becomes of the variance
# that smoothing removes.
#
# The town is simulated, and its data are public. With real data every picture on this
# page belongs on the confidential side.

# %%
import os

import numpy as np
import pandas as pd
import plotnine as p9

import dsstan as ds
from dsstan.models.posterior import spread_draws
from dsstan.models.weights import (
    alpha_from_gamma,
    gamma_from_alpha,
    isolation_distance,
    neighbour_distances,
    smoothing,
)
from dsstan.release.pictures.plots import plot_surfaces
from dsstan.release.pictures.save import show

QUICK = bool(os.environ.get("DSSTAN_QUICK"))  # fewer copies and iterations, for the tests
COPIES = 40 if QUICK else 150
RED, BLUE, GREY = "#d7191c", "#0571b0", "#4d4d4d"
STEPS = "gamma (one step to the next value tried; not to scale)"

problem = ds.prepare(ds.load_simulated(), "log(income) ~ 1", coords=("s1", "s2"), name="simulated")
free = ds.fit(problem, seed=1, progress=False)
nearest = neighbour_distances(problem)
alone = int(np.argmax(nearest))
crowded = int(np.argmin(neighbour_distances(problem, neighbour=10)))
truth = problem.y[alone]
print(free)

# %% [markdown]
# ## Who is at risk?
#
# The paper's rule flags a record with no neighbour within $M = -\log(c) / \phi$. At that
# distance the correlation has fallen to $c$, and $\phi$ is the posterior median of the
# unrestricted fit. A small $c$ asks for more loneliness.

# %%
phi = float(np.median(free.draws["phi"]))
rules = []
for c in (0.05, 0.10, 0.20, 0.27, 0.40):
    M = isolation_distance(c, phi)
    rules.append({"c": c, "M": round(M, 3), "flagged": int((nearest >= M).sum())})
print(f"phi, posterior median: {phi:.1f}")
print(pd.DataFrame(rules).to_string(index=False))

# %% [markdown]
# $M$ rests on $\phi$, and $\phi$ is not known well. `probability` is the share of posterior
# draws of $\phi$ under which the same $c$ flags a record. The picture shows it for
# the paper's $c = 0.20$; the vertical line is $M$.

# %%
by_rule = ds.flag_isolated(free, correlation=0.20)
isolated = by_rule.table(problem)[nearest > 0.04]
show(
    p9.ggplot(isolated, p9.aes("neighbour_distance", "probability"))
    + p9.geom_vline(xintercept=by_rule.threshold, linetype="dashed", color=GREY)
    + p9.geom_point(p9.aes(shape="flagged", color="flagged"), size=2.6)
    + p9.scale_color_manual({False: GREY, True: RED}, name="flagged by\nthe median")
    + p9.scale_shape_manual({False: "o", True: "^"}, name="flagged by\nthe median")
    + p9.labs(
        x="distance to the nearest neighbour (side of the square = 1)",
        y="P(flag) over the posterior of phi",
    )
    + p9.theme_bw()
    + p9.theme(figure_size=(6.8, 3.4)),
    "02_probability",
)

# %% [markdown]
# The threshold may be given as a distance, too. With the paper's $M = 0.13$ the rule flags
# the lone record and two more.

# %%
flags = ds.flag_isolated(free, distance=0.13)
print(flags)
chosen = flags.table(problem)[flags.flagged].drop(columns="flagged")
print(chosen.sort_values("neighbour_distance", ascending=False).round(3).to_string())

# %% [markdown]
# ## How far?
#
# A flagged record has weight $a_i = 1$, any other $a_i = 0$. The restricted model is
#
# $$ y = X\beta + A w + \varepsilon, \qquad A_{ii} = \frac{1}{\sqrt{1 + \gamma a_i}} . $$
#
# With $a_i = 0$ nothing is smoothed: $A_{ii} = 1$ for every $\gamma$. With $a_i = 1$ the
# factor falls from 1 at $\gamma = 0$ to exactly 0 at $\gamma = \infty$.

# %%
for gamma in (0.0, 3.0, 99.0, np.inf):
    A = smoothing(gamma, flags.a)
    on, off = np.unique(A[flags.flagged]), np.unique(A[~flags.flagged])
    print(f"gamma {gamma:4g}: A_ii of the flagged {on}, of the others {off}")

# %% [markdown]
# What does this do to a lone record? Given the parameters, the weight of its own deviation
# $y_i - x_i'\beta$ in its smoothed effect is the paper's **degree of smoothing**
#
# $$ \alpha = \frac{\sigma^2 / (1 + \gamma)}{\tau^2 + \sigma^2 / (1 + \gamma)} . $$
#
# At $\gamma = 0$ it is $\sigma^2 / (\sigma^2 + \tau^2)$, at infinity 0. To read it the
# other way: which $\gamma$ gives a wanted $\alpha$?

# %%
sigma_sq, tau_sq = (float(free.draws[name].mean()) for name in ("sigma_sq", "tau_sq"))
print(f"gamma = 0: alpha {alpha_from_gamma(0.0, sigma_sq, tau_sq):.3f}")
for alpha in (0.9, 0.5, 0.1, 0.0):
    print(f"alpha {alpha:g}: gamma {gamma_from_alpha(alpha, sigma_sq, tau_sq):.3g}")

# %%
scale = np.geomspace(0.1, 1e6, 141)
curves = pd.DataFrame(
    [
        row
        for g in scale
        for row in (
            (g, "A_ii", float(smoothing(g, np.ones(1))[0])),
            (g, "alpha", alpha_from_gamma(g, sigma_sq, tau_sq)),
        )
    ],
    columns=["gamma", "quantity", "value"],
)
show(
    p9.ggplot(curves, p9.aes("gamma", "value", color="quantity", linetype="quantity"))
    + p9.geom_line(size=1)
    + p9.scale_x_log10(labels=lambda breaks: [f"{b:g}" for b in breaks])
    + p9.scale_color_manual({"A_ii": GREY, "alpha": BLUE}, name=" ")
    + p9.scale_linetype_manual({"A_ii": "dashed", "alpha": "solid"}, name=" ")
    + p9.labs(
        x="gamma",
        y="share of its own deviation kept",
        title="A flagged record; alpha at the unrestricted variances",
    )
    + p9.theme_bw()
    + p9.theme(figure_size=(6.8, 3.2), plot_title=p9.element_text(size=10)),
    "02_gamma",
)

# %% [markdown]
# The factor $A_{ii}$ falls early, $\alpha$ late: $\alpha$ is 1/2 where the shrunken sill
# $\sigma^2 / (1 + \gamma)$ has come down to the nugget, and here it has far to fall.
#
# ## From 0 to infinity
#
# Now fit the restricted model at several $\gamma$. All of these fits hold $\phi$ at the median of
# the unrestricted fit, so nothing but $\gamma$ differs.

# %%
GAMMAS = (0.0, 100.0, 1e6, np.inf) if QUICK else (0.0, 10.0, 100.0, 1e3, 1e4, 1e6, np.inf)


def described(fit, effect="auto", seed=3):
    """What copies of a fit say of the lone record, and the parameters behind them."""
    drawn = ds.synthesise(fit, copies=COPIES, effect=effect, seed=seed, progress=False)
    values = drawn.modelled()[:, alone]
    means = {name: float(fit.draws[name].mean()) for name in ("beta", "sigma_sq", "tau_sq")}
    return {
        "gamma": f"{fit.gamma:g}",
        "effect": drawn.effect,
        "alpha": alpha_from_gamma(fit.gamma, means["sigma_sq"], means["tau_sq"]),
        "x'beta": means["beta"],
        "sigma_sq": means["sigma_sq"],
        "tau_sq": means["tau_sq"],
        "mean": float(values.mean()),
        "sd": float(values.std(ddof=1)),
        "low": float(np.quantile(values, 0.025)),
        "high": float(np.quantile(values, 0.975)),
        "crowd": float(drawn.modelled()[:, crowded].mean()),
    }


fits = {
    gamma: ds.fit(problem, weights=flags, gamma=gamma, start=free, seed=2, progress=False)
    for gamma in GAMMAS
}
table = pd.DataFrame([described(fit) for fit in fits.values()])
print(f"truth of the lone record {truth:.2f}")
print(table.to_string(index=False, float_format=lambda v: f"{v:.3g}"))


# %%
def intervals(rows, title):
    """The copies of the lone record at each gamma, beside its truth and x'beta."""
    each = pd.Categorical(rows["gamma"], list(rows["gamma"]))
    return (
        p9.ggplot(rows.assign(gamma=each), p9.aes(x="gamma"))
        + p9.geom_hline(yintercept=truth, color=RED)
        + p9.geom_pointrange(p9.aes(y="mean", ymin="low", ymax="high"), color=BLUE, size=0.7)
        + p9.geom_point(p9.aes(y="x'beta"), shape="D", color=GREY, fill="none", size=3.4)
        + p9.annotate("text", x=0.55, y=truth - 0.3, label="truth", ha="left", size=9, color=RED)
        + p9.labs(x=STEPS, y="log income of the lone record", title=title)
        + p9.theme_bw()
        + p9.theme(figure_size=(6.8, 3.8), plot_title=p9.element_text(size=10))
    )


show(
    intervals(table, "Mean and 95% interval of the copies (blue); x'beta (hollow)"),
    "02_intervals",
)

# %% [markdown]
# Read it from left to right. The copies leave the truth and go to x'beta, the value
# expected of anybody at that place: column `alpha` says how far they are still held back.
# x'beta itself is not at rest. What the effect may no longer explain, $\beta_0$ and
# the nugget must: from 0 to infinity x'beta falls and `tau_sq` grows. The copies of a record
# in a crowd (`crowd`, their mean) stay where they were: its $A_{ii}$ is 1 throughout.
#
# ## Is infinity the limit of a large gamma?
#
# For the fit, yes: between the largest finite $\gamma$ and infinity the posterior means
# differ by little, which the next lines print. For the copies, not as they are drawn by
# default. With a finite $\gamma$ the copies carry $w^* = A w$, the smoothed effect
# (column `effect`). As $A_{ii}$ goes to 0, it goes to 0, and a copy is x'beta and the
# nugget's noise. At infinity nothing is known of the effect, and the copies carry $w$, a
# draw from its prior given the other records.

# %%
most = max(g for g in GAMMAS if np.isfinite(g))
for name in ("beta", "sigma_sq", "tau_sq"):
    a, b = fits[most].draws[name], fits[np.inf].draws[name]
    print(
        f"{name}: mean {a.mean():.3f} at gamma {most:g}, {b.mean():.3f} at infinity; "
        f"posterior sd {b.std():.3f}"
    )

# %%
large = [g for g in GAMMAS if g >= 1e4 and np.isfinite(g)]
pairs = [described(fits[g], effect) for g in large for effect in ("w*", "w")]
limit = pd.DataFrame([*pairs, described(fits[np.inf])])
print(limit[["gamma", "effect", "mean", "sd"]].round(2).to_string(index=False))
last = fits[np.inf].draws
print(f"sqrt(tau_sq) {np.sqrt(last['tau_sq'].mean()):.2f}", end=", ")
print(f"sqrt(sigma_sq + tau_sq) {np.sqrt((last['sigma_sq'] + last['tau_sq']).mean()):.2f}")
limit["gamma"] = pd.Categorical(limit["gamma"], list(dict.fromkeys(limit["gamma"])))
side = p9.position_dodge(width=0.4)
show(
    p9.ggplot(limit, p9.aes("gamma", "mean", color="effect", shape="effect"))
    + p9.geom_hline(yintercept=truth, color=RED)
    + p9.geom_pointrange(p9.aes(ymin="low", ymax="high"), position=side, size=0.7)
    + p9.scale_color_manual({"w": BLUE, "w*": "#b35806"}, name="effect\ncarried")
    + p9.scale_shape_manual({"w": "o", "w*": "s"}, name="effect\ncarried")
    + p9.annotate("text", x=0.55, y=truth - 0.35, label="truth", ha="left", size=9, color=RED)
    + p9.labs(x=STEPS, y="copies of the lone record,\nmean and 95% interval (log income)")
    + p9.theme_bw()
    + p9.theme(figure_size=(6.8, 3.6)),
    "02_limit",
)

# %% [markdown]
# So infinity is the limit of copies that carry $w$, and copies that carry $w^*$ have a limit
# of their own: the same centre, but about as narrow as the nugget alone. Narrow is not
# safe: example 5 asks what somebody who sees all copies makes of it.
#
# Why then not carry $w$ throughout? Its pull is $\alpha \sqrt{1 + \gamma}$ and not $\alpha$:

# %%
middle = fits[100.0]
for effect in ("w*", "w"):
    row = described(middle, effect)
    print(f"gamma 100, {effect}: copies centred at {row['mean']:.2f}, truth {truth:.2f}")

# %% [markdown]
# With a middling $\gamma$, copies that carry $w$ overshoot the truth by far.
#
# ## The surface afterwards
#
# The map of the expected log income, x'beta and $w$ together. At infinity the hollow around
# the lone record is gone; most of the map is much as it was.

# %%
view = {"draws": 20 if QUICK else 50, "cells": 20 if QUICK else 40, "progress": False}
VALUE = "log income"
surfaces = {}
for name, fit in (("gamma = 0", fits[0.0]), ("gamma infinite", fits[np.inf])):
    chain, iteration = spread_draws(fit, view["draws"]).T  # the draws behind the surface
    surface = ds.surface_on_grid(fit, **view)
    surface[VALUE] = fit.draws["beta"][chain, iteration].mean() + surface["w"]
    surfaces[name] = surface
before, after = surfaces.values()
change = (after[VALUE] - before[VALUE]).abs()
here = np.hypot(*(before[["x", "y"]].to_numpy() - problem.sites[alone]).T).argmin()
print(f"change of the map at the lone record {change[here]:.2f}, median {change.median():.2f}")
show(
    plot_surfaces(surfaces, problem, flagged=flags.flagged, value=VALUE)
    + p9.theme(figure_size=(8.4, 3.6)),
    "02_surfaces",
)

# %% [markdown]
# ## What becomes of the variance that smoothing removes?
#
# $A w$ has less variance than $w$. The three protections differ in where the rest goes:
#
# - `paper`: nowhere. The flagged record still pulls on $\beta$ and the nugget, and harder,
#   since the model calls its deviation noise.
# - `preserving`: the fit counts it as noise of the record's own, $\sigma^2 (1 - A_{ii}^2)$. A
#   copy carries all of $w$, drawn given $y$: at $\gamma = \infty$ from its law given the
#   neighbours alone.
# - `cut`: flagged records leave the fit, and are synthesised all the same at their places.

# %%
protected = {"paper": fits[np.inf]} | {
    kind: ds.fit(problem, weights=flags, protection=kind, start=free, seed=2, progress=False)
    for kind in ("preserving", "cut")
}
rows = []
for kind, fit in {"none": fits[0.0], **protected}.items():
    copies = ds.synthesise(fit, copies=COPIES, seed=4, progress=False).modelled()[:, alone]
    shown = {
        "x'beta": fit.draws["beta"],
        "partial sill sigma_sq": fit.draws["sigma_sq"],
        "nugget tau_sq": fit.draws["tau_sq"],
        "copies of the lone record": copies,
    }
    for what, values in shown.items():
        rows.append((kind, what, values.mean(), *np.quantile(values, [0.025, 0.975])))
sides = pd.DataFrame(rows, columns=["protection", "what", "mean", "low", "high"])
sides["what"] = pd.Categorical(sides["what"], list(shown))
cells = sides.assign(
    text=[f"{m:.3g} ({lo:.3g}, {hi:.3g})" for m, lo, hi in sides[["mean", "low", "high"]].values]
)
order = ["none", *protected]
print(cells.pivot(index="protection", columns="what", values="text").loc[order].T.to_string())

# %%
sides["protection"] = pd.Categorical(sides["protection"], order[::-1])
only = pd.DataFrame({"what": ["copies of the lone record"], "truth": [truth]})
only["what"] = pd.Categorical(only["what"], list(shown))
show(
    p9.ggplot(sides, p9.aes("protection", "mean"))
    + p9.geom_hline(p9.aes(yintercept="truth"), data=only, color=RED)
    + p9.geom_pointrange(p9.aes(ymin="low", ymax="high"), color=BLUE, size=0.6)
    + p9.facet_wrap("what", ncol=2, scales="free_x")
    + p9.coord_flip()
    + p9.labs(x="", y="mean and 95% interval; red: the truth")
    + p9.theme_bw()
    + p9.theme(figure_size=(7, 4.4)),
    "02_protections",
)

# %% [markdown]
# All three move the copies of the lone record to x'beta and make them wide. They differ in
# what the record still does to the parameters. Under `paper` it pulls x'beta down and the
# nugget up, and the copies of all records show both. Under `preserving` x'beta and the nugget
# are about what they are without protection. Under `cut` the record has no part in either.

# %% [markdown]
# ## Exercises
#
# 1. The nearest neighbour overlooks pairs. Flag with `ds.flag_isolated(free, distance=0.13,
#    neighbour=2)`. How many are flagged now, and who are they?
# 2. Find the $\gamma$ that gives $\alpha = 1/2$ (`gamma_from_alpha`), fit with it, and compare
#    the centre of the copies with the middle between x'beta and the truth. Then put the
#    restricted fit's own variances into `alpha_from_gamma`.
# 3. Give `ds.own_weights` a vector of zeros with 1 at `alone`, and fit with $\gamma = \infty$.
#    Who had held x'beta up?
# 4. Draw the picture of $\gamma$ from 0 to infinity under `protection="preserving"`. Which
#    quantity stays at rest that moved under `paper`?
