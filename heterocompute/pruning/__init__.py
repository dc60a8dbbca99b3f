"""Which values of an array stay: patterns, shares, blocks, scores, and the order of channels."""
