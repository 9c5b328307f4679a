"""Files of tables: one module a family of formats, and one table of them all, ``kinds.py``.

A format reads a table with how it stood in its file, and writes a copy in the same way.
"""
