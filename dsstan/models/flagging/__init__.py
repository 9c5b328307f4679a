"""Which records are flagged, by the paper's two rules."""
