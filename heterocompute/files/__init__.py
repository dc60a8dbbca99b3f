"""Arrays and whole checkpoints in files: their layout, and which tensors are changed how."""
