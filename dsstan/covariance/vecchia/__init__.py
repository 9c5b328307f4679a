"""Vecchia's approximation: neighbours, sums, draws and the terms of the intruder.

Other covariances live one floor up.
"""
