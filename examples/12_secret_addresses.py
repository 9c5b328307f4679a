# %% [markdown]
# # 12. Secret addresses: can a table go out without saying where anybody lives?
#
# *Time: 30 minutes. Level: second course. Before it: examples 1 and 4.*
#
# In the other examples places are published as they are. Patients and debtors have addresses that
# nobody may learn. We take the 214 one-bedroom homes of example 4 as if theirs were secret, give
# every home another address, and ask two things. What does somebody find who knows all homes but
# one? And what is left of the map of prices, of the slope, and of where homes are?

# %%
import os
import warnings

import numpy as np
import pandas as pd

import dsstan as ds
from dsstan.analysis.places.marked import marked, marked_release
from dsstan.analysis.places.utility import place_utility
from dsstan.comparison.places.compare import at_equal_risk, compare_places
from dsstan.comparison.places.radial import displace
from dsstan.comparison.places.released import prior_of, released
from dsstan.copies.places.draw import move_places
from dsstan.models.intensity.fit import fit_intensity
from dsstan.release.pictures.place_plots import plot_k, plot_places
from dsstan.release.pictures.save import show
from dsstan.risk.places.assessment import assess_places
from dsstan.table.mask.points import mask_of_addresses

QUICK = bool(os.environ.get("DSSTAN_QUICK"))  # fewer copies and iterations, for the tests
SAMPLER = {"warmup": 300, "samples": 500} if QUICK else {"warmup": 1000, "samples": 1000}
CELLS = 60
COPIES = 3
FORMULA = "log(price) ~ scale(log(squarefeet))"
PLACE = {"coords": ("longitude", "latitude"), "distance": "projected"}

homes = ds.load_san_francisco(bedrooms=1)
homes = homes[["price", "squarefeet", "longitude", "latitude"]]  # no other column goes out
problem = ds.prepare(homes, FORMULA, name="secret-homes", **PLACE)
print(problem)

# %% [markdown]
# ## Where may a synthetic home lie?
#
# In the study area, and better at an address than in the sea. An agency takes a public list of
# addresses. Ours are the places of all sales of the file, of whatever size, which we pretend were
# public. They are cut into square cells; a cell counts for as much as it has addresses.

# %%
everything = ds.load_san_francisco(bedrooms=None)
addresses = ds.prepare(everything, "log(price) ~ 1", name="addresses", **PLACE).sites
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    mask = mask_of_addresses(addresses, problem, cells=CELLS)
print(mask)

# %% [markdown]
# ## Which homes are lonely?
#
# A Gaussian process says how likely each cell is. Of each cell one home is held back: the map that
# synthetic homes are drawn from has seen one home less there. So a home that has its cell for
# itself is *lonely*: the map is the same without it. Any other adds one to the count of its cell.

# %%
intensity = fit_intensity(problem, mask, seed=1, progress=False, **SAMPLER)
print(intensity)
for kind, one in intensity.fits.items():
    print(f"{kind}: the verdict on the fit is {'passed' if one.verdict.passed else 'failed'}")

# %% [markdown]
# ## Move the homes
#
# Each home keeps its size. It gets an address drawn from one posterior draw of the map of homes,
# and a price that the model of prices gives it there. Prices are protected as in example 4, so
# that a home that stands alone does not shape the surface of prices either.

# %%
free = ds.fit(problem, seed=2, progress=False, **SAMPLER)
flags = ds.flag_isolated(free, distance=1.0)
kept = ds.fit(problem, weights=flags, start=free, seed=3, progress=False, **SAMPLER)
release = move_places(intensity, kept, COPIES, seed=4, progress=False)
print(release)

# %%
original, copies = marked(problem), marked_release(release)
show(plot_places(original, copies, mask, value="log price"), "12_places")

# %% [markdown]
# ## What does an intruder find?
#
# They know the law, the mask, every copy, and every home but one with its address. Of the last home
# they know its size. *Finding* is the chance that they give its cell (here, its address). That a
# home is in the table is no secret when places move, as the sizes of all homes go out. The Bayes
# factor is by how much the copies raise the chance of its cell.

# %%
found = assess_places(release)
print(found)
cell = pd.DataFrame({"before": found.found.cell_before, "after": found.found.cell})
rows = cell.groupby(np.where(intensity.lonely, "lonely homes", "other homes")).agg(["mean", "max"])
print("\nchance of the right cell")
print(rows.to_string(float_format=lambda v: f"{v:.3f}"))
print(f"largest Bayes factor of the right cell: {found.bayes_factor.max():.1f}")
print(f"chance of the right address, largest: {found.found.address.max():.3f}")

# %% [markdown]
# Before any release the intruder guesses by the other homes, and is right more often in crowded
# cells. A lonely home is found no better after the release than before. The others are found a
# little better: each copy counts them, and the copies together count more exactly. The largest
# Bayes factors are those of homes with few others in their cell: what the map knows of the cell it
# knows from them.
#
# ## What does an analyst keep?
#
# Ripley's K counts further homes within a distance of a home. In the picture it is 0 where homes
# ignore one another and positive where they cluster; the grey band is what other tables from the
# same city might show. The variogram is that of the prices given the size.

# %%
useful = place_utility(original, copies, mask, side=1.0)
show(plot_k(useful, unit="km"), "12_k")
print(useful)
slope = useful.regression.loc[problem.terms[1]]
print(
    f"slope of the size: {slope['original']:.3f} in the table, {slope['copies']:.3f} in the copies"
)
print(f"its standard error in the table: {slope['se']:.3f}")
share = useful.inside["mean of copies"]
print(f"K of the copies is inside the envelope at {100 * share:.0f}% of the distances")

# %% [markdown]
# The slope is near that of the table, with the trend of the place beside it. Counts by square
# kilometre are near the original's but not equal to them: they are drawn again. Homes that share a
# building do not share one in the copies, so that the nearest other home is farther away.
#
# ## Would moving each home a little have done as well?
#
# Many agencies displace each home by a random distance and keep its true price. We look for the
# radius at which the intruder finds as much, by the same prior, and compare what is left.

# %%
prior = prior_of(intensity)
synthetic = released(release, found)
moved = at_equal_risk(
    lambda radius: displace(original, mask, radius, prior=prior, seed=5),
    synthetic.mean_finding,
    (0.1, 12.0),
)
table = compare_places(original, mask, [synthetic, moved]).table
print(table.T.to_string(float_format=lambda v: f"{v:.3f}"))

# %% [markdown]
# `K` and `variogram` are distances from the original, so less is better; `bias` is the largest bias
# of a coefficient, in standard errors. A displaced table shows every true price, and whoever knows
# the other homes has the price of the last one exactly. The synthetic prices hide it too.
#
# ## Exercises
#
# 1. Release 1 copy, then 10. How does the mean chance of the right cell rise with their number, of
#    lonely homes and of the others?
# 2. Fit the intensity with `held_back=3`. How many homes are lonely now, and what becomes of the
#    largest Bayes factor and of K?
# 3. Mask the homes with `voronoi` of `dsstan.comparison.places.fixed`. How many are found, and
#    why?
