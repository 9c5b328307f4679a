# %% [markdown]
# # 6. Baltimore: from a table of your own to a release, and back as an analyst
#
# *Time: 30 minutes. Level: first course. Before it: example 1; how to read a table with
# pandas.*
#
# A data steward has a CSV file of house sales: places, features, prices. The prices are to be made
# synthetic. Which steps lead from that file to a folder that may be published, and what can
# somebody do who has the published part only?
#
# The file is the Baltimore sales of 1978 (Dubin 1992), written to a temporary folder as if they
# were confidential. They are not, so we may print what must not be printed of a real table.

# %%
import os
import stat
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from plotnine import aes, geom_histogram, geom_vline, ggplot, labs, theme, theme_bw

import dsstan as ds
from dsstan.core.errors import DisclosureError, FormulaError
from dsstan.models.weights import neighbour_distances
from dsstan.release.pictures.plots import plot_intervals, plot_surface
from dsstan.release.pictures.save import show
from dsstan.release.reading import read_release, read_table

QUICK = bool(os.environ.get("DSSTAN_QUICK"))  # fewer copies and iterations, for the tests
COPIES = 10 if QUICK else 20
SAMPLER = {"warmup": 500, "samples": 800} if QUICK else {"warmup": 1000, "samples": 1000}
CELLS, DRAWS = (40, 20) if QUICK else (70, 100)  # of a map

temporary = tempfile.TemporaryDirectory(prefix="baltimore-")
folder = Path(temporary.name)
ds.load_baltimore().to_csv(folder / "sales.csv", index=False)
os.environ["DSSTAN_LEDGER"] = str(folder / "ledger")  # of what is published; see the end

# %% [markdown]
# ## Read the table
#
# `read_table` reads CSV and Parquet so that the copies can repeat every other column to the last
# digit. `pandas.read_csv` does as well if your columns are plain.

# %%
sales = read_table(folder / "sales.csv")
print(f"{len(sales)} sales, {int(sales.isna().sum().sum())} missing values")
print(
    sales[["price", "squarefeet", "age", "county", "x", "y"]].describe().loc[["min", "50%", "max"]]
)

# %% [markdown]
# `prepare` is the only door into the package. It refuses missing values, impossible coordinates and
# collinear columns before anything is fitted.
#
# The formula says what the copies will keep. This one has transforms, a category and an
# interaction: the slope of the floor area may differ between city (county 0) and county (1). A
# square would be `I(age**2)`, a smooth curve `bs(age, df=4)`. A formula is not Python: anything
# but columns, arithmetic and a short list of functions is refused.
#
# The columns of the formula and the coordinates go out, and those that `publish` names. All others
# stay, above all what identifies a record: here `station`, a running number.

# %%
FORMULA = "log(price) ~ scale(log(squarefeet)) * C(county) + sqrt(age)"
problem = ds.prepare(sales, FORMULA, coords=("x", "y"), publish=["fireplace"], name="baltimore")
print(problem)
print("columns of X:", ", ".join(problem.terms))
try:
    ds.prepare(sales, "log(price) ~ open('sales.csv')", coords=("x", "y"))
except FormulaError as error:
    print("refused:", error)

# %% [markdown]
# ## Look at the distances before you choose M
#
# A record is flagged where its nearest neighbour is at least M from it. M is in the unit of the
# coordinates, thousands of feet here. Look where the distances leave off being ordinary.

# %%
nearest = neighbour_distances(problem)
print("largest:", " ".join(f"{d:.1f}" for d in np.sort(nearest)[::-1][:8]))
print(
    pd.DataFrame({"M": [5, 7, 10, 15]}).assign(flagged=lambda t: [sum(nearest >= m) for m in t.M])
)

# %%
M = 10
show(
    ggplot(pd.DataFrame({"distance": nearest}), aes("distance"))
    + geom_histogram(binwidth=1, boundary=0, fill="#bdbdbd", color="white")
    + geom_vline(xintercept=M, color="#d7191c", linetype="dashed")
    + labs(x="distance to the nearest neighbour (thousands of feet); dashed: M", y="records")
    + theme_bw()
    + theme(figure_size=(7, 3)),
    "06_distances",
)

# %% [markdown]
# ## Fit, flag, fit again
#
# Every prior has a default, and one of them needs thought. The decay phi is uniform up to
# 300 / d_max, d_max the largest distance in the data. That allows effective ranges 3 / phi below
# the distance between neighbours, where a spatial effect looks like a nugget. With this formula the
# posterior then has two explanations, and the sampler may wander between them (exercise 2). So we
# say the shortest range that we would believe.
#
# The unrestricted fit shows how far the spatial effect reaches. The paper's rule takes M from a
# correlation of 0.20; a distance is easier to explain, and does not move with the posterior.
#
# Protection `"preserving"` adds the variance that smoothing removes as noise of that sale, so that
# a flagged sale keeps no more than its ordinary pull on the coefficients.

