# %% [markdown]
# # Solutions to 4. San Francisco
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
ds, np, pd = (lesson[name] for name in ("ds", "np", "pd"))
neighbour_distances = lesson["neighbour_distances"]
homes, problem, FORMULA, SAMPLER = (
    lesson[name] for name in ("homes", "problem", "FORMULA", "SAMPLER")
)
free, flags, kept, release = (lesson[name] for name in ("free", "flags", "kept", "release"))
home, M = lesson["home"], lesson["M"]
print("Solutions")

# %% [markdown]
# ## 1. The second nearest neighbour
#
# Eleven homes are flagged: the seven of before and four more. Two of the four share one place.
# Each of the other two has one neighbour about 0.005 degrees away and no second one within M.

# %%
second = ds.flag_isolated(free, distance=M, neighbour=2)
new = np.flatnonzero(second.flagged & ~flags.flagged)
nearest = neighbour_distances(problem)
four = pd.DataFrame(
    {
        "longitude": problem.coords[new, 0],
        "latitude": problem.coords[new, 1],
        "nearest": nearest[new],
        "second nearest": second.nearest[new],
    },
    index=new,
)
print(f"{second.n_flagged} flagged; those that were not before:")
print(four.round(4).to_string())
together = new[nearest[new] == 0]
assert second.n_flagged == 11
assert second.flagged[flags.flagged].all()
assert together.size == 2
assert (problem.coords[together[0]] == problem.coords[together[1]]).all()
rest = nearest[np.setdiff1d(new, together)]
assert ((rest > 0.004) & (rest < 0.006)).all()

# %% [markdown]
# ## 2. The home under `preserving`
#
# x'beta at the home hardly falls, where under `paper` it falls clearly. The fit counts the
# variance that smoothing removes as noise of the home's own. So a low price has only its ordinary
# pull on the regression, and the nugget does not grow either.

# %%
preserving = ds.fit(
    problem,
    weights=flags,
    protection="preserving",
    start=free,
    seed=5,
    progress=False,
    **SAMPLER,
)
three = {"no protection": free, "paper": kept, "preserving": preserving}
level = {name: float((fit.draws["beta"] @ problem.X[home]).mean()) for name, fit in three.items()}
nugget = {name: float(fit.draws["tau_sq"].mean()) for name, fit in three.items()}
for name in three:
    print(f"{name}: x'beta at the home {level[name]:.2f}, tau_sq {nugget[name]:.3f}")
fell = {name: level["no protection"] - value for name, value in level.items()}
assert fell["paper"] > 0.05
assert abs(fell["preserving"]) < 0.4 * fell["paper"]
assert nugget["paper"] > 1.15 * nugget["no protection"]
assert abs(nugget["preserving"] / nugget["no protection"] - 1) < 0.1

# %% [markdown]
# ## 3. In kilometres
#
# There is one: any M in the gap between the seventh and the eighth largest distance, such as 1 km,
# flags the same seven homes. A degree of longitude is shorter than one of latitude here, so the
# order among the seven changes, but not who they are.

# %%
projected = ds.prepare(
    homes, FORMULA, coords=("longitude", "latitude"), distance="projected", name="san-francisco"
)
kilometres = neighbour_distances(projected)
largest = np.sort(kilometres)[::-1]
print(f"any M above {largest[7]:.2f} and up to {largest[6]:.2f} km flags seven homes")
same = bool(np.array_equal(kilometres >= 1, flags.flagged))
print(f"M = 1 km flags {(kilometres >= 1).sum()}, the same seven: {same}")
assert same
assert largest[7] < 1 < largest[6]
orders = (np.argsort(-distances[flags.flagged]) for distances in (nearest, kilometres))
assert not np.array_equal(*orders)

# %% [markdown]
# ## 4. The sds before and after
#
# The smallest sd of the seven grows by about a half, and stays a small part of what an intruder
# has without any copy. The share of copies within ten per cent fell by about a half, but it looks
# at one copy at a time. All copies together still place a flagged home within a few per cent.

# %%
found = ds.assess(release, progress=False)
seven = flags.flagged
before, after = found.sd_before[seven].min(), found.sd[seven].min()
without = found.after.leave_one_out[seven].min()
print(
    f"smallest sd of the seven: {without:.3f} without any copy, {before:.4f} after as many", end=" "
)
print(f"copies without protection, {after:.4f} after the {release.values.shape[0]} released")
print(f"share within 10% reduced by {found.shares.reduced('within_relative', 'flagged'):.0f}%")
assert 1.25 < after / before < 2
assert after < 0.2 * without
assert 30 < found.shares.reduced("within_relative", "flagged") < 70
assert 1.96 * after < 0.10
