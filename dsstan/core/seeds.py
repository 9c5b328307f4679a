"""Random streams: one root seed, a named child stream for each use."""

from __future__ import annotations

import hashlib
import secrets

import numpy as np

from dsstan.core.errors import InputError, whole_number


def root_seed(seed: int | None) -> int:
    """The seed given, or a fresh one of 128 bits that nobody can guess.

    Raises InputError if the seed is no whole number from 0 on.
    """
    if seed is None:
        return secrets.randbits(FRESH_BITS)
    whole = whole_number(seed)
    if whole is None or whole < 0:
        raise InputError("seed must be a whole number from 0 on, or None for a fresh one")
    return whole


FRESH_BITS = 128
"""Bits of a seed that is drawn."""
GUESSABLE_BITS = 96
"""A seed of fewer bits can be found by trying."""


def seed_bits(seed: int | None) -> int:
    """Bits of a seed that was given, or of the fresh one that is drawn where there is none.

    Anybody with the copies, the code and the settings can try every small seed. The right one is
    recognised, as its noise fits the copies.

    Examples
    --------
    >>> seed_bits(20180), seed_bits(None)
    (15, 128)
    """
    return FRESH_BITS if seed is None else int(seed).bit_length()


def stan_seed(seed: int) -> int:
    """A seed for Stan, from 1 to 2^31 - 2, that differs for different roots.

    Stan's own 0 and 1 start the same stream; the hash keeps them apart.
    """
    word = int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])
    return 1 + word % (2**31 - 2)


def seed_of(sequence: np.random.SeedSequence) -> int:
    """A root seed of 128 bits from a seed sequence."""
    return int.from_bytes(sequence.generate_state(4, np.uint32).tobytes(), "little")


STARTS, COPIES, LATENT, COMPARISON, FRONTIER, IMPUTATION, STRATA, ROUNDING, PLACES = range(9)
"""Uses of a root seed; each has a spawn key of its own."""


def stream(seed: int, use: int, label: bytes = b"") -> np.random.SeedSequence:
    """The seed sequence of one use of a root seed.

    Parameters
    ----------
    seed
        Root seed.
    use
        One of :data:`STARTS`, :data:`COPIES`, :data:`LATENT`, :data:`COMPARISON`,
        :data:`FRONTIER`, :data:`IMPUTATION`, :data:`STRATA`, :data:`ROUNDING`, :data:`PLACES`.
    label
        What sets one product apart from another of the same use, so that two
        releases of one seed do not share their noise.
    """
    mark = int.from_bytes(hashlib.sha256(label).digest()[:8], "little") if label else 0
    return np.random.SeedSequence([seed, mark], spawn_key=(use,))
