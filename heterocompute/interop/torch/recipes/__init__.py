"""PyTorch: layers, optimizers and statistics of a model that is trained in a recipe of number formats."""
