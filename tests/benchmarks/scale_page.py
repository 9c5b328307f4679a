"""The page and the picture of ``scale.py``, from its rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scale_data import DRAWN_FROM, EXACT, PHI, SIGMA_SQ, TAU_SQ
from scale_programs import CHAINS, NEIGHBOURS, PROGRAMS

Row = dict[str, Any]

PICTURE = "pictures/benchmarks-scale.png"

SLOPE = (1e4, 1e6)
"""Least and most records over which the growth of the seconds is fitted."""


def slope(rows: Sequence[Row], program: str = "dsstan") -> tuple[float, int, int] | None:
    """Power of N by which the seconds grow, and the least and most records it is fitted over."""
    points = [
        (r["n"], r["seconds"])
        for r in rows
        if r.get("program") == program and r["status"] == "done"
        if SLOPE[0] <= r["n"] <= SLOPE[1]
    ]
    sizes = [n for n, _ in points]
    if len(set(sizes)) < 2:
        return None
    n, seconds = np.log(np.asarray(points, dtype=np.float64)).T
    return float(np.polyfit(n, seconds, 1)[0]), min(sizes), max(sizes)


def cells(row: Row) -> list[str]:
    """One row of the table, cell by cell."""
    head = [PROGRAMS[row["program"]][0], f"{row['n']:,}"]
    if row["status"] != "done":
        return [*head, _gone(row), "", f"{row['mib']:.0f}" if "mib" in row else "", *[""] * 4]
    warmup, kept = row.get("iterations", (0, 0))
    chains = f"{CHAINS} × ({warmup} + {kept})" if kept else "estimate"
    middle = ["–", "–"]
    if "ess" in row:
        middle = [f"{row['ess']:.0f}", f"{row['ess'] / row['seconds']:.3g}"]
    ends = [f"{row['log_phi']:.2f}", f"{row['log_tau_sq']:.2f}"]
    return [*head, f"{row['seconds']:.1f}", chains, f"{row['mib']:.0f}", *middle, *ends]


def _gone(row: Row) -> str:
    """Why there are no seconds."""
    if row["status"] == "stopped":
        if row["why"] == "memory":
            return f"stopped at {row['mib']:.0f} MiB"
        return f"stopped after {row['seconds']:.0f} s"
    if row["status"] == "failed":
        return f"failed: {row['why'].replace('|', '/')}"
    return {
        "not tried: time": "not tried: the smaller one took longer than the limit",
        "not tried: memory": "not tried: the smaller one took more memory than the limit",
    }.get(row["status"], str(row["status"]))


def versions(rows: Sequence[Row]) -> str:
    """Packages that ran, with their versions."""
    found: dict[str, str] = {}
    for row in rows:
        found |= row.get("versions", {})
    return ", ".join(f"{name} {version}" for name, version in sorted(found.items()))


def report(rows: Sequence[Row]) -> str:
    """The page, as Markdown; the first of rows is the machine."""
    machine, rows = rows[0], rows[1:]
    busy = f", load average {machine['load']:.1f} at the start" if "load" in machine else ""
    lines = [
        "# Benchmarks by the number of records",
        "",
        "Made by `python tests/benchmarks/scale.py`, all rows in one run on "
        f"{machine['cores']} cores ({machine['machine']}{busy}). Each row is one program on the "
        f"same records in a fresh process, stopped after {machine['limit']:.0f} s. "
        "Compare rows of one run, not of two machines.",
        "",
        "The records lie at random on the unit square with one covariate; partial sill "
        f"{SIGMA_SQ:g}, nugget {TAU_SQ:g} (log {np.log(TAU_SQ):.2f}), exponential correlation of "
        f"decay {PHI:g} (log {np.log(PHI):.2f}), so the effective range stays the same as N grows. "
        f"Up to {EXACT} records the spatial effect is drawn exactly, beyond from a process of "
        f"{DRAWN_FROM} nearest neighbours. All programs have the same model, "
        "y ~ N(X beta, sigma_sq exp(-phi d) + tau_sq I), and all samplers the same priors. "
        "Only dsstan and the plain Stan program cut tau_sq / sigma_sq to 1e-4 to 1e4, which at "
        "N = 200 leaves out less than a hundredth of the posterior.",
        "",
        f'- **dsstan**: `dsstan.fit(problem, covariance="auto")` on the embedded engine, exact up '
        f"to 2000 records, then Vecchia's approximation with {NEIGHBOURS} neighbours; preparation, "
        "surface and checks included. A first fit, not counted, has numba compile its loops.",
        "- **plain Stan program**: `stan/reference/cholesky.stan`, a Cholesky factor of V in every "
        "gradient, on the embedded engine, which interprets the program where CmdStan compiles it.",
        "- **NumPyro, NUTS** and **PyMC with nutpie**: the same, in double precision, with "
        "their own defaults; compilation included.",
        "- **GPBoost**: maximum likelihood, exact or by Vecchia's approximation with "
        f"{NEIGHBOURS} neighbours, on all cores. It gives an estimate and no posterior, so it has "
        "no effective sample size.",
        "",
        "Seconds run from the arrays to the draws or the estimate, without imports. Samplers run "
        "one thread of linear algebra a chain. Where a chain is short, its warm-up weighs more, "
        "which flatters dsstan, and its means are rough. Worst effective sample size: the "
        "smallest bulk ESS of any parameter. Memory: peak of all processes of the program "
        "together. The last two columns, posterior means or estimates, show that the programs "
        "solve the same problem.",
        "",
        "| program | N | seconds | chains × (warm-up + kept) | peak MiB | worst ESS "
        "| worst ESS a second | log phi | log tau_sq |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines += ["| " + " | ".join(cells(row)) + " |" for row in rows]
    lines += ["", f"![Seconds against the number of records, one line a program]({PICTURE})", ""]
    lines += ["Seconds as run: chains differ in length, see the table.", ""]
    found = slope(rows)
    if found is not None:
        power, least, most = found
        growth = f"From {least:,} to {most:,} records the seconds of dsstan grow as"
        lines += [f"{growth} **N^{power:.2f}**.", ""]
    return "\n".join([*lines, f"Versions: {versions(rows)}."]) + "\n"


def picture(rows: Sequence[Row]) -> Any:
    """Seconds against N by program, both logarithmic; crosses where a program was stopped."""
    import pandas as pd
    import plotnine as p9

    timed = [r for r in rows if r.get("status") == "done" or r.get("why") == "time"]
    table = pd.DataFrame(
        {
            "program": [PROGRAMS[r["program"]][0] for r in timed],
            "n": [r["n"] for r in timed],
            "seconds": [r["seconds"] for r in timed],
            "end": [r["status"] for r in timed],
        }
    )
    order = [label for label, *_ in PROGRAMS.values() if label in set(table["program"])]
    table["program"] = pd.Categorical(table["program"], order)
    lines = table[table.groupby("program", observed=True)["n"].transform("size") > 1]
    return (
        p9.ggplot(table, p9.aes("n", "seconds", colour="program"))
        + p9.geom_line(data=lines)
        + p9.geom_point(p9.aes(shape="end"), size=2.5)
        + p9.scale_shape_manual({"done": "o", "stopped": "x"})
        + p9.scale_colour_brewer(type="qual", palette="Dark2")
        + p9.scale_x_log10()
        + p9.scale_y_log10()
        + p9.labs(x="records", y="seconds", colour="", shape="")
        + p9.theme_minimal()
        + p9.theme(figure_size=(8, 5))
    )


def write(rows: Sequence[Row], out: Path) -> None:
    """The page and its picture beside it."""
    (out.parent / PICTURE).parent.mkdir(exist_ok=True)
    picture(rows[1:]).save(out.parent / PICTURE, dpi=120, verbose=False)
    out.write_text(report(rows), encoding="utf-8")
