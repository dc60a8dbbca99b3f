"""Convolutional networks of which runs of layers are one call: `recording` and `running`."""
