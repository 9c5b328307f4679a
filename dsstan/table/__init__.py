"""From files and tables to a checked :class:`~dsstan.table.problem.Problem`.

Formulas, coordinates and columns live here; no model does.
"""
