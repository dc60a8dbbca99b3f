"""Devices: the functions of the one vendor that there is, for all other rooms. A vendor is a folder such as `cuda`.

driver       KIND and NAME, the devices, their memory and streams
streams      streams of other libraries
interface    arrays of other libraries
"""

from .cuda.driver import (
    A_DEVICE,
    KIND,
    NAME,
    Device,
    check,
    check_device,
    copy,
    device_number,
    devices,
    driver_text,
    has_device,
    hold,
    move,
    place,
    wait,
)
from .cuda.interface import Interface, has_interface, is_named, is_on_device, lent
from .cuda.streams import (
    DEFAULT_STREAM,
    NAMES,
    TORCH,
    is_device_tensor,
    is_far,
    is_torch,
    lasting_stream,
    raw_stream,
    torch_stream,
)

__all__ = [
    "A_DEVICE",
    "DEFAULT_STREAM",
    "KIND",
    "NAME",
    "NAMES",
    "TORCH",
    "Device",
    "Interface",
    "check",
    "check_device",
    "copy",
    "device_number",
    "devices",
    "driver_text",
    "has_device",
    "has_interface",
    "hold",
    "is_far",
    "is_named",
    "is_on_device",
    "is_device_tensor",
    "is_torch",
    "lasting_stream",
    "lent",
    "move",
    "place",
    "raw_stream",
    "torch_stream",
    "wait",
]
