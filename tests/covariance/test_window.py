"""The box of (phi, r) that a surface of many records covers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from dsstan.core.errors import SurfaceError
from dsstan.covariance import window
from dsstan.covariance.likelihood_surface import Surface, error_at, interpolate
from dsstan.covariance.surface_statistics import ExactStatistics, exact_statistics
from dsstan.covariance.window import Window, exact_surface, profile

N, SHARED = 900, 150
PHI, RATIO = 8.0, 0.05
FALL = 25.0


def statistics(protection: str = "none", phi: float = PHI, ratio: float = RATIO) -> ExactStatistics:
    """Of records on shared sites, some of them smoothed."""
    rng = np.random.default_rng(7)
    sites = rng.uniform(size=(N, 2))
    sites[:SHARED] = sites[SHARED : 2 * SHARED]
    d = cdist(sites, sites)
    root = np.linalg.cholesky(np.exp(-phi * d) + ratio * np.eye(N))
    X = np.column_stack([np.ones(N), rng.normal(size=N)])
    y = X @ [1.0, 0.5] + root @ rng.normal(size=N)
    a = np.where(sites[:, 0] < 0.1, 0.3, 1.0) if protection != "none" else np.ones(N)
    return exact_statistics(d, X, y, a_diag=a, protection=protection, places=sites)


BOUNDS = (3.0 / 1.4, 300.0 / 1.4), (1e-4, 1e4)


@pytest.fixture(scope="module")
def plain() -> ExactStatistics:
    return statistics()


@pytest.fixture(scope="module")
def narrow(plain: ExactStatistics) -> tuple[Surface, Window]:
    return exact_surface(plain, *BOUNDS)


def test_blocks_hold_every_row_once_and_one_block_is_exact(plain):
    rows = np.sort(np.concatenate(plain.blocks))
    assert len(plain.blocks) >= 4
    np.testing.assert_array_equal(rows, np.arange(N - SHARED))
    phi, r = np.array([2.0, 40.0]), np.array([1e-3, 0.1, 10.0])
    one = replace(plain, blocks=(np.arange(N - SHARED),))
    for rough, exact in zip(one.block_by_block(phi, r), plain.at(phi, r), strict=True):
        np.testing.assert_allclose(rough, exact, rtol=1e-9, atol=1e-9)


def test_few_records_have_no_blocks_and_their_surface_is_whole():
    rng = np.random.default_rng(3)
    sites, X = rng.uniform(size=(60, 2)), np.ones((60, 1))
    few = exact_statistics(
        *(cdist(sites, sites), X, rng.normal(size=60)),
        a_diag=np.ones(60),
        protection="none",
        places=sites,
    )
    found, box = exact_surface(few, *BOUNDS)
    assert few.blocks == ()
    assert (box.phi_bounds, box.r_bounds) == BOUNDS == (found.phi_bounds, found.r_bounds)


@pytest.mark.parametrize("protection", ["none", "paper", "preserving"])
def test_a_narrow_surface_is_exact_where_the_posterior_is_and_leaves_nothing_out(
    protection, plain, narrow
):
    source = plain if protection == "none" else statistics(protection)
    found, box = narrow if protection == "none" else exact_surface(source, *BOUNDS)
    assert found.error < 1e-4
    assert np.prod(found.nodes) < 0.5 * 32 * 56
    rng = np.random.default_rng(1)
    phi, r = (np.exp(rng.uniform(*np.log(ends), 5)) for ends in (box.phi_bounds, box.r_bounds))
    for at, exact in zip(phi, source.at(phi, r), strict=True):
        for s, ratio in zip(exact, r, strict=True):
            assert error_at(found, s, float(at), float(ratio)) < 1e-4
    # The density at the ends that were cut, by a surface of the whole range.
    wide = interpolate(source, *BOUNDS, (32, 56))
    of_phi, of_r, density = profile(wide, N, *BOUNDS)
    inside = (of_phi >= box.phi_bounds[0]) & (of_phi <= box.phi_bounds[1])
    inside = np.outer(inside, (of_r >= box.r_bounds[0]) & (of_r <= box.r_bounds[1]))
    assert density[~inside].max() < density.max() - FALL


def test_the_prior_of_the_decay_moves_the_box(plain, narrow):
    rate = 4.0
    _, box = exact_surface(plain, *BOUNDS, phi_rate=rate)
    assert box.phi < 0.9 * narrow[1].phi
    wide = interpolate(plain, *BOUNDS, (32, 56))
    of_phi, of_r, density = profile(wide, N, *BOUNDS, rate)
    _, _, without = profile(wide, N, *BOUNDS)
    np.testing.assert_allclose(without - density, np.tile(rate * of_phi[:, None], of_r.size))
    inside = (of_phi >= box.phi_bounds[0]) & (of_phi <= box.phi_bounds[1])
    inside = np.outer(inside, (of_r >= box.r_bounds[0]) & (of_r <= box.r_bounds[1]))
    assert density[~inside].max() < density.max() - FALL


@pytest.mark.parametrize("ends", [((100.0, 120.0), (1.0, 2.0)), ((2.5, 3.0), (1e-3, 2e-3))])
def test_a_first_look_that_misleads_is_found_out(ends, plain, narrow, monkeypatch):
    """The final surface is widened until its own density is low at its ends."""
    monkeypatch.setattr(window, "_narrower", lambda *_: Window(*ends))
    found, box = exact_surface(plain, *BOUNDS)
    top = narrow[1]
    assert found.error < 1e-4
    assert box.phi_bounds[0] < top.phi < box.phi_bounds[1]
    assert box.phi == pytest.approx(top.phi, rel=0.05)
    assert box.r == pytest.approx(top.r, rel=0.05)


def test_a_posterior_that_is_never_found_is_an_error(plain, monkeypatch):
    monkeypatch.setattr(window, "_narrower", lambda *_: Window((190.0, 191.0), (5e3, 5.1e3)))
    monkeypatch.setattr(window, "_WIDENINGS", 2)
    with pytest.raises(SurfaceError, match="was not found"):
        exact_surface(plain, *BOUNDS)
