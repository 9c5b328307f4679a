# %% [markdown]
# # Solutions to 8. Adaptive smoothing
#
# The lesson runs first, so that its names are there.

# %%
import contextlib
import io
import runpy
from pathlib import Path

from dsstan.core.errors import SurfaceError

LESSON = Path(__file__).parents[1] / Path(__file__).name
print("The lesson runs, without its output ...")
with contextlib.redirect_stdout(io.StringIO()):
    lesson = runpy.run_path(str(LESSON))
ds, np, pd, attack = (lesson[name] for name in ("ds", "np", "pd", "attack"))
problem, free, fits, alone = (lesson[name] for name in ("problem", "free", "fits", "alone"))
common, fit_adaptive, posterior_row = (
    lesson[name] for name in ("common", "fit_adaptive", "posterior_row")
)
COPIES, DRAWN, DRAWS, table = (lesson[n] for n in ("COPIES", "DRAWN", "DRAWS", "table"))
print("Solutions")

# %% [markdown]
# ## 1. The fifth neighbour
#
# All records gain protection. Every record is smoothed more, most of all those with one near
# neighbour and the next ones far away: a pair no longer counts as safe. The nugget grows, and with
# it the intruder's sd, for the isolated records and for the others.

# %%
ratio = fits["ratio"]
fifth = fit_adaptive(problem, neighbour=5, seed=6, **common)
further = fifth.nearest / np.maximum(ratio.nearest, 1e-9)
pair = further >= np.quantile(further, 0.95)
left = (fifth.A / ratio.A) ** 2
print("A squared, of what it was with the nearest neighbour:", end=" ")
print(f"isolated {left[alone].mean():.2f}, pairs {left[pair].mean():.2f}, all {left.mean():.2f}")
release = ds.synthesise(fifth, DRAWN, seed=9, accept_few_draws=True, progress=False)
sd = attack(release, copies=COPIES, against=free, draws=DRAWS, progress=False).sd(variances="known")
now = {"sd, alone": sd[alone].min(), "sd, median other": np.median(sd[~alone])}
nugget = {name: np.median(f.draws["tau_sq"]) for name, f in (("ratio", ratio), ("fifth", fifth))}
print(f"tau_sq {nugget['ratio']:.2f}, now {nugget['fifth']:.2f};", end=" ")
print("; ".join(f"{name}: {table.loc['ratio', name]:.2f}, now {v:.2f}" for name, v in now.items()))
gain = {name: value / table.loc["ratio", name] for name, value in now.items()}
assert fifth.verdict.passed
assert (left < 1).all()
assert left[pair].mean() < 0.9 * min(left.mean(), left[alone].mean())
assert nugget["fifth"] > 1.1 * nugget["ratio"]
assert min(gain.values()) > 1.05

# %% [markdown]
# ## 2. Narrower steps
#
# phi falls as the step becomes narrower: the distance M(phi) grows, and the isolated records keep
# more of their variance. A narrower step is harder to interpolate, so `fit.nodes` grows. At a width
# of 0.05 the largest number of nodes is not enough, and the fit is refused with an error.

# %%
rows, steps = {}, {0.25: fits["step"]}
for width in (0.5, 0.25, 0.15):
    if width not in steps:
        steps[width] = fit_adaptive(problem, rule="step", width=width, seed=7, **common)
    rows[width] = {
        "median phi": np.median(steps[width].draws["phi"]),
        "kept, alone": (steps[width].A[alone] ** 2).mean(),
        "nodes": steps[width].nodes,
    }
    assert steps[width].verdict.passed
narrower = pd.DataFrame(rows).T
print(narrower.to_string(float_format="{:.2f}".format))
assert narrower["median phi"].is_monotonic_decreasing
assert narrower["kept, alone"].is_monotonic_increasing
assert steps[0.15].nodes[0] > steps[0.5].nodes[0]
refused = ""
try:
    fit_adaptive(problem, rule="step", width=0.05, seed=7, **common)
except SurfaceError as error:
    refused = str(error)
print(f"width 0.05: {refused}")
assert "nodes" in refused

# %% [markdown]
# ## 3. Preserving
#
# For the step. The variance that smoothing takes from w stays with the smoothed record as noise
# of its own, so the nugget need not take it up. Under the paper's suggestion this noise comes to
# every record, and those with near neighbours are too alike for it. The variances set gamma there,
# so the posterior lowers gamma, by a smaller `sigma_sq` and a larger `tau_sq`.

# %%
preserving = {
    "step": fit_adaptive(problem, rule="step", protection="preserving", seed=9, **common),
    "ratio": fit_adaptive(problem, protection="preserving", seed=8, **common),
}
shown = {"unrestricted": free, **preserving}
print(pd.DataFrame({name: posterior_row(fit) for name, fit in shown.items()}).T.to_string())
medians = {n: {k: np.median(f.draws[k]) for k in ("sigma_sq", "tau_sq")} for n, f in shown.items()}
before, after = (np.median(fit.gamma_draws) for fit in (ratio, preserving["ratio"]))
print(f"gamma of the paper's suggestion: {before:.0f}, under preserving {after:.0f}")
assert all(fit.verdict.passed for fit in preserving.values())
assert 0.7 < medians["step"]["tau_sq"] / medians["unrestricted"]["tau_sq"] < 1.4
assert medians["ratio"]["tau_sq"] > 2 * medians["unrestricted"]["tau_sq"]
assert medians["ratio"]["sigma_sq"] < medians["unrestricted"]["sigma_sq"]
assert after < before
