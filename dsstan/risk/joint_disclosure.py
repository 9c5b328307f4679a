"""Shares of copies near the truth in several synthetic columns at once."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dsstan.copies.chain import GivenSynthesis
from dsstan.risk.disclosure import RELATIVE


def joint_disclosure(release: GivenSynthesis, *, relative: float = RELATIVE) -> pd.DataFrame:
    """Share of copies of a chain near the truth in every synthetic column at once. Confidential.

    Returns
    -------
    DataFrame
        One row a record: ``flagged`` (by any step), the share of copies within ``relative`` of the
        true value of each column, and of all at once (``all``).
    """
    flagged = np.any([step.fit.flagged for step in release.steps], axis=0)
    near = []
    table = pd.DataFrame({"flagged": flagged}, index=release.problem.table.index)
    for step in release.steps:
        truth = step.problem.original()
        near.append(np.abs(step.values - truth) <= relative * np.abs(truth))
        table[step.problem.response] = near[-1].mean(axis=0)
    table["all"] = np.mean(np.all(near, axis=0), axis=0)
    return table
