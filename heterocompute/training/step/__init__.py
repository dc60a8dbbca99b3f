"""A training step in given number formats: recipes as data, published recipes, and the arithmetic in NumPy."""
