# %% [markdown]
# # Solutions to 9. Brackets
#
# The lesson runs first, so that its names are there.

# %%
import contextlib
import io
import runpy
from pathlib import Path

from dsstan.core.errors import InputError

LESSON = Path(__file__).parents[1] / Path(__file__).name
print("The lesson runs, without its output ...")
with contextlib.redirect_stdout(io.StringIO()):
    lesson = runpy.run_path(str(LESSON))
ds, np, pd = (lesson[name] for name in ("ds", "np", "pd"))
homes, problem, truth = (lesson[name] for name in ("homes", "problem", "truth"))
free, fit_bracketed, bracket_cost = (lesson[n] for n in ("free", "fit_bracketed", "bracket_cost"))
COPIES, MILLION, QUICK, SAMPLER = (
    lesson[name] for name in ("COPIES", "MILLION", "QUICK", "SAMPLER")
)
print("Solutions")

# %% [markdown]
# ## 1. The other end
#
# In the lower one. A bracket now holds its upper end, so the lower bracket is "a million or less"
# and the upper one is "above a million", with one home fewer.

# %%
right = fit_bracketed(problem, [MILLION], closed="right", seed=1, progress=False, **SAMPLER)
home = int(np.flatnonzero(truth == MILLION)[0])
for fit in (free, right):
    kept = fit.brackets
    print(f"{kept.closed}: the home is in '{kept.words()[kept.number[home]]}'", end=", ")
    print(f"homes in the two brackets: {kept.counts}")
assert free.brackets.number[home] == 1
assert right.brackets.number[home] == 0
assert right.brackets.counts[1] == free.brackets.counts[1] - 1

# %% [markdown]
# ## 2. Narrow brackets
#
# Nearly all copies are within ten per cent. Above half a million every copy is, except in the open
# bracket at the top, since there a whole bracket is within ten per cent of any of its values. The
# brackets say so without the copies: one guess for each bracket that has two ends is as near for
# nearly all homes, and several brackets hold one home. The copies would hide next to nothing, so
# they should not be published.

# %%
WIDTH = 50_000
cuts = list(range((int(truth.min()) // WIDTH + 1) * WIDTH, int(truth.max()) + 1, WIDTH))
narrow = fit_bracketed(problem, cuts, seed=1, progress=False, **SAMPLER)
copies = ds.synthesise(narrow, copies=COPIES, seed=5, progress=False)
near = np.abs(copies.values / truth - 1.0) <= 0.10
low, high = (ends[narrow.brackets.number] for ends in (narrow.brackets.low, narrow.brackets.high))
closed = np.isfinite(low) & np.isfinite(high)
guess = 2 * low[closed] * high[closed] / (low[closed] + high[closed])
guessed = np.abs(guess / truth[closed] - 1.0) <= 0.10
single = int((narrow.brackets.counts == 1).sum())
print(f"copies within 10%: {100 * near.mean():.0f}%;", end=" ")
print(f"from half a million: {100 * near[:, closed & (truth >= 500_000)].mean():.0f}%;", end=" ")
print(f"one guess a bracket: {100 * guessed.mean():.0f}%; brackets with one home: {single}")
assert near.mean() > 0.9
assert near[:, closed & (truth >= 500_000)].all()
assert guessed.mean() > 0.9
assert single >= 3

# %% [markdown]
# ## 3. Brackets by name
#
# With the right names the copies are those of the cut point. The name of a bracket may be wrong in
# two ways. If no bracket has it, the error says so and in which rows; if it is the name of
# another bracket, the error says that the price is outside its bracket.

# %%
FORMULA, PLACE = "log(price) ~ scale(log(squarefeet))", ("longitude", "latitude")
NAMED = {"dear": (MILLION, None), "other": (None, MILLION)}
kinds = homes.assign(kind=np.where(truth >= MILLION, "dear", "other"))


def named(table):
    """The fit with the brackets that the column `kind` names."""
    table_problem = ds.prepare(table, FORMULA, coords=PLACE, distance="degrees")
    return fit_bracketed(table_problem, NAMED, column="kind", seed=1, progress=False, **SAMPLER)


by_name, by_cut = (ds.synthesise(f, 5, seed=3, progress=False) for f in (named(kinds), free))
print(f"the same copies by name and by cut point: {np.array_equal(by_name.values, by_cut.values)}")
assert np.array_equal(by_name.values, by_cut.values)
said = {}
for wrong in ("expensive", "dear"):
    changed = kinds.copy()
    changed.loc[int(np.flatnonzero(truth < MILLION)[0]), "kind"] = wrong
    try:
        named(changed)
    except InputError as error:
        said[wrong] = str(error)
        print(f"{wrong}: {error}")
assert "names a bracket that is not given" in said["expensive"]
assert "is outside its bracket" in said["dear"]

# %% [markdown]
# ## 4. The truncated likelihood
#
# It finds a larger nugget and a smaller variance between places. It takes each home's bracket as
# given, so it does not use what the brackets say of where prices are high. What is left
# is the spread within the brackets, and a nugget explains it as well.

# %%
truncated = fit_bracketed(
    problem, [MILLION], likelihood="truncated", start=free, seed=6, progress=False, **SAMPLER
)
both = {"plain": free, "truncated": truncated}
medians = pd.DataFrame(
    {k: {n: np.median(f.draws[n]) for n in ("sigma_sq", "tau_sq")} for k, f in both.items()}
)
print(medians.round(4).to_string())
assert QUICK or truncated.verdict.passed
assert medians.loc["tau_sq", "truncated"] > medians.loc["tau_sq", "plain"]
assert medians.loc["sigma_sq", "truncated"] < medians.loc["sigma_sq", "plain"]
