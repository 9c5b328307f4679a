"""What a row is beside a value at a place: a household, a time, a weight, one of a heap.

Each is read from columns before the formula is; no model lives here.
"""
