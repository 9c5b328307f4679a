"""Make the small pictures of the teaching examples' index from the pictures of the examples.

``python docs/pictures/lessons.py pictures`` takes the folder that the examples wrote when they were
run as scripts, and writes one picture a lesson into ``docs/pictures/lessons``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from PIL import Image

OUT = Path(__file__).with_suffix("")
CHOSEN = (
    "01_surface",
    "02_gamma",
    "03_copies_of_the_outlier",
    "04_surfaces",
    "05_protections",
    "06_surface",
    "07_posteriors",
    "08_adaptive",
    "09_prices",
    "10_age_and_price",
    "11_effect",
    "12_places",
)
WIDTH, HEIGHT = 480, 320
COLOURS = 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    OUT.mkdir(exist_ok=True)
    for name in CHOSEN:
        picture = Image.open(folder / f"{name}.png").convert("RGB")
        picture.thumbnail((WIDTH, HEIGHT), Image.Resampling.LANCZOS)
        card = Image.new("RGB", (WIDTH, HEIGHT), "white")
        card.paste(picture, ((WIDTH - picture.width) // 2, (HEIGHT - picture.height) // 2))
        card.quantize(COLOURS).save(OUT / f"{name[:2]}.png", optimize=True)


if __name__ == "__main__":
    main()
