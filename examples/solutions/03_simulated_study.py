# %% [markdown]
# # Solutions to 3. The simulated study
#
# The lesson runs first, so that its names are there.

# %%
import contextlib
import io
import runpy
from pathlib import Path

from dsstan.models.weights import alpha_from_gamma

LESSON = Path(__file__).parents[1] / Path(__file__).name
print("The lesson runs, without its output ...")
with contextlib.redirect_stdout(io.StringIO()):
    lesson = runpy.run_path(str(LESSON))
ds, np, pd = (lesson[name] for name in ("ds", "np", "pd"))
problem, outlier, free, flags = (lesson[n] for n in ("problem", "outlier", "free", "flags"))
release, mean, found, terms = (lesson[name] for name in ("release", "mean", "found", "terms"))
COPIES, SAMPLER, REGRESSION = (lesson[name] for name in ("COPIES", "SAMPLER", "REGRESSION"))
truth = problem.y[outlier]
print("Solutions")

# %% [markdown]
# ## 1. `preserving`
#
# beta_0 and tau_sq stay about where the unrestricted fit has them. The copies of the outlier
# centre near that higher x'beta, far from the truth, and are about as wide as the whole model.

# %%
preserving = ds.fit(
    problem,
    weights=flags,
    protection="preserving",
    start=free,
    seed=6,
    progress=False,
    **SAMPLER,
)
means = {name: float(draws.mean()) for name, draws in preserving.scalars.items()}
for name in ("beta_0", "tau_sq"):
    print(f"{name}: unrestricted {mean['unrestricted'][name]:.3f}", end=", ")
    print(f"paper {mean['restricted'][name]:.3f}, preserving {means[name]:.3f}")
    moved = abs(mean["restricted"][name] - mean["unrestricted"][name])
    assert abs(means[name] - mean["unrestricted"][name]) < 0.25 * moved
drawn = ds.synthesise(preserving, copies=COPIES, seed=7, progress=False).modelled()[:, outlier]
whole = np.sqrt(means["sigma_sq"] + means["tau_sq"])
print(f"copies of the outlier: mean {drawn.mean():.2f}, sd {drawn.std(ddof=1):.2f}", end="; ")
print(f"its truth {truth:.2f}; sqrt(sigma_sq + tau_sq) {whole:.2f}")
assert abs(drawn.mean() - means["beta_0"]) < 1
assert drawn.mean() - truth > 2.5
assert 0.75 < drawn.std(ddof=1) / whole < 1.25

# %% [markdown]
# ## 2. A gamma of 4
#
# Nearly all of it: the mean of the copies lies more than nine tenths of the way from x'beta to the
# truth. That is alpha at the variances of this fit. The sill is so much larger than the nugget
# that a fifth of it still outweighs the nugget by far.

# %%
four = ds.fit(problem, weights=flags, gamma=4, start=free, seed=9, progress=False, **SAMPLER)
means = {name: float(draws.mean()) for name, draws in four.scalars.items()}
centre = ds.synthesise(four, copies=COPIES, seed=7, progress=False).modelled()[:, outlier].mean()
part = (means["beta_0"] - centre) / (means["beta_0"] - truth)
alpha = alpha_from_gamma(4, means["sigma_sq"], means["tau_sq"])
print(f"kept of its own deviation {part:.3f}, alpha {alpha:.3f}")
print(f"sigma_sq / 5 is {means['sigma_sq'] / 5:.2f}, tau_sq {means['tau_sq']:.2f}")
assert alpha > 0.9
assert abs(part - alpha) < 0.05
assert means["sigma_sq"] / 5 > 5 * means["tau_sq"]

# %% [markdown]
# ## 3. More flags
#
# Eleven records are flagged. They cost the regression little: each estimate moves by less than
# its standard error from that on the true incomes, and no interval grows by more than a few per
# cent. The price is the nugget, which is several times that of the unrestricted fit: every copy of
# every record carries it.

# %%
more = ds.flag_isolated(free, correlation=0.5)
fit = ds.fit(problem, weights=more, start=free, seed=10, progress=False, **SAMPLER)
analyst = ds.utility(ds.synthesise(fit, copies=COPIES, seed=11, progress=False), REGRESSION)
print(f"{more.n_flagged} flagged")
rows = {}
for term in terms:
    original = found.get("original", term)
    rows[term] = {"original": original["estimate"], "se": original["se"]}
    for name, source in (("3 flagged", found), (f"{more.n_flagged} flagged", analyst)):
        row = source.get("restricted", term)
        rows[term][name] = row["estimate"]
        assert abs(row["estimate"] - original["estimate"]) < original["se"]
        assert (row["high"] - row["low"]) < 1.05 * (original["high"] - original["low"])
print(pd.DataFrame(rows).T.round(2).to_string())
tau_sq = float(fit.scalars["tau_sq"].mean())
print(f"tau_sq {tau_sq:.2f}, unrestricted {mean['unrestricted']['tau_sq']:.2f}")
assert more.n_flagged == 11
assert tau_sq > 2.5 * mean["unrestricted"]["tau_sq"]

# %% [markdown]
# ## 4. All copies together
#
# Very far: without any copy the sd of the outlier is about that of the whole model, and all copies
# leave about a hundredth of it. Smoothing leaves more than no protection does, but the many copies
# still show x'beta and the nugget, on which the outlier pulls. Nearly all records are below the
# floor. By the lower bounds of the sds, fewer than a hundred copies keep it for every record.

# %%
asked = ds.assess(release, floor=0.05, progress=False)
sd = asked.sd[outlier]
print(f"the outlier: sd {asked.after.leave_one_out[outlier]:.2f} without any copy", end=", ")
print(f"{sd:.3f} after {COPIES} copies, {asked.sd_before[outlier]:.3f} without protection")
print(f"{asked.below_floor.size} of {problem.n_records} records are below the floor")
print(f"{asked.largest_release} copies keep it for all")
assert asked.after.leave_one_out[outlier] > 1.5
assert asked.sd_before[outlier] < sd
if not lesson["QUICK"]:
    assert sd < 0.02 * asked.after.leave_one_out[outlier]
    assert asked.below_floor.size > 0.95 * problem.n_records
    assert 24 < asked.largest_release < 100
