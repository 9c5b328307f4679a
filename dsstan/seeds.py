"""Random streams: one root seed, a named child stream for each use."""

from __future__ import annotations

import secrets

import numpy as np

from dsstan.errors import InputError


def root_seed(seed: int | None) -> int:
    """The seed given, or a fresh one of 128 bits that nobody can guess.

    Raises
    ------
    InputError
        If the seed is no whole number from 0 on.
    """
    if seed is None:
        return secrets.randbits(128)
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError("seed must be a whole number from 0 on, or None for a fresh one")
    return int(seed)


def stan_seed(seed: int) -> int:
    """A seed for Stan, from 1 to 2^31 - 1, that differs for different roots.

    Stan's own 0 and 1 start the same stream; the hash keeps them apart.
    """
    word = int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])
    return 1 + word % (2**31 - 2)
