"""Pruning: the kept values by patterns, shares, blocks and scores, and the order of channels."""
