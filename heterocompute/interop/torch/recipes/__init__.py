"""PyTorch: training of a model in the formats of a recipe: its layers, its optimizer, and what rounding does to them."""
