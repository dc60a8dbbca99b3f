"""Parts of a layer that not every family has: attention over latents, biases by the distance, experts."""
