"""Encoders from their files: texts as embeddings."""

from .opening import open_encoder

__all__ = ["open_encoder"]
