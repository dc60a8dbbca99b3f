"""Subclasses of convolutions and linear layers with a forward pass of their own: packed if a run proves their use."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import heterocompute as hc

torch = pytest.importorskip("torch")
ht = pytest.importorskip("heterocompute.interop.torch")
F = torch.nn.functional


class Same(torch.nn.Conv2d):  # type: ignore[misc]
    """Pads, then convolves, as the convolutions of networks that were trained with TensorFlow."""

    def forward(self, x: Any) -> Any:
        x = F.pad(x, (0, 1, 1, 0))
        return F.conv2d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class Scaled(torch.nn.Linear):  # type: ignore[misc]
    """Scales its result."""

    def forward(self, x: Any) -> Any:
        return 0.5 * F.linear(x, self.weight, self.bias)


class Standardized(torch.nn.Conv2d):  # type: ignore[misc]
    """Changes its weight."""

    def forward(self, x: Any) -> Any:
        return F.conv2d(x, self.weight - self.weight.mean((1, 2, 3), keepdim=True), self.bias, self.stride)


class Twice(torch.nn.Linear):  # type: ignore[misc]
    """Reads its weight a second time."""

    def forward(self, x: Any) -> Any:
        return F.linear(x, self.weight, self.bias) + self.weight.abs().max()


class Strange(torch.nn.Linear):  # type: ignore[misc]
    """Refuses the inputs of a trial."""

    def forward(self, x: Any) -> Any:
        if x.shape[0] != 7:
            raise ValueError("expected 7 rows")
        return F.linear(x, self.weight, self.bias)


def network() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        Same(3, 16, 3, stride=2), torch.nn.ReLU(), Same(16, 16, 3, groups=16, bias=False), Same(16, 32, 1),
        torch.nn.Flatten(), Scaled(32 * 16, 10),
    ).eval()  # fmt: skip


def test_forward_passes_that_only_multiply_are_packed() -> None:
    model, x = network(), torch.randn(5, 3, 8, 8)
    assert [(layer.kind, layer.problem) for layer in ht.layers(model)] == [("conv2d_own", "")] * 3 + [
        ("linear_own", "")
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        small = ht.convert(model, "int8")
    assert type(small[0]) is Same and small[0].weight.format == hc.Int(8)
    w, bias = model[0].weight.detach().numpy(), model[0].bias.detach().numpy()
    wanted = hc.conv2d(F.pad(x, (0, 1, 1, 0)).numpy(), hc.quantize(w, "int8", axis=(2, 3, 1)), bias, stride=2)
    with torch.no_grad():
        exact, found = model(x), small(x)
        assert (small[0](x).numpy() == wanted).all()
        assert float((exact - found).abs().max()) < 0.02 * float(exact.abs().max())
        again = ht.load_packed(network(), small.state_dict())
        assert torch.equal(again(x), found)
    assert [layer.kind for layer in ht.layers(small)] == ["conv2d_own"] * 3 + ["linear_own"]
    data = [torch.randn(8, 3, 8, 8) for _ in range(3)]
    better, plain = (ht.convert(model, "int3", inputs=data, method=method) for method in ("gptq", "rtn"))
    with torch.no_grad():
        lost = [float((exact - one(x)).square().sum()) for one in (better, plain)]
    assert lost[0] < lost[1] and all(row["after"] >= row["before"] for row in ht.report(better).table)
    rounded = ht.convert(model, "int8", activations="int8")
    with torch.no_grad():
        assert 0 < float((rounded(x) - found).abs().max()) < 0.05 * float(exact.abs().max())


@pytest.mark.parametrize("layer", [Standardized(4, 8, 3), Twice(16, 8), Strange(16, 8)])
def test_other_forward_passes_stay_in_floats(layer: Any) -> None:
    model = torch.nn.Sequential(layer, torch.nn.Linear(8, 8))
    (found, _) = ht.layers(model)
    assert found.problem == f"{type(layer).__name__} has a forward pass of its own"
    with pytest.warns(UserWarning, match="1 layer left in floats"):
        small = ht.convert(model, "int8")
    assert small[0].weight.dtype == torch.float32


def test_the_trial_changes_neither_the_layer_nor_the_random_state() -> None:
    class Counting(torch.nn.Linear):  # type: ignore[misc]
        calls = 0

        def forward(self, x: Any) -> Any:
            self.calls += 1
            return F.linear(F.dropout(x, 0.0), self.weight, self.bias)

    layer = Counting(16, 4)
    state, w = torch.get_rng_state(), layer.weight.clone()
    (found,) = ht.layers(torch.nn.Sequential(layer))
    assert found.kind == "linear_own" and layer.calls == 0
    assert torch.equal(torch.get_rng_state(), state) and torch.equal(layer.weight, w)
