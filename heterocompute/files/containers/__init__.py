"""Files of tensors of other programs: one module for each kind, each a `base.tensors.Tensors`."""
