"""Several ways of protecting one table, side by side."""
