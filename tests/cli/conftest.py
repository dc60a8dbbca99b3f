"""A small checkpoint, and a place for what a command makes of it."""

import numpy as np
import pytest

from heterocompute.files.safetensors import save


@pytest.fixture
def model(tmp_path):
    path = str(tmp_path / "model.safetensors")
    random = np.random.default_rng(2)
    arrays = {
        "fc.weight": random.standard_normal((16, 64)).astype(np.float32),
        "fc.bias": random.standard_normal(16).astype(np.float32),
        "[red]odd\x1b[31m.weight": random.standard_normal((4, 20)).astype(np.float16),
    }
    save(path, arrays)
    return path


@pytest.fixture
def out(tmp_path):
    return str(tmp_path / "out.safetensors")
