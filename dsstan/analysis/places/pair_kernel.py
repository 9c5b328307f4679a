"""Compiled loop over pairs of places; see :mod:`.pairs`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def pair_sums(
    places: Any,
    values: Any,
    first: Any,
    second: Any,
    block: Any,
    overlap: Any,
    width: float,
    step: float,
    bins: int,
    blocks: int,
    band: float,
) -> Any:
    """Sums over ordered pairs by distance, and over each pair once.

    ``places`` ascend in x. Bin b holds distances above b ``step`` and up to (b + 1) ``step``, the
    first also 0. ``overlap`` holds the number of cells that the mask has in common with itself
    shifted by whole cells, the shift (0, 0) in the middle. Pairs up to ``band`` beyond the last bin
    count for the density at the ends of the bins, by Epanechnikov's kernel of that half width.
    """
    weights = np.zeros((blocks, bins))
    pairs = np.zeros(bins)
    distances = np.zeros(bins)
    squares = np.zeros(bins)
    density = np.zeros(bins)
    reach = step * bins + band
    middle_y, middle_x = overlap.shape[0] // 2, overlap.shape[1] // 2
    for i in range(len(places)):
        for j in range(i + 1, len(places)):
            dx = places[j, 0] - places[i, 0]
            if dx > reach:
                break
            dy = places[j, 1] - places[i, 1]
            if abs(dy) > reach:
                continue
            forward = first[i] and second[j]
            backward = first[j] and second[i]
            if not (forward or backward):
                continue
            d = math.sqrt(dx * dx + dy * dy)
            if d > reach:
                continue
            # Between whole shifts the common area is bilinear, exactly: all cells are squares.
            a, c = dx / width, dy / width
            k, m = math.floor(a), math.floor(c)
            f, g = a - k, c - m
            k, m = k + middle_x, m + middle_y
            common = (1.0 - g) * ((1.0 - f) * overlap[m, k] + f * overlap[m, k + 1]) + g * (
                (1.0 - f) * overlap[m + 1, k] + f * overlap[m + 1, k + 1]
            )
            w = 1.0 / (common * width * width)
            if band > 0.0:
                ordered = 2.0 * w if forward and backward else w
                for e in range(max(math.ceil((d - band) / step), 1), bins + 1):
                    away = (e * step - d) / band
                    if away >= 1.0:
                        break
                    density[e - 1] += ordered * 0.75 * (1.0 - away * away) / band
            b = max(math.ceil(d / step - 1e-9) - 1, 0)
            if b >= bins:
                continue
            if forward:
                weights[block[i], b] += w
            if backward:
                weights[block[j], b] += w
            pairs[b] += 1.0
            distances[b] += d
            squares[b] += (values[i] - values[j]) ** 2
    return weights, pairs, distances, squares, density
