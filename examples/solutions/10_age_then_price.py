# %% [markdown]
# # Solutions to 10. Age, then price
#
# The lesson runs first, so that its names are there.

# %%
import contextlib
import io
import runpy
import warnings
from pathlib import Path

LESSON = Path(__file__).parents[1] / Path(__file__).name
print("The lesson runs, without its output ...")
with contextlib.redirect_stdout(io.StringIO()):
    lesson = runpy.run_path(str(LESSON))
ds, np, homes, place = (lesson[name] for name in ("ds", "np", "homes", "place"))
age_problem, age_fit, ages = (lesson[name] for name in ("age_problem", "age_fit", "ages"))
both, row, ols = (lesson[name] for name in ("both", "row", "ols"))
ALONE, COPIES, SAMPLES, fit_counts = (
    lesson[name] for name in ("ALONE", "COPIES", "SAMPLES", "fit_counts")
)
print("Solutions")

# %% [markdown]
# ## 1. The negative binomial
#
# Beside w the ages vary more than the Poisson law allows. The variance is `mu + mu^2 / size`:
# twice the Poisson variance or so at the mean age without smoothing, and several times with it, so
# `size` takes up what smoothing removes, as a nugget does. The copies are wider, and where homes
# have neighbours about half as many of them are near the true age.

# %%
wide_free = fit_counts(age_problem, "negative binomial", seed=11, samples=SAMPLES, progress=False)
wide_fit = fit_counts(
    age_problem,
    "negative binomial",
    weights=ds.flag_isolated(wide_free, distance=ALONE),
    start=wide_free,
    seed=12,
    samples=SAMPLES,
    progress=False,
)
wide = ds.synthesise(wide_fit, COPIES, seed=13, progress=False)
factors = {}
for name, fit in {"unrestricted": wide_free, "restricted": wide_fit}.items():
    size = float(np.median(fit.draws["size"]))
    factors[name] = 1 + homes["age"].mean() / size
    print(f"{name:<12} size {size:5.1f}: {factors[name]:.1f} times the Poisson variance")
truth, rest = age_problem.original(), ~age_fit.flagged
near = {
    name: (np.abs(release.values - truth) <= 0.10 * truth)[:, rest].mean()
    for name, release in {"Poisson": ages, "negative binomial": wide}.items()
}
for name, share in near.items():
    print(f"{name}: {100 * share:.0f}% of the copies of unflagged homes near the true age")
assert wide_free.verdict.passed
assert wide_fit.verdict.passed
assert 1.5 < factors["unrestricted"] < 3
assert factors["restricted"] > 4
assert (wide.values.std(axis=0) / ages.values.std(axis=0))[rest].mean() > 1
assert 0.3 < near["negative binomial"] / near["Poisson"] < 0.7

# %% [markdown]
# ## 2. The other order
#
# About half of it survives. Given its w, which is free to follow each home's age, the model
# of age finds next to no effect of price: the interval of the coefficient has 0 inside. So the
# synthetic prices do nothing for the ages, and ages drawn at the real prices go as well with
# them. What survives comes from the places: both columns follow their neighbours.

# %%
SIZE = "scale(log(squarefeet))"
options = {"samples": 2 * SAMPLES, "progress": False}
price_problem = ds.prepare(homes, f"log(price) ~ {SIZE}", **place)
price_free = ds.fit(price_problem, seed=21, adapt_delta=0.95, **options)
flags = ds.flag_isolated(price_free, distance=ALONE)
price_fit = ds.fit(price_problem, weights=flags, start=price_free, seed=22, **options)
prices = ds.synthesise(price_fit, COPIES, seed=23, progress=False)

options["samples"] = SAMPLES
last_problem = ds.prepare(homes, f"age ~ {SIZE} + scale(log(price))", **place)
last_free = fit_counts(last_problem, seed=24, **options)
flags = ds.flag_isolated(last_free, distance=ALONE)
last_fit = fit_counts(last_problem, weights=flags, start=last_free, seed=25, **options)
turned = ds.synthesise(last_fit, COPIES, seed=26, given=prices, progress=False)
at_real = ds.synthesise(last_fit, COPIES, seed=27, progress=False)


def pooled(problem, ages, prices):
    """The regression of the log price in the copies, with the terms of a problem."""
    found = [
        ols(problem.design.X_of(homes.assign(age=age)), np.log(price))
        for age, price in zip(ages.values, prices.values, strict=True)
    ]
    return ds.combine([q for q, _ in found], [u for _, u in found])


price_low, price_high = np.quantile(last_fit.draws["beta"][..., 2], [0.025, 0.975])
print(f"effect of price in the model of age: 95% from {price_low:+.3f} to {price_high:+.3f}")
pairs = {
    "age first": (ages, both),
    "price first": (turned, prices),
    "apart": (at_real, prices),
}
effect = {"table": row["estimate"]}
for name, pair in pairs.items():
    effect[name] = pooled(both.problem, *pair).estimate[2]
print("effect of age:", ", ".join(f"{name} {value:+.3f}" for name, value in effect.items()))
assert price_low < 0 < price_high
assert 0.3 < effect["price first"] / effect["table"] < 0.7
assert effect["price first"] < effect["age first"]
assert abs(effect["price first"] - effect["apart"]) < 0.2 * effect["table"]

# %% [markdown]
# ## 3. A bend
#
# There is none to be seen in the table: the interval of the coefficient of the square has 0
# inside. Nor is there one in the copies. But some synthetic ages are several times that of the
# oldest home. There the square is far outside the data, and it carries prices to many times that of
# the dearest home; if the column can't hold one, a warning says so.

# %%
options["samples"] = 2 * SAMPLES
bent_problem = ds.prepare(homes, f"log(price) ~ {SIZE} + scale(age) + I(age**2)", **place)
bent_free = ds.fit(bent_problem, seed=31, adapt_delta=0.95, **options)
flags = ds.flag_isolated(bent_free, distance=ALONE)
bent_fit = ds.fit(bent_problem, weights=flags, start=bent_free, seed=32, **options)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    bent = ds.synthesise(bent_fit, COPIES, seed=33, given=ages, progress=False)
    found = ds.utility(bent)
square = "I(age ** 2)"
for source in ("original", "restricted"):
    line = found.get(source, square)
    print(
        f"{source:<10} {square} {line['estimate']:+.1e} ({line['low']:+.1e}, {line['high']:+.1e})"
    )
    assert line["low"] < 0 < line["high"]
for warning in caught[:1]:
    print("warning:", warning.message)
oldest = ages.values.max() / truth.max()
straight, dearest = (release.values.max() / homes["price"].max() for release in (both, bent))
print(f"oldest in a copy: {oldest:.0f} times the oldest home;", end=" ")
print(f"dearest: {dearest:.0e} times the dearest, {straight:.0f} times without the square")
assert oldest > 3
assert dearest > max(20, straight)
