"""compressed-tensors: its layout, and the schemes of its configuration."""
