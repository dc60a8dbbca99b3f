"""The network that ships with the package, so that everything can be tried on something real."""

from .network import Digits, digits

__all__ = ["Digits", "digits"]
