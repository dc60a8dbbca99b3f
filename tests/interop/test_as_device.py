"""`interop.torch.as_device`: matmuls, convolutions and attention have the sums of the emulated instruction."""

from __future__ import annotations

from typing import Any

import pytest

import heterocompute as hc

torch = pytest.importorskip("torch")
ht = pytest.importorskip("heterocompute.interop.torch")
nn, F = torch.nn, torch.nn.functional


def emulated(x: Any, w: Any, text: str, kind: Any, sums: str = "fp32") -> Any:
    a, b = (one.detach().to(kind).float().numpy() for one in (x, w))
    return torch.from_numpy(hc.emulate.matmul(a, b, sums, instruction=text))


@pytest.mark.parametrize(("name", "inputs", "sums", "text", "kind"), [
    ("v100", "fp16", "fp32", "hmma-v100", torch.float16),
    ("a100", "bf16", "fp32", "hmma-a100-bf16", torch.bfloat16),
    ("ada", "fp8_e4m3fn", "fp22", "hmma-ada-e4m3", torch.float8_e4m3fn),
    ("h100", "bf16", "fp32", "hmma-h100-bf16", torch.bfloat16),
    ("b200", "fp16", "fp16", "hmma-b200", torch.float16),
])  # fmt: skip
def test_a_matmul_is_that_of_the_instruction(name: str, inputs: str, sums: str, text: str, kind: Any) -> None:
    torch.manual_seed(0)
    x, w = torch.randn(5, 96), torch.randn(96, 7)
    with ht.as_device(name, inputs=inputs, sums=sums) as unit:
        found = [x @ w, torch.mm(x, w), torch.einsum("ik,kj->ij", x, w), torch.matmul(x[None], w)[0]]
        vector = x[0] @ w
    wanted = emulated(x, w, text, kind, sums)
    assert all(torch.equal(one, wanted) for one in found) and torch.equal(vector, wanted[0])
    assert sum(unit.emulated.values()) == 5
    assert torch.equal(x @ w, torch.mm(x, w))  # after the block


def test_layers_and_attention_are_emulated() -> None:
    torch.manual_seed(1)
    layer, x = nn.Linear(64, 16), torch.randn(2, 3, 64)
    with torch.no_grad(), ht.as_device("h100") as unit:
        y = layer(x)
    wanted = emulated(x.reshape(-1, 64), layer.weight.T, "hmma-h100-bf16", torch.bfloat16) + layer.bias
    assert torch.equal(y.reshape(-1, 16), wanted.detach()) and unit.emulated.total() == 1

    q, k, v = (torch.randn(1, 2, 5, 16) for _ in range(3))
    with ht.as_device("h100") as unit:
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert (
        unit.emulated.total() == 2 and (y - F.scaled_dot_product_attention(q, k, v, is_causal=True)).abs().max() < 0.1
    )


@pytest.mark.parametrize("options", [{}, {"stride": 2, "padding": 1}, {"groups": 2, "dilation": 2}])
def test_convolutions_are_emulated(options: dict[str, int]) -> None:
    torch.manual_seed(2)
    conv, x = nn.Conv2d(4, 6, 3, **options), torch.randn(2, 4, 9, 8)
    with torch.no_grad(), ht.as_device("a100", inputs="tf32") as unit:
        y = conv(x)
    exact = conv(x).detach()
    assert y.shape == exact.shape and unit.emulated["convolution"] == 1
    assert 1e-6 < (y - exact).abs().max() / exact.abs().max() < 2e-3
    line, z = nn.Conv1d(4, 6, 3, padding=1), torch.randn(2, 4, 9)
    with torch.no_grad(), ht.as_device("a100", inputs="tf32"):
        assert (line(z) - line(z)).abs().max() == 0 and line(z).shape == (2, 6, 9)


def test_parts_of_k_are_added_in_float32() -> None:
    torch.manual_seed(3)
    x, w = torch.randn(4, 100), torch.randn(100, 5)
    with ht.as_device("h100", inputs="fp16", split=4):
        found = x @ w
    parts = [emulated(x[:, i : i + 25], w[i : i + 25], "hmma-h100", torch.float16) for i in range(0, 100, 25)]
    assert torch.equal(found, ((parts[0] + parts[1]) + parts[2]) + parts[3])
    with ht.as_device("h100", inputs="fp16"):
        assert not torch.equal(found, x @ w)


def test_a_model_keeps_its_dtype_and_the_rest_is_named() -> None:
    model = nn.Sequential(nn.Linear(32, 16), nn.GELU(), nn.Linear(16, 4)).to(torch.bfloat16)
    with torch.no_grad(), ht.as_device("b200") as unit:
        y = model(torch.randn(3, 32, dtype=torch.bfloat16))
    assert y.dtype == torch.bfloat16 and unit.emulated.total() == 2 and "gelu" in unit.rest
    assert not set(unit.emulated) & set(unit.rest)
    x = torch.randn(3, 8, requires_grad=True)
    with ht.as_device("h100", inputs="fp16"):
        (x @ torch.ones(8, 2)).sum().backward()
    assert torch.equal(x.grad, torch.full((3, 8), 2.0))


def test_values_beyond_the_type_are_an_error() -> None:
    for inputs, value in (("fp8_e4m3fn", 500.0), ("fp16", 7e4)):
        x = torch.ones(2, 8)
        x[1, 3] = value
        with ht.as_device("h100", inputs=inputs, sums="fp22" if "fp8" in inputs else "fp32"):
            with pytest.raises(ValueError, match=r"as_device: an operand of \(2, 8\) has .* at index \(1, 3\)"):
                x @ torch.ones(8, 2)


def test_what_is_not_emulated_is_refused() -> None:
    with torch.no_grad(), ht.as_device("h100"), pytest.raises(NotImplementedError, match="not emulated"):
        nn.ConvTranspose2d(2, 2, 3)(torch.randn(1, 2, 5, 5))
    with torch.no_grad(), ht.as_device("h100"), pytest.raises(NotImplementedError, match="not emulated"):
        nn.LSTM(4, 4)(torch.randn(3, 1, 4))
    for options, words in (
        ({"name": "k80"}, "name is 'k80'"),
        ({"name": "v100", "inputs": "bf16"}, "v100 does not multiply"),
        ({"name": "h100", "inputs": "int8"}, "inputs is 'int8'"),
        ({"name": "h100", "sums": "fp16"}, "sums is 'fp16'"),
        ({"name": "h100", "split": 0}, "split is 0"),
    ):
        with pytest.raises(ValueError, match=words):
            ht.as_device(**options)
