"""The codec kernels of CUDA, run on the host, give the bits of the CPU's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import heterocompute as hc

from . import emulated
