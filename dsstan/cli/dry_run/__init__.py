"""``--dry-run``: what is checked before sampling, and what a run would do and take.

Here: pieces of the run, tried and timed, and what is foreseen from them. Nothing is written.
"""
