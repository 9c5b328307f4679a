"""The modified predictive process: knots, statistics and draws.

Other covariances live one floor up.
"""
