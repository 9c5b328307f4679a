# %% [markdown]
# # A simulated town: why does one lonely record give itself away?
#
# Sections 2 and 4 of Quick, Holan and Wikle (2018), on incomes simulated to their
# specification: 500 people on the unit square, one of them at (0.51, 0.01) more
# than 0.26 away from all others, with a low income. The paper's own data are not
# published, so the pattern should agree and not the digits.

# %%
import numpy as np
import pandas as pd

import dsstan as ds

people = ds.load_simulated()
problem = ds.prepare(people, "log(income) ~ 1", coords=("s1", "s2"), name="simulated")
outlier = problem.n_records - 1
free = ds.fit(problem, seed=1)

# %% [markdown]
# ## The risk
#
# The copies at the outlier centre on its true value: the model has learnt the one
# record that was there to learn from.

# %%
flags = ds.flag_isolated(free, distance=0.13)
kept = ds.fit(problem, weights=flags, start=free, seed=2)
release = ds.synthesise(kept, copies=500, seed=3)
before, after = release.comparison(free).modelled()[:, outlier], release.modelled()[:, outlier]
print(f"truth {problem.y[outlier]:.2f}")
for name, values in (("unrestricted", before), ("restricted", after)):
    low, high = np.quantile(values, [0.025, 0.975])
    print(f"{name}: {values.mean():.2f} ({low:.2f}, {high:.2f}), sd {values.std(ddof=1):.2f}")
beta_0 = kept.draws["beta"].mean()
width = np.sqrt((kept.draws["sigma_sq"] + kept.draws["tau_sq"]).mean())
print(f"x'beta {beta_0:.2f}; sqrt(sigma_sq + tau_sq) {width:.2f}")

# %% [markdown]
# ## The price
#
# Fixing the outlier's effect to zero leaves its low value to the intercept and the
# nugget: beta_0 falls and tau_sq about doubles, as in the paper's Table 1.

# %%
paper = {
    ("unrestricted", "beta_0"): "11.35 (11.13, 11.71)",
    ("unrestricted", "sigma_sq"): "3.83 (3.22, 4.59)",
    ("unrestricted", "tau_sq"): "0.06 (0.05, 0.08)",
    ("restricted", "beta_0"): "10.31 (10.20, 10.77)",
    ("restricted", "sigma_sq"): "3.77 (3.07, 4.53)",
    ("restricted", "tau_sq"): "0.12 (0.10, 0.15)",
}
rows = {}
for fit in (free, kept):
    for name, row in fit.summary().loc[["beta_0", "sigma_sq", "tau_sq"]].iterrows():
        here = f"{row['mean']:.2f} ({row['q025']:.2f}, {row['q975']:.2f})"
        rows[fit.kind, name] = {"paper": paper[fit.kind, name], "here": here}
print(pd.DataFrame(rows).T.to_string())

# %%
print(ds.disclosure(release, against=free, absolute=10_000))
print(ds.utility(release, "log(income) ~ abs(s1 - 0.25) + abs(s2 - 0.5)"))

# %% [markdown]
# ## Exercises
#
# 1. Fit with `protection="preserving"` and with `"cut"`. What happens to beta_0 and
#    tau_sq now?
# 2. Fit with `gamma=4` instead of infinity. Where do the outlier's copies centre, and
#    how wide are they?
# 3. Leave the outlier out of `people` and fit again. Compare with the paper's
#    "Suppressed" row: 11.71, 3.81, 0.06.
