"""A PyTorch model for studies, search and rounding: its batches, its weights, the inputs of its layers."""

from .. import torch as torch  # first: each of both packages has modules that import some of the other
