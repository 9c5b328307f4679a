"""How a release with synthetic places is written: its public and its confidential files.

Here: nothing that draws. It goes out by :mod:`dsstan.release.publication`, as any release.
"""
