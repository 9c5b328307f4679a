# %% [markdown]
# # Solutions to 12. Secret addresses
#
# The lesson runs first, so that its names are there.

# %%
import contextlib
import io
import runpy
from pathlib import Path

import numpy as np

from dsstan.comparison.places.fixed import voronoi

LESSON = Path(__file__).parents[1] / Path(__file__).name
print("The lesson runs, without its output ...")
with contextlib.redirect_stdout(io.StringIO()):
    lesson = runpy.run_path(str(LESSON))
problem, mask, intensity, kept, found, original, useful, prior, SAMPLER = (
    lesson[name]
    for name in (
        "problem",
        "mask",
        "intensity",
        "kept",
        "found",
        "original",
        "useful",
        "prior",
        "SAMPLER",
    )
)
assess_places, fit_intensity, marked_release, move_places, place_utility = (
    lesson[name]
    for name in (
        "assess_places",
        "fit_intensity",
        "marked_release",
        "move_places",
        "place_utility",
    )
)
print("Solutions")

# %% [markdown]
# ## 1. More copies
#
# Lonely homes are found as before, whatever the number of copies: no copy knows them. The others
# are found more often with each copy, since the copies count them again and again.

# %%
lonely, after = intensity.lonely, {}
for copies in (1, 10):
    release = move_places(intensity, kept, copies, seed=11, progress=False)
    cell = assess_places(release).found.cell
    after[copies] = cell[lonely].mean(), cell[~lonely].mean()
    print(f"copies: {copies}, chance of the right cell of", end=" ")
    print(f"lonely homes {after[copies][0]:.4f}, others {after[copies][1]:.3f}")
before = found.found.cell_before
assert abs(after[10][0] - before[lonely].mean()) < 0.1 * before[lonely].mean() + 1e-3
assert after[10][1] > 1.2 * after[1][1]

# %% [markdown]
# ## 2. More homes held back
#
# Three homes of each cell inform nothing. More are lonely, and the copies say nothing of where they
# are: of two or three homes in one cell as little as of one. The largest Bayes factor need not
# fall. It is that of a home whose cell has one or two more than are held back: most of what the map
# knows of the cell it knows from this home. K moves away from the original, since fewer homes
# inform it.

# %%
higher = fit_intensity(problem, mask, held_back=3, seed=1, progress=False, **SAMPLER)
release = move_places(higher, kept, 3, seed=4, progress=False)
again = assess_places(release)
change = place_utility(original, marked_release(release), mask, side=1.0)
print(f"lonely homes: {lonely.sum()} with 1 held back, {higher.lonely.sum()} with 3")
print(f"largest Bayes factor: {found.bayes_factor.max():.1f}, {again.bayes_factor.max():.1f}")
print(f"distance of K: {useful.distances()['K']:.3f}, {change.distances()['K']:.3f}")
assert higher.lonely.sum() > lonely.sum()
assert (higher.lonely >= lonely).all()
assert change.distances()["K"] > useful.distances()["K"]

# %% [markdown]
# ## 3. Voronoi masking
#
# All. A masked home lies half way to its nearest neighbour, whose address the intruder knows: twice
# as far on the same line is the home itself. A method without chance hides nothing from somebody
# who knows the other homes.

# %%
masked = voronoi(original, mask, prior=prior)
print(masked)
assert np.all(masked.finding == 1)
