"""The networks that ship with the package, so that everything can be tried on real weights."""

from .addition import Adder, adder
from .digit_images import Digits, digits
from .encoders import open_encoder
from .llm import open_llm
from .network import Network

__all__ = ["Adder", "Digits", "Network", "adder", "digits", "open_encoder", "open_llm"]


def __dir__() -> list[str]:
    return __all__
