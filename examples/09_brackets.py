# %% [markdown]
# # 9. Brackets: how many homes above a million, exactly?
#
# *Time: 20 minutes. Level: second course: truncated normals. Before it: example 4.*
#
# Copies from a spatial model get the number of expensive homes roughly right. If that number
# matters, section 6 of Quick, Holan and Wikle (2018) suggests to keep each home's price bracket:
# copies are drawn from a normal that is cut to the bracket. The price is that everybody learns the
# bracket of every home. We keep "below a million" and "a million or more" in the San Francisco
# sales, count, and measure what is revealed.

# %%
import os

import numpy as np
import pandas as pd
from plotnine import aes, facet_wrap, geom_histogram, geom_vline, ggplot, labs, theme, theme_bw

import dsstan as ds
from dsstan.models.brackets.fit import fit_bracketed
from dsstan.release.pictures.save import show
from dsstan.risk.bracket_cost import bracket_cost

QUICK = bool(os.environ.get("DSSTAN_QUICK"))  # fewer copies and iterations, for the tests
COPIES = 40 if QUICK else 200
SAMPLER = {"warmup": 500, "samples": 600} if QUICK else {"warmup": 1000, "samples": 1000}
MILLION = 1_000_000

homes = ds.load_san_francisco(bedrooms=1)
problem = ds.prepare(
    homes,
    "log(price) ~ scale(log(squarefeet))",
    coords=("longitude", "latitude"),
    distance="degrees",
    name="san-francisco",
)
truth = problem.original()
print(f"{int((truth >= MILLION).sum())} of {len(truth)} homes were sold for a million or more")
print(f"{int((truth == MILLION).sum())} of them for a million exactly")

# %% [markdown]
# A bracket holds its lower end (`closed="left"`), so a home of exactly a million counts as "a
# million or more". The seven homes that stand alone are smoothed, as in example 4.

# %%
CUTS = [MILLION]
free = fit_bracketed(problem, CUTS, seed=1, progress=False, **SAMPLER)
flags = ds.flag_isolated(free, distance=0.01)
kept = fit_bracketed(problem, CUTS, weights=flags, start=free, seed=2, progress=False, **SAMPLER)
bracketed = ds.synthesise(kept, copies=COPIES, seed=3, progress=False)

# The same posterior, and copies that are not cut.
plain = ds.synthesise(kept.gaussian, copies=COPIES, seed=3, progress=False)


def dear(release):
    """Homes of a million or more in each copy."""
    return (release.values >= MILLION).sum(axis=1)


def counted(release):
    """Their smallest, median and largest number over the copies."""
    low, middle, high = np.quantile(dear(release), [0, 0.5, 1])
    return f"from {low:.0f} to {high:.0f}, median {middle:.0f}"


print(f"homes of a million or more in the original: {int((truth >= MILLION).sum())}")
print(f"in the copies without brackets: {counted(plain)}")
print(f"in the copies with brackets: {counted(bracketed)}")
print(
    f"every home in its own bracket in every copy: {kept.brackets.inside(bracketed.values).all()}"
)

# %% [markdown]
# Not only the number is right: it is the same homes. Without brackets, how often is a home of a
# million or more one in a copy?

# %%
above = truth >= MILLION
print(f"without brackets: {100 * (plain.values[:, above] >= MILLION).mean():.0f}% of the time")
print(f"with brackets: {100 * (bracketed.values[:, above] >= MILLION).mean():.0f}%")

# %% [markdown]
# ## What the copies look like
#
# One of the dear homes that the model would not expect to be dear. Without brackets its copies are
# spread on both sides of a million; with them they crowd at the lower end of its bracket, as a
# normal cut far from its mean does.

# %%
share = (plain.values >= MILLION).mean(axis=0)
home = int(np.argmin(np.where(above, share, np.inf)))
kinds = pd.CategoricalDtype(["without brackets", "with brackets"], ordered=True)
shown = pd.DataFrame(
    {
        "price": np.concatenate([plain.values[:, home], bracketed.values[:, home]]) / MILLION,
        "copies": pd.Series(np.repeat(list(kinds.categories), COPIES), dtype=kinds),
    }
)
print(f"its copies without brackets are a million or more in {100 * share[home]:.0f}%")
show(
    ggplot(shown, aes("price"))
    + geom_histogram(breaks=[k / 20 for k in range(8, 41)], closed="left", fill="#4477aa")
    + geom_vline(xintercept=1.0, linetype="dashed")
    + facet_wrap("copies", ncol=1)
    + labs(x="synthetic price, million dollars", y="copies")
    + theme_bw()
    + theme(figure_size=(6, 4)),
    "09_prices",
)

# %% [markdown]
# ## What it costs
#
# Share of copies within ten per cent of the truth, with and without brackets, and the sd of the
# log price for an intruder who knows all other homes, before and after they learn the bracket.

# %%
cost = bracket_cost(bracketed)
print(cost.drop(columns="width").round(3).to_string(index=False))
dear_row, all_row = cost.iloc[-2], cost.iloc[-1]
print(f"near copies, a million or more: {dear_row['near_without']:.2f} to {dear_row['near']:.2f}")
print(f"near copies, all homes: {all_row['near_without']:.2f} to {all_row['near']:.2f}")
print(f"sd left, a million or more: {dear_row['sd_others']:.3f} to {dear_row['sd_bracket']:.3f}")

# %% [markdown]
# The 15 homes pay for all: a bracket in the tail of the prices reveals much of its few members.
# Narrow brackets make everybody pay. Each of the following adds cut points:

# %%
rows = []
for cuts in ([MILLION], [500_000, MILLION], list(range(300_000, MILLION + 1, 100_000))):
    fit = fit_bracketed(problem, cuts, seed=1, progress=False, **SAMPLER)
    release = ds.synthesise(fit, copies=COPIES, seed=4, progress=False)
    every = bracket_cost(release).iloc[-1]
    rows.append(
        {
            "brackets": len(cuts) + 1,
            "smallest": int(fit.brackets.counts.min()),
            "near without": every["near_without"],
            "near with": every["near"],
            "sd left without": every["sd_others"],
            "sd left with": every["sd_bracket"],
        }
    )
print(pd.DataFrame(rows).round(3).to_string(index=False))

# %% [markdown]
# ## What the analyst gets
#
# The share of dear homes is exact in every copy. Its variance between copies is 0, and the
# combining rule then gives the interval of the original. The regression stays close to that of the
# real data too:

# %%
analysis = ds.utility(bracketed)
print(analysis.table.round(3).to_string(index=False))

# %% [markdown]
# The release states what it revealed. This is the last part of its README:

# %%
print(kept.public_note)

# %% [markdown]
# ## Exercises
#
# 1. Give `closed="right"`. In which bracket is the home that was sold for a million exactly?
# 2. Keep brackets of 50,000 dollars. Which share of the copies is within ten per cent of the
#    truth, and would you publish them?
# 3. Give the brackets by name, `{"dear": (1_000_000, None), "other": (None, 1_000_000)}`, with a
#    column of the table that names them (`column=`). What does an error say if a name is wrong?
# 4. Fit `likelihood="truncated"` with `start=free`. Compare the variances with those of `free`,
#    and read the page on brackets of the documentation for the reason.
