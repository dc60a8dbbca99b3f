"""What is computed with arrays: quantizing, matrix products, convolutions, and which path each takes."""
