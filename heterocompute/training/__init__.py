"""Training of weights that are quantized or pruned: codebooks, retraining, the network that ships."""
