"""Drawn modules, formats and steps: `convert` returns a packed module that runs, or an error of one line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import heterocompute as hc

torch = pytest.importorskip("torch")

from heterocompute.interop import torch as ht  # noqa: E402

nn = torch.nn
SEEDS = 4  # per kind
FORMATS = ("int4", "int4-g16", "int8", "int3-g16", "mxfp4", "vsq4-g16-s4", "int4-g16+had", "log4-2-g16", "cb4-g16",
           "nf4-g16", "int8+2:4")  # fmt: skip
METHODS = ("rtn", "search", "gptq", "gptq", "qronos", "qronos", "awq", "learned")


class Residual(nn.Module):  # type: ignore[misc]
    def __init__(self, norm: Any, inner: Any) -> None:
        super().__init__()
        self.norm, self.inner = norm, inner

    def forward(self, x: Any) -> Any:
        return x + self.inner(self.norm(x))


class Twice(nn.Module):  # type: ignore[misc]
    """A module that runs twice."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Any) -> Any:
        return self.inner(torch.relu(self.inner(x)))


class First(nn.Module):  # type: ignore[misc]
    """The first result of attention or of a recurrent layer."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Any) -> Any:
        return self.inner(*[x] * (3 if isinstance(self.inner, nn.MultiheadAttention) else 1))[0]


class Tied(nn.Module):  # type: ignore[misc]
    def __init__(self, width: int) -> None:
        super().__init__()
        self.table, self.middle = nn.Embedding(50, width), nn.Linear(width, width)
        self.head = nn.Linear(width, 50, bias=False)
        self.head.weight = self.table.weight

    def forward(self, x: Any) -> Any:
        return self.head(torch.tanh(self.middle(self.table(x))))


def drawn(kind: str, rng: Any) -> tuple[Any, Any]:
    """Return a module, and a function that draws its inputs."""
    d, n = int(rng.choice([32, 48, 64])), 2 if kind == "conv2" else 1
    if kind == "tied":
        return Tied(d), lambda: torch.randint(0, 50, (4, 9))
    if kind == "mlp":
        layers = [
            nn.Linear(d, d),
            nn.BatchNorm1d(d),
            nn.ReLU(),
            nn.Linear(d, d, bias=False),
            nn.Tanh(),
            nn.Linear(d, 7),
        ]
        return nn.Sequential(*layers), lambda: torch.randn(16, d)
    if kind.startswith("conv"):
        conv, back, norm = (getattr(nn, f"{one}{n}d") for one in ("Conv", "ConvTranspose", "BatchNorm"))
        layers = [conv(8, 32, 3, padding=1), norm(32), nn.ReLU(),
                  conv(32, 32, 3, padding=1, groups=int(rng.choice([1, 2, 32]))), nn.GroupNorm(4, 32), nn.SiLU(),
                  back(32, 16, 2, stride=2, groups=int(rng.choice([1, 2]))), nn.ReLU(), conv(16, 4, 1)]  # fmt: skip
        return nn.Sequential(*layers), lambda: torch.randn(2, 8, *[12] * n)
    choices = {
        "feed": lambda: Residual(nn.RMSNorm(d), nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))),
        "attention": lambda: Residual(nn.LayerNorm(d), First(nn.MultiheadAttention(d, 4, batch_first=True))),
        "lstm": lambda: First(nn.LSTM(d, d, batch_first=True)),
        "twice": lambda: Twice(nn.Linear(d, d)),
        "norm": lambda: nn.Sequential(nn.LayerNorm(d), nn.Dropout(0.1), nn.Linear(d, d)),
        "encoder": lambda: nn.TransformerEncoderLayer(d, 4, 2 * d, batch_first=True, norm_first=bool(rng.integers(2))),
    }
    layers = [choices[name]() for name in rng.choice([*choices], int(rng.integers(1, 4)))]
    return nn.Sequential(*layers, nn.Linear(d, 10)), lambda: torch.randn(3, 7, d)


def options(rng: Any) -> dict[str, Any]:
    """Return drawn steps."""
    found: dict[str, Any] = {"method": str(rng.choice(METHODS))}
    found |= {"steps": 3} if found["method"] == "learned" else {}
    found |= {"activations": str(rng.choice(["int8", "int4"]))} if rng.random() < 0.4 else {}
    found |= {"smooth": (0.5, "search")[rng.integers(2)]} if rng.random() < 0.3 else {}
    found |= {"rotate": ("residual", "online")[rng.integers(2)]} if rng.random() < 0.25 else {}
    found |= {"correct_bias": True} if rng.random() < 0.3 else {}
    return found | ({"clip": "search"} if rng.random() < 0.2 else {})


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["sequence", "conv2", "conv1", "tied", "mlp"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_it_runs_or_says_why(kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    model, draw = drawn(kind, rng)
    model.eval()
    batches, x, given = [draw() for _ in range(4)], draw(), options(rng)
    with torch.no_grad():
        exact = model(x)
        try:
            small = ht.convert(model, str(rng.choice(FORMATS)), inputs=batches, **given)
        except hc.ArgumentError as problem:
            assert str(problem).startswith("convert: ") and "\n" not in str(problem)
            return
        assert torch.isfinite(small(x)).all()
        assert torch.equal(model(x), exact)
        assert not torch.equal(small(x), exact)
    if given["method"] in ("gptq", "qronos"):
        rows = ht.report(small).table
        assert rows and all(row["after"] >= row["before"] - 0.01 for row in rows if row["after"] is not None)
