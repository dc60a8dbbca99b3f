"""The values of an array that pruning keeps: by patterns, shares, blocks and scores, and the order of channels."""
