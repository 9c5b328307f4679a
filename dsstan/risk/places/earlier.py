"""What an earlier release of a table said of the place of each record."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from dsstan.core.arrays import Floats
from dsstan.core.errors import InputError, describe_rows


@dataclass(frozen=True, eq=False)
class EarlierPlaces:
    """What an earlier release of a table said of each record's place. Confidential.

    Attributes
    ----------
    log_presence
        Log of the Bayes factor of presence, shape (N,).
    log_odds
        By how much the log odds of the right cell against all others rose, shape (N,).
    """

    log_presence: Floats = field(repr=False)
    log_odds: Floats = field(repr=False)

    @classmethod
    def read(cls, records: pd.DataFrame) -> EarlierPlaces:
        """From ``records`` of an assessment, such as ``risks.csv`` of a written release.

        Raises
        ------
        InputError
            If a column is missing, or a number can't be.
        """
        names = ["bayes_factor", "cell_before", "cell"]
        missing = [name for name in names if name not in records.columns]
        if missing:
            raise InputError(
                "what an earlier release says of each record needs the columns "
                f"{', '.join(names)}; missing: {', '.join(missing)}"
            )
        factor, before, after = (records[name].to_numpy(np.float64) for name in names)
        sound = (factor >= 0) & (before > 0) & (before <= 1) & (after >= 0) & (after <= 1)
        if not sound.all():
            raise InputError(
                f"what an earlier release says is no factor or chance in {describe_rows(~sound)}"
            )
        with np.errstate(divide="ignore"):
            return cls(np.log(factor), rise_of_log_odds(before, after))


def rise_of_log_odds(before: Floats, after: Floats) -> Floats:
    """By how much the log odds of a chance rose; 0 where it was certain before, shape (N,)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        rise = np.log(after) - np.log1p(-after) - np.log(before) + np.log1p(-before)
    return np.asarray(np.where(before < 1.0, rise, 0.0))
