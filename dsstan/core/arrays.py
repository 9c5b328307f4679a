"""The kinds of arrays that annotations name; docstrings state shapes and units."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Truths: TypeAlias = NDArray[np.bool_]
Indices: TypeAlias = NDArray[np.intp]
