"""Where records are: the intensity of each group on the cells of a mask.

Here: its fits and the law of the chances of the cells, given counts. Nothing that draws a release.
"""
