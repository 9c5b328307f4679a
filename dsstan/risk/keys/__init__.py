"""What an intruder learns who links records by key variables.

Here: links to a register, attributes of those who share a key, and the measures of statistical
disclosure control. Intruders who use the model of the copies are in ``intruder/``.
"""
