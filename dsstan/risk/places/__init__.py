"""What intruders learn of places: whether a person is in the table, and where they are.

Here: the intruders of presence and finding, their numbers and the verdict on them.
"""