# %%
SHORTEST = 15  # effective range, thousands of feet
priors = ds.Priors(phi_bounds=(3 / problem.d_max, 3 / SHORTEST))
print(f"median distance to the nearest neighbour {np.median(nearest):.1f}")
print(f"default: ranges from {problem.d_max / 100:.1f} to {problem.d_max:.0f} thousand feet")
print(f"ours:    ranges from {SHORTEST} to {problem.d_max:.0f} thousand feet")
print("our bounds of phi:", " to ".join(f"{phi:.4f}" for phi in priors.phi_bounds))

# %%
free = ds.fit(problem, priors=priors, seed=1, progress=False, **SAMPLER)
by_rule = ds.flag_isolated(free, correlation=0.20)
flags = ds.flag_isolated(free, distance=M)
kept = ds.fit(
    problem,
    weights=flags,
    protection="preserving",
    start=free,
    seed=2,
    progress=False,
    **SAMPLER,
)
reach = 3 / np.median(free.draws["phi"])
print(f"effective range 3 / phi: {reach:.0f} thousand feet")
print(f"correlation 0.20: M = {by_rule.threshold:.1f}, {by_rule.n_flagged} flagged")
print(f"distance {M}: correlation {flags.correlation:.2f}, {flags.n_flagged} flagged\n")
print(kept)

# %%
show(
    plot_surface(
        ds.surface_on_grid(kept, cells=CELLS, draws=DRAWS, progress=False),
        problem,
        flagged=flags.flagged,
        title="Spatial effect of the restricted fit (log dollars)",
    )
    + labs(x="x (thousands of feet)", y="y (thousands of feet)")
    + theme(figure_size=(7, 4.2)),
    "06_surface",
)

# %% [markdown]
# ## Copies, and what they reveal
#
# The floor: nobody's price may be placed within +/-10%, with a probability of 95%, by an intruder
# who knows all other prices and sees all copies. `assess` says whether the release keeps it, how
# near that intruder gets, and how many copies would keep it for all.

# %%
FLOOR = "10%"
release = ds.synthesise(kept, copies=COPIES, seed=3, progress=False)
found = ds.assess(release, floor=FLOOR, progress=False)
print(found)

# %% [markdown]
# The shares at the end are counted among the copies: with two flagged records and few copies they
# are mostly chance. "Less safe" are records of which the protected copies reveal more than the
# unprotected ones: protecting one record can expose another. The numbers above the shares
# are computed from the law of the copies.
#
# ## What the copies keep
#
# First the regression that the model contains, then one with a column that it does not contain.

# %%
kept_by_analyst = ds.utility(release)
print(kept_by_analyst)
other = ds.utility(release, f"{FORMULA} + fireplace")
print()
for source in ("original", "restricted"):
    row = other.get(source, "fireplace")
    print(f"fireplace, {source}: {row['estimate']:.3f} ({row['low']:.3f}, {row['high']:.3f})")

# %% [markdown]
# What the model does not know, the copies can't show: the effect of a fireplace is weaker in the
# copies than in the original. Put every column into the formula that analysts will ask for.

# %%
show(plot_intervals(kept_by_analyst) + theme(figure_size=(7, 5.5)), "06_intervals")

# %% [markdown]
# ## Write the release
#
# `write` assesses, refuses what must not go out or misses its floor, and makes one folder with two
# parts, both for their owner alone.

# %%
target = release.write(folder / "release", floor=FLOOR)
PURPOSE = {
    "copy_001.csv": "the copies, one file each: the table with synthetic prices",
    "metadata.json": "columns, formula and combining rule, for a program",
    "README.md": "how to combine the copies, for an analyst",
    "factsheet.html": "the same for a reader",
    "report.html": "the page on which the steward decides",
    "summary.json": "its numbers, for a program",
    "settings.json": "seeds, versions and settings, to make the release again",
    "draws_unrestricted.parquet": "posterior draws of the first fit",
    "draws_restricted.parquet": "posterior draws of the second",
    "flags.csv": "who is flagged, and how far the neighbour is",
    "risks.csv": "every record's risk",
    "copies.csv": "which draw stands behind which copy",
    "public.sha256": "hashes of the public files, by which publishing sees a change",
    "ledger.json": "what the ledger of the table's releases gets once this one is published",
    "ledger.parquet": "the same, by record",
}
for part in ("public", "confidential"):
    mode = stat.filemode((target / part).stat().st_mode)
    print(f"{part}/ {mode}")
    for file in sorted((target / part).iterdir()):
        if file.name in PURPOSE:
            print(f"  {file.name}: {PURPOSE[file.name]}")
        else:
            assert file.name.startswith("copy_")

