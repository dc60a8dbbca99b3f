"""A PyTorch model as studies, search and rounding take it: its batches, its weights, the inputs of its layers."""
