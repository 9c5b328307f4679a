# %% [markdown]
# # Solutions to 11. Studios, one and two bedrooms
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
ds, np, flats, problem = (lesson[name] for name in ("ds", "np", "flats", "problem"))
free, together, decay = (lesson[name] for name in ("free", "together", "decay"))
left, out, sds, drawn = (lesson[name] for name in ("left", "out", "sds", "drawn"))
effect_sd, predictions = (lesson[name] for name in ("effect_sd", "predictions"))
fit_multivariate, COPIES, FORMULA, SAMPLER = (
    lesson[name] for name in ("fit_multivariate", "COPIES", "FORMULA", "SAMPLER")
)
OPTIONS = {"protection": "cut", "progress": False, **SAMPLER}
print("Solutions")

# %% [markdown]
# ## 1. A prior that holds the correlations at 0
#
# Their intervals become about half as long and lie around 0: the prior now decides, as the homes
# say little of the correlations. The sd of w hardly changes, since the homes left out borrowed
# little before.

# %%
near_zero = fit_multivariate(problem, "bedrooms", lkj_eta=20, seed=11, progress=False, **SAMPLER)
weights = ds.own_weights(problem, out)
held = fit_multivariate(
    problem, "bedrooms", weights=weights, start=near_zero, phi=decay, seed=12, **OPTIONS
)
ends = {}
for name, fit in {"lkj_eta 2": free, "lkj_eta 20": near_zero}.items():
    ends[name] = np.quantile(fit.group_correlation[..., 2, 1], [0.025, 0.975])
    print(f"{name}: correlation of one and two bedrooms, 95% {ends[name].round(2)}")
change = effect_sd(held, left).mean() / sds["all flats"].mean()
print(f"mean sd of w of the homes left out: {change:.2f} times what it was")
assert near_zero.verdict.passed
assert held.verdict.passed
assert 0.3 < np.ptp(ends["lkj_eta 20"]) / np.ptp(ends["lkj_eta 2"]) < 0.65
assert abs(ends["lkj_eta 20"].mean()) < 0.15
assert abs(change - 1) < 0.12

# %% [markdown]
# ## 2. Studios among the one-bedroom homes
#
# Hardly. The means move by far less than a prediction's sd, and the sds stay about the same.
# There are only a few studios, and the two-bedroom homes borrow little from either kind.

# %%
joined_problem = ds.prepare(
    flats.assign(bedrooms=flats["bedrooms"].clip(lower=1)),
    FORMULA,
    coords=("longitude", "latitude"),
    distance="projected",
)
weights = ds.own_weights(joined_problem, out)
joined = fit_multivariate(
    joined_problem, "bedrooms", weights=weights, phi=decay, seed=13, **OPTIONS
)
apart, merged = drawn["all flats"], predictions(joined, left)
moved = np.abs(merged.mean(axis=0) - apart.mean(axis=0))
print(f"largest change of a mean {moved.max():.3f}; mean sd", end=" ")
print(f"{apart.std(axis=0).mean():.3f}, joined {merged.std(axis=0).mean():.3f}")
assert joined.verdict.passed
assert (flats["bedrooms"] == 0).sum() < 10
assert moved.max() < 0.3 * apart.std(axis=0).mean()
assert abs(merged.std(axis=0).mean() / apart.std(axis=0).mean() - 1) < 0.25

# %% [markdown]
# ## 3. The studios cut
#
# From the other kinds and from the priors. No studio informs the fit, so its regression is the
# one that the kinds have in common, and its copies are centred near the price of a one-bedroom home
# of its size. They are many times wider than without protection: `group_scale`, the prior sd of a
# group's coefficients about the common ones, decides most of their width. Few copies come near the
# truth.

# %%
studio = (flats["bedrooms"] == 0).to_numpy()
weights = ds.own_weights(problem, studio.astype(float))
cut = fit_multivariate(problem, "bedrooms", weights=weights, phi=decay, seed=14, **OPTIONS)
drawing = {"accept_few_draws": True, "progress": False, "rounding": "none"}
one_bedroom = cut.draws["beta"][..., 1, :].mean(axis=(0, 1)) @ problem.X[studio].T
own = cut.draws["beta"][..., 0, :].std(axis=(0, 1))
wide, close = {}, {}
for name, fit in {"unrestricted": free, "cut": cut}.items():
    release = ds.synthesise(fit, COPIES, seed=15, **drawing)
    copies = release.modelled()[:, studio]
    centre, wide[name] = (copies - one_bedroom).mean(), copies.std(axis=0).mean()
    close[name] = (np.abs(release.values / problem.original() - 1) <= 0.10)[:, studio].mean()
    print(f"{name}: copies centred {centre:+.2f} from one-bedroom homes", end=", ")
    print(f"sd {wide[name]:.2f}, within 10% {100 * close[name]:.0f}%")
print(
    "sd of the studios' coefficients", own.round(2), "and group_scale", np.round(cut.group_scale, 2)
)
assert cut.verdict.passed
assert abs(centre) < 0.25 * wide["cut"]
assert wide["cut"] > 4 * wide["unrestricted"]
assert (own > 0.9 * np.array(cut.group_scale)).all()
assert close["cut"] < 0.15 < close["unrestricted"]
