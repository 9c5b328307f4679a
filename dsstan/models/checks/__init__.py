"""Whether a fit may reach synthesis: diagnostics, named conditions, one verdict."""
