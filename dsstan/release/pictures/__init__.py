"""Pictures for the data steward."""
