"""Language models from their files: a description, one forward pass, text scored and generated."""

from .opening import open_llm

__all__ = ["open_llm"]
