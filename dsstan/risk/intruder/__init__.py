"""Intruders who use all copies of a release: what they know of every record.

Reports, floors and verdicts on it live one floor up.
"""