# %% [markdown]
# ## Publish
#
# `publish` (in a shell `dsstan publish release --to published`) looks at both verdicts and copies
# the public part to where others may read it. A fit with warnings, a floor that is missed or was
# never given need a reason, which is kept. Here it is the fit that warns: whoever finds a small
# seed can subtract the noise of the copies. With real prices leave the seeds out. The next release
# of these prices is counted with this one.

# %%
try:
    release.publish(target, to=folder / "published")
except DisclosureError as error:
    print(str(error).removeprefix(f"{target} ").split(".")[0])
published = release.publish(
    target, to=folder / "published", reason="These sales are public, and so are the seeds"
)
print(
    f"fit {published.fit_verdict}, disclosure {published.disclosure_verdict}, "
    f"floor {published.floor['asked']}; {len(published.files)} files"
)

# %% [markdown]
# ## As an analyst
#
# From here on we have the published folder and nothing else. `read_release` checks that it is
# whole.

# %%
public = read_release(folder / "published")
first = public.copies[0]
print(public)
print("the model behind them:", public.metadata["model"]["formula"])
print("how to combine:", public.metadata["combining_rule"])
print(first[["price", "squarefeet", "age", "county", "x", "y"]].head(3).to_string(index=False))

# %% [markdown]
# Fit every copy with any software, keep estimates and squared standard errors, combine. Here least
# squares of the log price on the log of the floor area and the age, by hand.


# %%
def least_squares(table):
    """Estimates and squared standard errors of one copy."""
    X = np.column_stack([np.ones(len(table)), np.log(table["squarefeet"]), table["age"]])
    y = np.log(table["price"].to_numpy())
    estimate, *_ = np.linalg.lstsq(X, y, rcond=None)
    residual = y - X @ estimate
    scale = residual @ residual / (len(y) - X.shape[1])
    return estimate, scale * np.diag(np.linalg.inv(X.T @ X))


estimates, variances = zip(*(least_squares(copy) for copy in public.copies), strict=True)
pooled = ds.combine(estimates, variances)
names = ["intercept", "log(squarefeet)", "age"]
columns = ["estimate", "low", "high", "df"]
print(pd.DataFrame({c: getattr(pooled, c) for c in columns}, index=names).round(4).to_string())

within, between = np.mean(variances, axis=0), np.var(estimates, axis=0, ddof=1)
by_hand = within + between / len(public.copies)
print(f"\nT = u + b / L by hand: largest difference {np.abs(by_hand - pooled.variance).max():.1e}")
print("share of b / L in it:", " ".join(f"{s:.3f}" for s in 1 - within / by_hand))

# %% [markdown]
# One copy alone would give an interval from its own standard error, which leaves out what differs
# between copies. Rubin's rule for missing data would add it more than once: it is another rule, for
# another kind of data.
#
# And the confidential part? An analyst asks in vain:

# %%
held = set(public.metadata) | set(first.columns)
for word in ("seed", "flagged", "threshold", "gamma", "sigma_sq"):
    assert word not in held
    assert word not in (folder / "published" / "metadata.json").read_text(encoding="utf-8")
print("no seed, flag, threshold, gamma or estimate is on the public side")
steward = ds.utility(release, "log(price) ~ log(squarefeet) + age").table
steward = steward[steward["source"] == "restricted"]["estimate"].to_numpy()
print(f"steward's and analyst's estimates differ by {np.abs(steward - pooled.estimate).max():.0e}")
temporary.cleanup()

# %% [markdown]
# The same from a shell:
#
#     dsstan synthesise sales.csv --publish fireplace --floor 10% \
#         --formula "log(price) ~ scale(log(squarefeet)) * C(county) + sqrt(age)" \
#         --coords x y --phi-bounds 0.0234 0.2 \
#         --threshold 10 --protection preserving --copies 20 --out release
#     dsstan publish release --to published
#
# ## Exercises
#
# 1. Put `fireplace` into the formula and fit again. What becomes of its estimate in the copies?
# 2. Fit without `priors=`. What does `print(fit.verdict)` say, and what does a histogram of
#    `fit.draws["phi"].ravel()` show?
# 3. Take `largest_release` from the assessment, draw that many copies and assess them. Is the floor
#    met?
# 4. Prices are rounded. Compare the last digits of `sales["price"]` with those of a copy, then draw
#    copies with `rounding="none"`. Which would a reader take for real?
