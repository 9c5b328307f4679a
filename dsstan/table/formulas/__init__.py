"""Formulas: how their text is read, and the columns they make of a table.

What is checked of the table itself lives one floor up.
"""
