"""Priors, weights, fits, their verdict, and the law of a copy.

No copy is drawn here and no risk computed.
"""
