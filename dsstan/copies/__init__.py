"""Draws the copies: plain, chained, completed, by strata; and the whole way in one call.

What copies disclose is computed in ``risk``; how they are written, in ``release``.
"""
