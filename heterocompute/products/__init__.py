"""Computations with arrays: quantizing, matrix products, convolutions, and the path of each."""
