"""What an analyst can still estimate from the copies.

Combining rules, overlap, propensity scores, spatial regressions.
"""
