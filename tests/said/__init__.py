"""Sentences that tests expect of errors and warnings: `said.NAME`, a module for each subject of the tests."""

# ruff: noqa: F403

from .arrays import *
from .base import *
from .cli import *
from .emulate import *
from .files import *
from .formats import *
from .hardware import *
from .interop import *
from .llm import *
from .machines import *
from .mapper import *
from .products import *
from .pruning import *
from .ptq import *
from .report import *
from .shared import *
from .studies import *
from .training import *
