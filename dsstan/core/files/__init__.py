"""Private files and folders of this user: made for the owner alone, locked, noted and removed.

Nothing here knows what a file holds.
"""
