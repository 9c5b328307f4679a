# %% [markdown]
# # Solutions to 7. Stan alone
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
ds, np, json = (lesson[name] for name in ("ds", "np", "json"))
problem, free, kept, flags = (lesson[name] for name in ("problem", "free", "kept", "flags"))
data, alone, NAMES, limit = (lesson[name] for name in ("data", "alone", "NAMES", "limit"))
CHAINS, SAMPLES, mean_and_error = (lesson[n] for n in ("CHAINS", "SAMPLES", "mean_and_error"))
jsonable, private_folder = (lesson[name] for name in ("jsonable", "private_folder"))
print("Solutions")


def stan_alone(**changes):
    """Draws of the lesson's program, some of the JSON data changed."""
    run = lesson["run_embedded" if lesson["lacking"] else "run_cmdstan"]
    run.__globals__["text"] = json.dumps(jsonable(data | changes))  # what the lesson's code reads
    if lesson["lacking"]:
        return run()
    with private_folder() as folder:
        return run(folder)


def errors_apart(draws, name):
    """How far a mean is from that of the lesson, in standard errors."""
    both = [t[name].to_numpy().reshape(CHAINS, SAMPLES) for t in (draws, alone)]
    (mean, error), (mean_before, error_before) = map(mean_and_error, both)
    return (mean - mean_before) / np.hypot(error, error_before)


# %% [markdown]
# ## 1. Preserving
#
# The nugget. Under `paper` it takes up what smoothing removes from the flagged homes. Under
# `preserving` that variance stays with them as noise of their own, and `tau_sq` falls to about
# where it is without protection.

# %%
preserving = stan_alone(protection=2)
columns = list(NAMES)
moved = (preserving[columns].mean() - alone[columns].mean()) / alone[columns].std()
print("moved, in posterior sds:", moved.rename(NAMES).round(2).to_dict())
assert moved.abs().idxmax() == "tau_sq"
assert moved["tau_sq"] < -1
assert abs(preserving["tau_sq"].mean() / free.draws["tau_sq"].mean() - 1) < 0.1

# %% [markdown]
# ## 2. Copies from Stan
#
# `w` and `y_synthetic`, one column a home each. The `y_synthetic` of the first flagged home centre
# at its regression and what its neighbours say of w, not at its truth. They are copies: those of
# `ds.synthesise` centre there too.

# %%
latent = stan_alone(draw_latent=1)
new = [name for name in latent.columns if name not in alone.columns]
print(f"{len(new)} new columns: {new[0]} to {new[problem.n_records - 1]}", end=", ")
print(f"{new[problem.n_records]} to {new[-1]}")
home = int(np.flatnonzero(flags.flagged)[0])
own = latent[f"y_synthetic.{home + 1}"]
level = (latent[["beta.1", "beta.2"]] @ problem.X[home] + latent[f"w.{home + 1}"]).mean()
copies = ds.synthesise(kept, 400, seed=4, accept_few_draws=True, progress=False)
centres = {
    "y_synthetic": own.mean(),
    "regression and w": level,
    "ds.synthesise": copies.modelled()[:, home].mean(),
    "truth": problem.y[home],
}
print("; ".join(f"{name} {value:.2f}" for name, value in centres.items()))
assert len(new) == 2 * problem.n_records
assert abs(centres["y_synthetic"] - level) < 0.03
assert abs(centres["y_synthetic"] - centres["ds.synthesise"]) < 0.08
assert abs(centres["y_synthetic"] - centres["truth"]) > 0.5 * own.std()

# %% [markdown]
# ## 3. Too few nodes
#
# `surface_error` says that the interpolated log density is off by more than ten. The means do not
# agree: that of `sigma_sq` is off by many standard errors. No draw diverges, so without
# `surface_error` the run would look sound.

# %%
coarse = stan_alone(H=12)
print(f"surface_error {coarse['surface_error'].max():.1f}", end=", ")
print(f"before {alone['surface_error'].max():.0e}")
apart = {NAMES[name]: float(round(errors_apart(coarse, name), 1)) for name in NAMES}
print(f"standard errors apart: {apart}, limit {limit:.1f}")
assert coarse["surface_error"].max() > 10
assert abs(apart["sigma_sq"]) > 5 * limit
assert coarse["divergent__"].sum() == 0

# %% [markdown]
# ## 4. Nobody smoothed
#
# It is that of `free`, up to chance, and below that of the restricted fit. With `A` at 1 this is
# the unrestricted model with phi held at its median, and holding phi moves `tau_sq` little.

# %%
nobody = stan_alone(A=np.ones(problem.n_records))
nuggets = {"A at 1": nobody["tau_sq"], "free": free.draws["tau_sq"], "restricted": alone["tau_sq"]}
for name, draws in nuggets.items():
    print(f"tau_sq, {name}: mean {np.mean(draws):.4f}, sd {np.std(np.ravel(draws)):.4f}")
gap = nobody["tau_sq"].mean() - free.draws["tau_sq"].mean()
assert abs(gap) < 0.2 * nobody["tau_sq"].std()
assert nobody["tau_sq"].mean() < 0.9 * alone["tau_sq"].mean()
