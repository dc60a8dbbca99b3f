"""A PyTorch model for studies, search and rounding: its batches, its weights, the inputs of its layers."""
