"""The study area as cells, in which synthetic places are drawn.

Here: cells, what is known of each, and the addresses in them. No model and no confidential count.
"""
