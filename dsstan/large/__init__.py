"""Thousands to millions of records: covariances that need no N x N matrix.

:mod:`dsstan.large.vecchia` (nearest-neighbour conditionals) and
:mod:`dsstan.large.predictive_process` (a process at knots) give the statistics of the profile
surface, :mod:`dsstan.large.latent` the spatial effect given the data, and
:mod:`dsstan.large.exposure` what a release tells an intruder. :func:`dsstan.fit` chooses.
"""
