"""The posterior of a Gaussian fit from the data of ``stan/surface.stan``, without Stan.

Given phi, r = tau_sq / sigma_sq and sigma_sq the coefficients are normal and integrate in closed
form; sigma_sq integrates on a line. What is left is a density of (log phi, log r), which is
tabulated on a grid that closes in on the posterior.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.polynomial.chebyshev import chebvander
from scipy.interpolate import RectBivariateSpline
from scipy.ndimage import label, maximum, sum_labels
from scipy.special import gammaln, logsumexp
from threadpoolctl import threadpool_limits

from dsstan.core.arrays import Floats
from dsstan.covariance.correlation import log_decay_mass
from dsstan.covariance.surface_statistics import matrix_of
from dsstan.engines.base import StanData

POINTS = (32, 48)
"""Points of the grid in log phi and log r."""

FINER = 6
"""Cells of the table between two points of the grid, on each axis."""

DEPTH = 30.0
"""What lies so far below the top of the log density is left out: 1e-13 of it."""

LEAST_MASS = 0.01
"""Share of the posterior that makes a top of its own."""

STEP, LEFT, RIGHT = 0.125, 8.0, 12.0
"""Step and ends of the line over log sigma_sq, in sds from its mode."""


@dataclass(frozen=True, eq=False)
class GivenSpatial:
    """The likelihood at points of (log phi, log r), beta integrated out.

    With beta = scale * gamma and the precision of gamma's least squares e_j / sigma_sq along the
    columns of ``basis``.
    """

    log_r: Floats
    constant: Floats
    quadratic: Floats  # residual sum of squares in the metric of C
    e: Floats  # (points, P)
    best: Floats  # gamma's least squares along the basis, (points, P)
    basis: Floats  # (points, P, P)


AT_ONCE = 20_000
"""Points that are interpolated at a time: each needs as many numbers as the surface has nodes."""

MOST_BETWEEN = 50_000_000
"""Numbers held where statistics are interpolated in phi first; of more columns and points, in both
at once."""


@dataclass(frozen=True, eq=False)
class SurfacePosterior:
    """The posterior of a Gaussian fit in (log phi, log r, log sigma_sq), and of beta given it."""

    panels: tuple[Floats, ...]  # Chebyshev coefficients of the statistics, (G, K, H) each
    r_ends: tuple[float, ...]  # of the panels
    n: int
    factor: Floats
    b: Floats
    scale: Floats
    phi_bounds: tuple[float, float]
    phi_rate: float
    half_normal: bool
    sigma: tuple[float, ...]
    tau: tuple[float, ...]

    @classmethod
    def of(cls, data: StanData) -> SurfacePosterior:
        """The posterior that the data of ``surface.stan`` state."""
        P, H, above = (int(data[name]) for name in ("P", "H", "H_above"))
        surface = np.asarray(data["surface"], dtype=np.float64)
        parts = np.split(surface, [surface.shape[1] * H // (H + above)], axis=1)
        panels = [part.reshape(len(part), -1, n) for part, n in zip(parts, (H, above), strict=True)]
        r_ends = [float(data[name]) for name in ("r_lower", "r_split", "r_upper")]
        if r_ends[1] == r_ends[2]:  # the second panel adds nothing
            del panels[1], r_ends[2]
        return cls(
            tuple(panels),
            tuple(r_ends),
            n=int(data["n"]),
            factor=np.asarray(data["factor"], dtype=np.float64).reshape(P, P),
            b=np.asarray(data["b_ls"], dtype=np.float64).reshape(P),
            scale=np.asarray(data["beta_scale"], dtype=np.float64).reshape(P),
            phi_bounds=(float(data["phi_lower"]), float(data["phi_upper"])),
            phi_rate=float(data["phi_rate"]),
            half_normal=data["variance_prior"] == 1,
            sigma=tuple(data["sigma_par"]),
            tau=tuple(data["tau_par"]),
        )

    @property
    def held(self) -> float | None:
        """The decay where it is held."""
        low, high = self.phi_bounds
        return low if low == high else None

    @property
    def box(self) -> Floats:
        """Ends of (log phi, log r), shape (2, 2)."""
        return np.log([self.phi_bounds, (self.r_ends[0], self.r_ends[-1])])

    def statistics(self, points: Floats) -> Floats:
        """Scaled statistics at (log phi, log r), shape (points, 2) to (points, K).

        A panel is read at its own end where r lies in another, as in ``panels_at`` of Stan.
        """
        if len(points) > AT_ONCE:
            parts = np.array_split(points, -(-len(points) // AT_ONCE))
            return np.concatenate([self.statistics(part) for part in parts])
        ends = zip(self.panels, itertools.pairwise(self.r_ends), strict=True)
        with threadpool_limits(limits=1, user_api="blas"):
            return np.asarray(sum(self._panel(points, series, np.log(r)) for series, r in ends))

    def _panel(self, points: Floats, series: Floats, log_r: Floats) -> Floats:
        """What one panel gives, shape (points, K)."""
        place = [
            np.zeros(len(points))
            if high <= low
            else np.clip(2 * (points[:, i] - low) / (high - low) - 1, -1, 1)
            for i, (low, high) in enumerate((self.box[0], log_r))
        ]
        G, K, H = series.shape
        by_phi, by_r = chebvander(place[0], G - 1), chebvander(place[1], H - 1)
        if len(points) * K * H < MOST_BETWEEN:
            between = (by_phi @ series.reshape(G, -1)).reshape(-1, K, H)
            return np.asarray(np.einsum("pkh,ph->pk", between, by_r))
        both = (by_phi[:, :, None] * by_r[:, None, :]).reshape(len(points), -1)
        return np.asarray(both @ series.swapaxes(1, 2).reshape(G * H, K))

    def given(self, points: Floats) -> GivenSpatial:
        """The likelihood at (log phi, log r), shape (points, 2), beta integrated out."""
        s = self.statistics(points)
        P, log_r = self.b.size, points[:, 1]
        r = np.exp(log_r)
        full = matrix_of(s) / (1 + r)[:, None, None]
        A, g = full[:, :P, :P], full[:, :P, P]
        u = -np.linalg.solve(A, g[..., None])[..., 0]
        metric = self.factor * self.scale
        e, basis = np.linalg.eigh(metric.T @ A @ metric)
        best = (self.b - np.linalg.solve(self.factor, u.T).T) / self.scale
        constant = -0.5 * (self.n * np.log(2 * np.pi) + s[:, 0] + self.n * np.log1p(r))
        if self.held is None:
            log_phi, mass = points[:, 0], log_decay_mass(self.phi_bounds, self.phi_rate)
            constant += log_phi - self.phi_rate * np.exp(log_phi) - mass
        return GivenSpatial(
            log_r,
            constant + log_r,
            full[:, P, P] + np.einsum("pj,pj->p", u, g),
            np.maximum(e, 0.0),
            np.einsum("pji,pj->pi", basis, best),
            basis,
        )

    def over_sigma(self, given: GivenSpatial, t: Floats) -> Floats:
        """Log density at t = log sigma_sq, shape (points, m)."""
        v = np.exp(t)
        density = given.constant[:, None] + (2 - 0.5 * self.n) * t
        density -= 0.5 * given.quadratic[:, None] / v
        for e, best in zip(given.e.T[..., None], given.best.T[..., None], strict=True):
            density -= 0.5 * (best**2 * e / (e + v) + np.log1p(e / v))
        log_r = given.log_r[:, None]
        return density + self._prior(t, self.sigma) + self._prior(t + log_r, self.tau)

    def mode(self, given: GivenSpatial) -> tuple[Floats, Floats]:
        """Mode of log sigma_sq at each point and the sd by its curvature, shapes (points,)."""
        start = np.log(np.maximum(given.quadratic, 1e-300) / self.n)
        reach = np.arange(-16.0, 16.5, 0.5)
        found = self.over_sigma(given, start[:, None] + reach)
        low = start + reach[found.argmax(axis=1)] - 0.5
        high = low + 1.0
        for _ in range(40):
            middle = 0.5 * (low + high)
            rising = self._slope(given, middle) > 0
            low, high = np.where(rising, middle, low), np.where(rising, high, middle)
        top, by = 0.5 * (low + high), 1e-4
        curved = (self._slope(given, top - by) - self._slope(given, top + by)) / (2 * by)
        return top, 1.0 / np.sqrt(np.maximum(curved, 1e-2))

    def line(self, given: GivenSpatial) -> tuple[Floats, Floats]:
        """Values of log sigma_sq around the mode and the log density there, (points, m) each."""
        top, sd = self.mode(given)
        t = top[:, None] + sd[:, None] * np.arange(-LEFT, RIGHT + STEP, STEP)
        return t, self.over_sigma(given, t)

    def marginal(self, points: Floats) -> Floats:
        """Log density of (log phi, log r), sigma_sq integrated out, shape (points,)."""
        t, density = self.line(self.given(points))
        return np.asarray(logsumexp(density, axis=1) + np.log(t[:, 1] - t[:, 0]))

    def gamma_given(self, given: GivenSpatial, t: Floats) -> tuple[Floats, Floats]:
        """Mean and precision of gamma along the basis at t = log sigma_sq, shape (points, 1)."""
        v = np.exp(t)
        return given.best * given.e / (given.e + v), 1 + given.e / v

    def draw_beta(self, points: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Draws of beta at each point, shape (points, P), and the log density of all together."""
        given, t = self.given(points[:, :2]), points[:, 2:]
        mean, precision = self.gamma_given(given, t)
        noise = rng.standard_normal(mean.shape)
        gamma = np.einsum("pij,pj->pi", given.basis, mean + noise / np.sqrt(precision))
        normal = 0.5 * np.sum(np.log(precision / (2 * np.pi)) - noise**2, axis=1)
        density = self.over_sigma(given, t)[:, 0] + normal - np.log(self.scale).sum()
        return self.scale * gamma, density

    def _slope(self, given: GivenSpatial, t: Floats) -> Floats:
        """Derivative of the log density by log sigma_sq, shape (points,)."""
        v = np.exp(t)
        slope = 2 - 0.5 * self.n + 0.5 * given.quadratic / v
        beside = given.e + v[:, None]
        slope += 0.5 * np.sum(given.e * (given.best**2 * v[:, None] / beside + 1) / beside, axis=1)
        return (
            slope
            + self._prior_slope(v, self.sigma)
            + self._prior_slope(v * np.exp(given.log_r), self.tau)
        )

    def _prior(self, t: Floats, setting: tuple[float, ...]) -> Floats:
        """Log prior density of a variance exp(t)."""
        if self.half_normal:
            square = setting[0] ** 2
            return np.asarray(-0.5 * (np.log(2 * np.pi * square) + np.exp(t) / square + t))
        shape, scale = setting
        constant = shape * np.log(scale) - gammaln(shape)
        return np.asarray(constant - (shape + 1) * t - scale * np.exp(-t))

    def _prior_slope(self, v: Floats, setting: tuple[float, ...]) -> Floats:
        """Its derivative by t, at v = exp(t)."""
        if self.half_normal:
            return np.asarray(-0.5 * (v / setting[0] ** 2 + 1))
        return np.asarray(setting[1] / v - (setting[0] + 1))


