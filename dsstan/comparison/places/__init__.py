"""What else an agency might do to places, and the same two intruders against it.

Displacement, donut and Voronoi masking, aggregation, trees on coordinates; one table that compares
them with a release of synthetic places.
"""
