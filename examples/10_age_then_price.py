# %% [markdown]
# # 10. Age, then price: do two synthetic columns still go together?
#
# *Time: 20 minutes. Level: second course: counts. Before it: example 4.*
#
# Section 6 of Quick, Holan and Wikle (2018) asks for more than one sensitive value: synthesise
# the age of a person by a Poisson model, then the income given the *synthetic* age. Here the
# records are the one-bedroom homes of San Francisco: their age is a count of years, and the price
# goes by size and age. Both columns are replaced. What is left of how they go together?

# %%
import os

import numpy as np
import pandas as pd
from plotnine import aes, facet_wrap, geom_point, ggplot, labs, scale_x_sqrt, scale_y_log10, theme

import dsstan as ds
from dsstan.analysis.utility import ols
from dsstan.models.counts.fit import fit_counts
from dsstan.release.pictures.save import show
from dsstan.risk.joint_disclosure import joint_disclosure

QUICK = bool(os.environ.get("DSSTAN_QUICK"))  # fewer copies and iterations, for the tests
COPIES = 20 if QUICK else 100
SAMPLES = 500 if QUICK else 1000
ALONE = 0.9  # kilometres without a neighbour

homes = ds.load_san_francisco(bedrooms=1)
homes = homes[homes["year"].notna()].drop(columns="lotsize").reset_index(drop=True)
homes["age"] = (homes["date"].dt.year - homes["year"]).astype("int64")
homes = homes.drop(columns="year")
place = {"coords": ("longitude", "latitude"), "distance": "projected"}
print(f"{len(homes)} homes; ages from {homes['age'].min()} to {homes['age'].max()}")
print(f"median age {homes['age'].median():.1f}, mean {homes['age'].mean():.1f} years")

# %% [markdown]
# The year in which a home was built would reveal its age, so that column leaves the table.
#
# ## First the age
#
# A count with a log link: `age ~ Poisson(exp(x beta + w))`, w a Gaussian process. There is no
# nugget: what a home has beside its place and size is the spread of the Poisson law.

# %%
age_problem = ds.prepare(homes, "age ~ scale(log(squarefeet))", **place)
age_free = fit_counts(age_problem, "poisson", seed=1, samples=SAMPLES, progress=False)
flags = ds.flag_isolated(age_free, distance=ALONE)
age_fit = fit_counts(
    age_problem, "poisson", weights=flags, start=age_free, seed=2, samples=SAMPLES, progress=False
)
print(age_free.summary()[["term", "mean", "q025", "q975", "ess_bulk"]].round(3).to_string())
print(f"\n{flags.n_flagged} homes with no neighbour within {ALONE:g} km")
ages = ds.synthesise(age_fit, COPIES, seed=3, progress=False)
print(f"a copy's ages are whole numbers: {ages.table(0)['age'].dtype}")
print(
    f"mean age in the restricted copies {ages.values.mean():.1f}, sd {ages.values.std():.1f};",
    end=" ",
)
print(f"in the table {homes['age'].mean():.1f}, sd {homes['age'].std():.1f}")

# %% [markdown]
# ## Then the price, given the synthetic age
#
# The model of price is fitted to the real homes. Its copies are drawn at the ages of the copies.

# %%
FORMULA = "log(price) ~ scale(log(squarefeet)) + scale(age)"
price_problem = ds.prepare(homes, FORMULA, **place)
price_free = ds.fit(price_problem, seed=4, samples=2 * SAMPLES, adapt_delta=0.95, progress=False)
price_fit = ds.fit(
    price_problem,
    weights=ds.flag_isolated(price_free, distance=ALONE),
    start=price_free,
    seed=5,
    samples=2 * SAMPLES,
    progress=False,
)
both = ds.synthesise(price_fit, COPIES, seed=6, given=ages, progress=False)
print(both)

# %% [markdown]
# ## What an analyst finds
#
# The effect of age on the log price, by least squares, three times: in the table; in the chain;
# and in copies whose prices were drawn at the *real* ages and then put beside synthetic ones.

# %%
apart = ds.synthesise(price_fit, COPIES, seed=7, progress=False)
design = price_problem.design


def pooled(prices):
    """The coefficient of age over the copies, the ages synthetic."""
    found = [
        ols(design.X_of(homes.assign(age=age)), np.log(price))
        for age, price in zip(ages.values, prices, strict=True)
    ]
    return ds.combine([q for q, _ in found], [u for _, u in found])


row = ds.utility(both).get("original", "scale(age)")
print(f"table     {row['estimate']:+.3f} ({row['low']:+.3f}, {row['high']:+.3f})")
for name, values in (("chain", both.values), ("apart", apart.values)):
    p = pooled(values)
    print(f"{name:<9} {p.estimate[2]:+.3f} ({p.low[2]:+.3f}, {p.high[2]:+.3f})")

# %% [markdown]
# Apart, part of the effect is lost: the price knows the real age, and the age beside it is
# another. Little is lost here, because the ages of the copies stay close to the real ones where
# homes have neighbours (the last table says how close, which is a disclosure of its own). The
# more the ages are protected, the more the chain matters. It keeps the effect as far as the model
# of price has it: a straight line in age. What the model leaves out, a bend for the oldest homes
# say, no copy has.

# %%
pieces = {"table": homes, "one copy": both.table(0)}
shown = pd.concat([t.assign(which=name) for name, t in pieces.items()])
shown["which"] = pd.Categorical(shown["which"], pieces)
show(
    ggplot(shown, aes("age", "price"))
    + geom_point(alpha=0.5)
    + facet_wrap("which")
    + scale_x_sqrt()
    + scale_y_log10()
    + labs(x="age in years", y="price in dollars")
    + theme(figure_size=(8, 4)),
    "10_age_and_price",
)

# %% [markdown]
# ## What an intruder finds
#
# To know a home's age *and* its price to 10% takes both at once.

# %%
near = joint_disclosure(both)
for name, members in {"flagged": near["flagged"], "unflagged": ~near["flagged"]}.items():
    age, price, at_once = near.loc[members, ["age", "price", "all"]].mean()
    print(
        f"{name:<10} age {100 * age:4.1f}%   price {100 * price:4.1f}%   both {100 * at_once:4.1f}%"
    )

# %% [markdown]
# New homes are an exception to read with care: 10% of an age of 4 is less than a year, so only
# the exact age counts as near, and a Poisson draw with mean 4 hits it one time in five. For small
# counts look at the exact value: `ds.disclosure(ages, relative=0.0)`.
#
# ## Exercises
#
# 1. Fit the ages with `"negative binomial"` instead. What does `size` say of the Poisson law, and
#    what happens to the share of copies near the true age?
# 2. Change the order: price first, then age given the synthetic price. Does the effect of age
#    survive in the regression above?
# 3. Put `I(age**2)` into the formula of price. Do you find a bend in the table, and in the copies?
#    What becomes of the prices at the largest synthetic ages?
