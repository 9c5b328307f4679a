# %% [markdown]
# # Solutions to 6. Baltimore
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
ds, np, pd, show = (lesson[name] for name in ("ds", "np", "pd", "show"))
sales, problem, priors, nearest = (lesson[n] for n in ("sales", "problem", "priors", "nearest"))
free, kept, release, found, other = (
    lesson[name] for name in ("free", "kept", "release", "found", "other")
)
FORMULA, FLOOR, COPIES, SAMPLER = (lesson[n] for n in ("FORMULA", "FLOOR", "COPIES", "SAMPLER"))
M, SHORTEST = lesson["M"], lesson["SHORTEST"]
aes, geom_histogram, geom_vline = (lesson[n] for n in ("aes", "geom_histogram", "geom_vline"))
ggplot, labs, theme, theme_bw = (lesson[n] for n in ("ggplot", "labs", "theme", "theme_bw"))
print("Solutions")

# %% [markdown]
# ## 1. The fireplace in the formula
#
# The copies now keep its effect: their estimate is close to that of the original. Without it in
# the formula they kept less than half.

# %%
wider = ds.prepare(sales, f"{FORMULA} + fireplace", coords=("x", "y"), name="baltimore")
first = ds.fit(wider, priors=priors, seed=1, progress=False, **SAMPLER)
second = ds.fit(
    wider,
    weights=ds.flag_isolated(first, distance=M),
    protection="preserving",
    start=first,
    seed=2,
    progress=False,
    **SAMPLER,
)
with_it = ds.utility(ds.synthesise(second, copies=COPIES, seed=3, progress=False))
rows = {
    "original": with_it.get("original", "fireplace"),
    "copies, not in the formula": other.get("restricted", "fireplace"),
    "copies, in the formula": with_it.get("restricted", "fireplace"),
}
effect = pd.DataFrame(rows).T[["estimate", "low", "high"]].astype(float)
print(effect.round(3).to_string())
share = effect["estimate"] / effect["estimate"]["original"]
assert share["copies, not in the formula"] < 0.5
assert 0.8 < share["copies, in the formula"] < 1.2

# %% [markdown]
# ## 2. The default priors
#
# The fit passes. The histogram has one high peak at small decays and a long low tail to the
# right. Less than a tenth of the draws lie in the tail beyond our bound. Those far out are the
# other explanation: a range of a few thousand feet, a smaller nugget and a larger partial sill.

# %%
fit = ds.fit(problem, seed=1, progress=False, **SAMPLER)
phi, tau_sq, sigma_sq = (fit.draws[name].ravel() for name in ("phi", "tau_sq", "sigma_sq"))
print(fit.verdict)
show(
    ggplot(pd.DataFrame({"phi": phi}), aes("phi"))
    + geom_histogram(bins=60, fill="#bdbdbd", color="white")
    + geom_vline(xintercept=3 / SHORTEST, color="#d7191c", linetype="dashed")
    + labs(x="decay phi (per thousand feet); dashed: our upper bound", y="draws")
    + theme_bw()
    + theme(figure_size=(7, 3)),
    "06_solution_phi",
)
beyond, far = phi > 3 / SHORTEST, phi > 2 * 3 / SHORTEST
print(f"beyond our bound {100 * beyond.mean():.0f}% of the draws, beyond twice it", end=" ")
print(f"{100 * far.mean():.0f}%; the median range there {np.median(3 / phi[far]):.1f}")
for name, those in (("within our bound", ~beyond), ("beyond twice it", far)):
    print(f"{name}: tau_sq {tau_sq[those].mean():.3f}, sigma_sq {sigma_sq[those].mean():.3f}")
assert fit.verdict.passed
assert 0.02 < beyond.mean() < 0.15
assert 0 < np.median(3 / phi[far]) < 10
assert tau_sq[far].mean() < 0.8 * tau_sq[~beyond].mean()
assert sigma_sq[far].mean() > sigma_sq[~beyond].mean()

# %% [markdown]
# ## 3. As many copies as the assessment allows
#
# Yes. The number rests on lower bounds, so more copies may keep the floor too, and it counts both
# limits: how closely a record is placed, and how surely a rounded price is named exactly. With 100
# copies the second one gives way: every record keeps the sd that the floor asks for, and a few
# prices can be named with a chance above one half.

# %%
L = found.largest_release
for count in (L, 100):
    many = ds.synthesise(kept, copies=count, seed=3, progress=False)
    again = ds.assess(many, floor=FLOOR, progress=False)
    print(f"{count} copies: {again.verdict}, {again.why}")
    print(f"smallest sd {again.sd.min():.3f}, the floor asks for {again.least_sd.max():.3f}")
    assert again.below_floor.size == 0
    assert again.verdict == ("met" if count == L else "missed")
assert 0 < again.named_too_surely.size < 0.1 * problem.n_records

# %% [markdown]
# ## 4. Last digits
#
# A reader would take the rounded copies for real: about as many of their prices are multiples of
# 1,000 or 500 as in the table, and all or nearly all are multiples of 100. Without rounding hardly
# any price is, and one look at the last digits shows that they are made.

# %%
exact = ds.synthesise(kept, copies=COPIES, rounding="none", seed=3, progress=False)
prices = {
    "the table": sales["price"].to_numpy(),
    "a copy": release.values[0],
    "a copy, not rounded": exact.values[0],
}
for name, values in prices.items():
    print(f"{name}:", *(f"{value:,.0f}" for value in values[:5]), sep="  ")
multiples = pd.DataFrame(
    {
        f"multiples of {unit:,} (%)": {n: 100 * np.mean(v % unit == 0) for n, v in prices.items()}
        for unit in (1_000, 500, 100)
    }
)
print(multiples.round().to_string())
real, rounded, bare = multiples.to_numpy()
assert (abs(rounded - real) < 10).all()
assert (multiples["multiples of 100 (%)"].iloc[:2] > 95).all()
assert (bare < 5).all()
