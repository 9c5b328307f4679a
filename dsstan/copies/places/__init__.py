"""Copies with synthetic places: moved records, and whole synthetic populations.

Here: places, effects at new places and columns there. Nothing that writes a file.
"""
