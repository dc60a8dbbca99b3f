"""Results of rounding and of the search for formats, with their weights."""
