"""What a search aims at: the floor of every record, and the room that copies have under it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from dsstan.core.arrays import Floats, Truths

ABOVE, NEARLY = 1.02, 0.8
"""How far above the floor a plan aims, and the share of what a record has without any copy that
it aims at where that is below the floor."""

AGAIN = 1.1
"""How far above the floor is aimed for a record that a release left short of it: the sd after
other copies differs by several per cent."""


@dataclass(frozen=True, eq=False)
class Floors:
    """What every record must be left with. Confidential.

    Attributes
    ----------
    asked
        The least sd, modelled scale, shape (N,).
    alone
        sd without any copy, shape (N,).
    aim
        What is aimed at: the least sd, and where a record has less without any copy nearly that.
    beyond
        Information that copies with noise gave beyond that of the variances fixed, by the exact
        intruder's sds of a release, shape (N,); None before there is one.
    """

    asked: Floats = field(repr=False)
    alone: Floats = field(repr=False)
    aim: Floats = field(repr=False)
    beyond: Floats | None = field(repr=False, default=None)

    @classmethod
    def of(cls, asked: Floats, alone: Floats) -> Floors:
        """Aims a little above the floor, so that the fit's own noise does not undo them."""
        above = asked + np.minimum((ABOVE - 1.0) * asked, 0.5 * (alone - asked))
        return cls(asked, alone, np.where(alone < asked, NEARLY * alone, above))

    @property
    def hopeless(self) -> Truths:
        """Records below the floor without any copy, shape (N,)."""
        return np.asarray(self.alone < self.asked)

    @property
    def room(self) -> Floats:
        """Most information that copies may give on each record, shape (N,)."""
        with np.errstate(divide="ignore"):
            return np.asarray(self.aim**-2.0 - self.alone**-2.0)

    def sd(self, information: Floats) -> Floats:
        """What so much information leaves, shape (N,)."""
        with np.errstate(divide="ignore"):
            return np.asarray((self.alone**-2.0 + information) ** -0.5)

    def weakest(self, sd: Floats) -> float:
        """The smallest sd over its floor, of the records that can reach theirs."""
        able = ~self.hopeless & (self.asked > 0)
        return float(np.min(sd[able] / self.asked[able])) if able.any() else np.inf

    def learnt(self, sd: Floats, fixed: Floats, guessed: Floats, exact: Truths) -> Floors:
        """The same after a release with noise.

        Parameters
        ----------
        sd
            What it leaves, shape (N,). A record that missed its floor gets a little more, unless
            what copies give beyond ``fixed`` is known only now.
        fixed, guessed
            Information of its copies with the variances fixed, and what was assumed beyond that,
            shape (N,).
        exact
            Records whose sd is no bound, shape (N,). Of the others no more is learnt than was
            guessed.
        """
        beyond = np.maximum(sd**-2.0 - self.alone**-2.0 - fixed, 0.0)
        beyond = np.where(exact, beyond, np.minimum(beyond, guessed))
        if self.beyond is not None:  # with less noise it is more
            beyond = np.maximum(beyond, self.beyond)
        known = ~exact if self.beyond is None else np.ones_like(exact)
        aims = self.raised(np.where(known, sd, np.inf), ABOVE)
        return replace(aims, beyond=beyond)

    def raised(self, sd: Floats, by: float = AGAIN) -> Floors:
        """The same, with more aimed at for the records that a release left below their floor.

        Parameters
        ----------
        sd
            What it leaves, shape (N,).
        by
            How far above the floor is aimed for them.
        """
        short = ~self.hopeless & (sd < self.asked)
        ratio = np.divide(by * self.asked, sd, out=np.ones(sd.size), where=short)
        return replace(self, aim=np.minimum(self.aim * ratio, 0.5 * (self.aim + self.alone)))
