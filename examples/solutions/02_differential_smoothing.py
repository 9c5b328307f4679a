# %% [markdown]
# # Solutions to 2. Differential smoothing
#
# The lesson runs first, so that its names are there.

# %%
import contextlib
import io
import runpy
from pathlib import Path

LESSON = Path(__file__).parents[1] / Path(__file__).name
print("The lesson runs, without its output ...")
with contextlib.redirect_stdout(io.StringIO()):
    lesson = runpy.run_path(str(LESSON))
ds, np, pd = (lesson[name] for name in ("ds", "np", "pd"))
problem, free, flags, fits = (lesson[n] for n in ("problem", "free", "flags", "fits"))
nearest, alone, truth = (lesson[name] for name in ("nearest", "alone", "truth"))
sigma_sq, tau_sq, GAMMAS = (lesson[name] for name in ("sigma_sq", "tau_sq", "GAMMAS"))
alpha_from_gamma, gamma_from_alpha = lesson["alpha_from_gamma"], lesson["gamma_from_alpha"]
described, table, show = (lesson[name] for name in ("described", "table", "show"))
print("Solutions")

# %% [markdown]
# ## 1. The second nearest neighbour
#
# Seven are flagged: the three of before and four more. Two of the four are a pair that lives
# apart: each has the other next to it and nobody else near. Each of the other two has one
# neighbour within M, and that neighbour has more.

# %%
second = ds.flag_isolated(free, distance=0.13, neighbour=2)
rows = np.flatnonzero(second.flagged)
who = pd.DataFrame(
    {
        "s1": problem.sites[rows, 0],
        "s2": problem.sites[rows, 1],
        "nearest": nearest[rows],
        "second nearest": second.nearest[rows],
        "flagged before": flags.flagged[rows],
    },
    index=rows,
)
print(who.round(3).to_string())
gaps = np.hypot(*(problem.sites[rows][:, None] - problem.sites[None]).T).T
gaps[np.arange(rows.size), rows] = np.inf
partner = gaps.argmin(axis=1)  # everybody's nearest neighbour
pair = rows[np.isin(partner, rows) & ~flags.flagged[rows]]
print(f"a pair that lives apart: {', '.join(str(record) for record in pair)}")
assert second.n_flagged == 7
assert second.flagged[flags.flagged].all()
assert set(partner[np.isin(rows, pair)]) == set(pair)
assert pair.size == 2
more = ~flags.flagged[rows] & ~np.isin(rows, pair)
assert (nearest[rows][more] < flags.threshold).all()
assert not second.flagged[partner[more]].any()

# %% [markdown]
# ## 2. Half of its own deviation
#
# The copies are centred between x'beta and the truth, but not in the middle: they lie nearer to
# x'beta. The restricted fit has a larger nugget than the unrestricted one, so alpha at its own
# variances is below 1/2. With that alpha the formula gives the centre of the copies.

# %%
gamma = gamma_from_alpha(0.5, sigma_sq, tau_sq)
half = described(ds.fit(problem, weights=flags, gamma=gamma, start=free, seed=2, progress=False))
middle = (half["x'beta"] + truth) / 2
own = alpha_from_gamma(gamma, half["sigma_sq"], half["tau_sq"])
by_alpha = half["x'beta"] + own * (truth - half["x'beta"])
print(f"gamma {gamma:.1f}; alpha at the restricted variances {own:.2f}")
print(f"centre of the copies {half['mean']:.2f}, middle {middle:.2f}, by alpha {by_alpha:.2f}")
assert half["tau_sq"] > 1.2 * tau_sq
assert own < 0.45
assert middle < half["mean"] < half["x'beta"]
assert abs(half["mean"] - by_alpha) < abs(half["mean"] - middle)

# %% [markdown]
# ## 3. The lone record alone
#
# The two others of the three flagged records had held x'beta up. A smoothed record pulls hard on
# $\beta_0$, and both earn far more than the lone record. With only the lone record smoothed,
# x'beta falls further towards its truth.

# %%
chosen = np.zeros(problem.n_records)
chosen[alone] = 1
single = ds.fit(
    problem,
    weights=ds.own_weights(problem, chosen),
    gamma=np.inf,
    start=free,
    seed=2,
    progress=False,
)
level = {
    "nobody": float(free.draws["beta"].mean()),
    "three": float(fits[np.inf].draws["beta"].mean()),
    "the lone record": float(single.draws["beta"].mean()),
}
print("x'beta,", "; ".join(f"{name} smoothed: {value:.2f}" for name, value in level.items()))
rest = problem.y[flags.flagged & (np.arange(problem.n_records) != alone)]
print(f"truth of the lone record {truth:.2f}, of the two others", *(f"{y:.2f}" for y in rest))
assert truth < level["the lone record"] < level["three"] - 1
assert level["three"] < level["nobody"]
assert (rest > truth + 2).all()

# %% [markdown]
# ## 4. From 0 to infinity under `preserving`
#
# x'beta stays at rest, and so does the nugget: under `paper` both moved. The copies of the lone
# record go to x'beta all the same. They are wide at every $\gamma$ above 0, since a copy carries
# all of $w$.

# %%
kept = {
    g: ds.fit(
        problem,
        weights=flags,
        protection="preserving",
        gamma=g,
        start=free,
        seed=2,
        progress=False,
    )
    for g in GAMMAS
}
preserving = pd.DataFrame([described(fit) for fit in kept.values()])
print(preserving.to_string(index=False, float_format=lambda v: f"{v:.3g}"))
title = "preserving: mean and 95% interval of the copies (blue); x'beta (hollow)"
show(lesson["intervals"](preserving, title), "02_solution_intervals")
for name in ("x'beta", "tau_sq"):
    paper, same = (np.ptp(rows[name]) for rows in (table, preserving))
    print(f"{name}: moves by {paper:.3f} under paper, by {same:.3f} under preserving")
    assert same < 0.2 * paper
last = preserving.iloc[-1]
assert abs(last["mean"] - last["x'beta"]) < 0.3 * (last["x'beta"] - truth)
assert (preserving["sd"][1:] > 3 * preserving["sd"][0]).all()
