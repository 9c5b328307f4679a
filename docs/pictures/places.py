"""Draw ``places.png``: homes of San Francisco, a copy with moved places, and displaced homes.

``python docs/pictures/places.py`` writes it beside this file. The sales are public; the radius of
the displacement is the one at which an intruder finds as much as in the copy.
"""

from __future__ import annotations

from pathlib import Path

import dsstan as ds
from dsstan.analysis.places.marked import marked
from dsstan.comparison.places.compare import at_equal_risk
from dsstan.comparison.places.radial import displace
from dsstan.comparison.places.released import prior_of, released
from dsstan.models.intensity.fit import fit_intensity
from dsstan.release.pictures.place_plots import plot_places
from dsstan.release.pictures.save import save
from dsstan.table.mask.points import mask_of_addresses

OUT = Path(__file__).with_suffix(".png")
PLACE = {"coords": ("longitude", "latitude"), "distance": "projected"}
COLUMNS = ["price", "squarefeet", "longitude", "latitude"]


def main() -> None:
    homes = ds.load_san_francisco()[COLUMNS]
    problem = ds.prepare(homes, "log(price) ~ scale(log(squarefeet))", **PLACE)
    every = ds.prepare(ds.load_san_francisco(bedrooms=None), "log(price) ~ 1", **PLACE)
    mask = mask_of_addresses(every.sites, problem, cells=60)
    intensity = fit_intensity(problem, mask, seed=1, progress=False)
    fit = ds.fit(problem, seed=2, progress=False)
    release = ds.synthesise(fit, 1, places="moved", intensity=intensity, seed=4, progress=False)
    copy, original, prior = released(release), marked(problem), prior_of(intensity)
    moved = at_equal_risk(
        lambda radius: displace(original, mask, radius, prior=prior, seed=5),
        copy.mean_finding,
        (0.1, 20.0),
    )
    print(copy, moved, sep="\n")
    tables = [copy.tables[0], moved.tables[0]]
    names = ["copy with moved places", f"displaced, {moved.setting} km"]
    plot = plot_places(original, tables, mask, names=names, value="log price")
    OUT.unlink(missing_ok=True)
    save(plot, OUT, dpi=110).chmod(0o644)


if __name__ == "__main__":
    main()
