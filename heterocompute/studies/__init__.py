"""Comparisons of number formats and densities on the weights of a model."""