@dataclass(frozen=True, eq=False)
class PosteriorTable:
    """The density of (log phi, log r) on a fine grid, linear between its points.

    Where phi is held the first axis is a stand-in of length one, on which nothing depends.
    """

    posterior: SurfacePosterior
    axes: tuple[Floats, Floats]
    density: Floats  # over its largest
    log_top: float

    @classmethod
    def of(cls, data: StanData) -> PosteriorTable:
        """The table, on a box that has closed in on the posterior."""
        posterior = SurfacePosterior.of(data)
        box = posterior.box.copy()
        if posterior.held is not None:
            box[0] = 0.0, 1.0
        while True:
            axes = _spaced(box, POINTS)
            found = _on(posterior, axes)
            inner = _closed_in(axes, found)
            if posterior.held is not None:
                inner[0] = box[0]
            if np.all(np.diff(inner) > 0.6 * np.diff(box)):
                break
            box = inner
        fine = _spaced(box, tuple((n - 1) * FINER + 1 for n in POINTS))
        values = RectBivariateSpline(*axes, found)(*fine)
        top = float(values.max())
        return cls(posterior, fine, np.exp(values - top), top)

    @property
    def log_mass(self) -> float:
        """Log integral of the likelihood and the priors, that of the decay without its constant.

        It counts as exp(-rate phi), which is 1 where it is uniform: so those of several ranges of
        the decay add up.
        """
        first, second = self.axes
        area = (first[1] - first[0]) * (second[1] - second[0])
        p = self.density
        mean = 0.25 * (p[:-1, :-1] + p[1:, :-1] + p[:-1, 1:] + p[1:, 1:])
        of = self.posterior
        prior = 0.0 if of.held is not None else log_decay_mass(of.phi_bounds, of.phi_rate)
        return self.log_top + float(np.log(mean.sum() * area) + prior)

    def propose(self, rng: np.random.Generator, count: int) -> tuple[Floats, Floats]:
        """Points (log phi, log r, log sigma_sq), and log density over that of the proposal."""
        p = self.density
        corners = np.stack([p[:-1, :-1], p[1:, :-1], p[:-1, 1:], p[1:, 1:]])
        mass = corners.sum(axis=0).ravel()
        cell = rng.choice(mass.size, count, p=mass / mass.sum())
        i, j = np.unravel_index(cell, corners.shape[1:])
        a, b, c, d = corners[:, i, j]
        x = _linear(a + c, b + d, rng.random(count))
        low, high = a + x * (b - a), c + x * (d - c)
        y = _linear(low, high, rng.random(count))
        first, second = self.axes
        points = np.column_stack(
            [first[i] + x * (first[1] - first[0]), second[j] + y * (second[1] - second[0])]
        )
        if self.posterior.held is not None:
            points[:, 0] = np.log(self.posterior.held)
        given = self.posterior.given(points)
        t, density = self.posterior.line(given)
        top = density.max(axis=1)
        p = np.exp(density - top[:, None])
        mass = np.cumsum(p[:, :-1] + p[:, 1:], axis=1)
        k = np.sum(mass < rng.random((count, 1)) * mass[:, -1:], axis=1)
        row = np.arange(count)
        left, right = p[row, k], p[row, k + 1]
        z = _linear(left, right, rng.random(count))
        step = t[:, 1] - t[:, 0]
        points = np.column_stack([points, t[row, k] + z * step])
        proposed = np.log(low + y * (high - low)) + np.log(left + z * (right - left))
        proposed -= np.log(0.5 * mass[:, -1] * step)
        return points, self.posterior.over_sigma(given, points[:, 2:])[:, 0] - proposed

    def modes(self) -> int:
        """How many tops there are, each with a hundredth of the mass where it stands alone.

        A top counts where the density falls by more than a factor e on the way to a higher one.
        """
        mass = self.density / self.density.sum()
        most = 1
        for level in np.exp(-np.arange(1.0, 12.0, 0.5)):
            parts, count = label(self.density > level)
            within = range(1, count + 1)
            alone = sum_labels(mass, parts, within) > LEAST_MASS
            high = maximum(self.density, parts, within) > np.e * level
            most = max(most, int(np.sum(alone & high)))
        return most


