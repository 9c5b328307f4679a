"""R twins: what dsstan computes, computed again by R and held against it."""
