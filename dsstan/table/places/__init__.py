"""Where records are: coordinates, and the plane in which distances between them are measured.

Nothing is known here of a response or a model.
"""
