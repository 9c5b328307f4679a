"""What an intruder can learn from a release.

Measures take copies and fits; nothing here writes or prints.
"""
