"""What synthetic or masked places keep of the original ones.

Ripley's K and cross-K, pair correlation, envelopes, counts on areas, distances to the nearest
record, the variogram and the regression. Functions of arrays; no model and no intruder.
"""
