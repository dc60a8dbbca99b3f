"""Arrays and whole checkpoints in files: what is stored, which tensors are changed, and how."""