def _spaced(box: Floats, points: tuple[int, ...]) -> tuple[Floats, Floats]:
    """Evenly spaced values between the ends of each axis."""
    first, second = (np.linspace(low, high, n) for (low, high), n in zip(box, points, strict=True))
    return first, second


def _on(posterior: SurfacePosterior, axes: tuple[Floats, ...]) -> Floats:
    """Log density of (log phi, log r) at the points of a grid."""
    if posterior.held is not None:
        points = np.column_stack([np.full(len(axes[1]), np.log(posterior.held)), axes[1]])
        return np.tile(posterior.marginal(points), (len(axes[0]), 1))
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    return posterior.marginal(points).reshape(len(axes[0]), -1)


def _closed_in(axes: tuple[Floats, ...], found: Floats) -> Floats:
    """Ends of the part of the grid that matters, shape (2, 2).

    A point whose neighbour is far higher may have the top between them: it counts with the
    difference to its neighbours.
    """
    rise = np.zeros_like(found)
    for axis in range(2):
        step = np.abs(np.diff(found, axis=axis))
        width = [(0, 0), (0, 0)]
        for side in ((1, 0), (0, 1)):
            width[axis] = side
            rise = np.maximum(rise, np.pad(step, width))
    near = np.argwhere(found + rise > found.max() - DEPTH)
    low, high = np.maximum(near.min(axis=0) - 1, 0), near.max(axis=0) + 1
    return np.array(
        [[a[i], a[min(j, len(a) - 1)]] for a, i, j in zip(axes, low, high, strict=True)]
    )


def _linear(left: Floats, right: Floats, u: Floats) -> Floats:
    """Quantiles u, on [0, 1], of densities that are linear from left to right."""
    # The root of left x + (right - left) x^2 / 2 = u (left + right) / 2 in a form without loss.
    root = np.sqrt(left**2 + u * (right**2 - left**2))
    return np.asarray(u * (left + right) / np.maximum(left + root, 1e-300))
