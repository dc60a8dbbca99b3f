"""Files of torch.save with tensors that are not plain views of a storage: these are named, the others are read."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import bad_argument

import heterocompute as hc
from heterocompute.cli import main

torch = pytest.importorskip("torch")

LEGACY = [False, True]


class Marked(torch.Tensor):  # type: ignore[misc, name-defined]
    """A class of the user's."""


class Spec:
    """An object that a tensor carries."""

    def __init__(self, **values: Any) -> None:
        self.values = values


def saved(path: Path, tensors: dict[str, Any], legacy: bool) -> Path:
    torch.save(tensors, path, _use_new_zipfile_serialization=not legacy)
    return path


def marked(values: Any, **attributes: Any) -> Any:
    for name, value in attributes.items():
        setattr(values, name, value)
    return values


@pytest.mark.parametrize("legacy", LEGACY)
def test_tensors_with_attributes_are_read(tmp_path: Path, legacy: bool) -> None:
    spec = Spec(mesh=[torch.ones(3)], inner=Spec(a={1, 2}))
    tensors = {
        "flag": marked(torch.arange(12.0).reshape(3, 4), is_embedding=True),
        "object": marked(torch.arange(3.0), spec=spec, again=spec),
        "parameter": marked(torch.nn.Parameter(torch.arange(4.0)), partition_dim=0, spec=Spec()),
        "half": marked(torch.ones(2, 2, dtype=torch.bfloat16), tag="x"),
        "buffer": torch.nn.Buffer(torch.ones(2)),
        "plain": torch.full((2, 2), 7.0),
    }
    path = saved(tmp_path / "m.pt", tensors, legacy)
    with hc.open_checkpoint(path) as found:
        assert list(found) == list(tensors) and found.skipped == {}
        for name, tensor in tensors.items():
            assert np.array_equal(np.asarray(found[name], np.float32), tensor.detach().float().numpy())


def others() -> dict[str, tuple[Any, str]]:
    codes = torch.ones(3, 3, dtype=torch.int8)
    return {
        "subclass": (torch.arange(4.0).as_subclass(Marked), f"of the class {__name__}.Marked (4,)"),
        "carried": (marked(torch.arange(4.0).as_subclass(Marked), spec=Spec()), f"of the class {__name__}.Marked (4,)"),
        "parameter": (torch.nn.Parameter(torch.ones(2).as_subclass(Marked)), f"of the class {__name__}.Marked (2,)"),
        "coo": (torch.eye(3).to_sparse(), "a sparse tensor (3, 3)"),
        "csr": (torch.eye(3).to_sparse_csr(), "a sparse tensor (3, 3)"),
        "qint8": (torch._make_per_tensor_quantized_tensor(codes, 0.1, 0), "a quantized tensor of torch (3, 3)"),
        "qint32": (
            torch._make_per_channel_quantized_tensor(codes.int(), torch.ones(3), torch.zeros(3).long(), 0),
            "a quantized tensor of torch (3, 3)",
        ),
        "meta": (torch.empty(3, 4, device="meta"), "a tensor of the device meta, without values, (3, 4)"),
        "nested": (torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "a nested tensor ()"),
        "lazy": (torch.nn.parameter.UninitializedParameter(), "a parameter without a shape ()"),
        "vast": (torch.ones(1).expand(1 << 40), f"expanded from 1 value to the shape {(1 << 40,)}"),
    }


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch warns that nested and quantized tensors will change
@pytest.mark.parametrize("legacy", LEGACY)
def test_tensors_of_other_kinds_are_named_and_the_others_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], legacy: bool
) -> None:
    odd = others()
    tensors = {"first": torch.ones(2, 32), **{name: tensor for name, (tensor, _) in odd.items()}, "last": torch.ones(3)}
    path = saved(tmp_path / "m.pt", tensors | {"inner": [{"coo": odd["coo"][0]}]}, legacy)
    wanted = {name: text for name, (_, text) in odd.items()} | {"inner.0.coo": odd["coo"][1]}
    with hc.open_checkpoint(path) as found:
        assert list(found) == ["first", "last"] and found.skipped == wanted
        assert np.array_equal(found["last"], np.ones(3))
    assert sorted(hc.load(path)) == ["first", "last"]
    out = tmp_path / "o.safetensors"
    assert main(["quantize", str(path), str(out), "--format", "int8"]) == 0
    assert f"{len(wanted)} tensors left out: 'subclass'" in capsys.readouterr().err
    alone = saved(tmp_path / "alone.pt", {"coo": odd["coo"][0]}, legacy)
    with bad_argument(ValueError, None, "file", r"alone\.pt.*'coo'"):
        hc.load(alone)
    assert main(["quantize", str(alone), str(tmp_path / "none"), "--format", "int8"]) == 1
    assert "nothing to do: there are 0 tensors and 1 tensor that cannot be read" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("legacy", LEGACY)
def test_tensors_of_newer_dtypes_are_read_or_named(tmp_path: Path, legacy: bool) -> None:
    codes = torch.arange(12, dtype=torch.uint8).reshape(3, 4)
    tensors = {
        "codes": codes,
        "view": codes.view(torch.float8_e4m3fn),  # both of one storage
        "e5m2": torch.ones(4).to(torch.float8_e5m2),
        "e8m0": torch.ones(4).to(torch.float8_e8m0fnu),
        "u16": torch.ones(5, dtype=torch.uint16),
        "u64": torch.ones(5, dtype=torch.uint64),
        "four": torch.zeros(4, 4, dtype=torch.uint8).view(torch.float4_e2m1fn_x2),
        "halves": torch.ones(3, dtype=torch.complex32),
        "w": torch.full((2, 2), 7.0),
    }
    with hc.open_checkpoint(saved(tmp_path / "m.pt", tensors, legacy)) as found:
        assert list(found) == ["codes", "view", "e5m2", "e8m0", "u16", "u64", "w"]
        assert found.skipped == {
            "four": "of the dtype float4_e2m1fn_x2 (4, 4)",
            "halves": "of the dtype complex32 (3,)",
        }
        for name in found:
            wanted = tensors[name].detach().to(torch.float64).numpy()
            assert np.array_equal(np.asarray(found[name]).astype(np.float64), wanted)


@pytest.mark.parametrize("legacy", LEGACY)
def test_tensors_that_repeat_values_are_read(tmp_path: Path, legacy: bool) -> None:
    tensors = {
        "expanded": torch.arange(3.0).reshape(3, 1).expand(3, 5),
        "of_one": torch.tensor(2.0).expand(2, 64),
        "windows": torch.arange(10.0).as_strided((8, 3), (1, 1)),
        "flags": torch.ones(1, dtype=torch.bool).expand(4),
    }
    path = saved(tmp_path / "m.pt", tensors, legacy)
    with hc.open_checkpoint(path) as opened:
        for held in (opened, hc.load(path)):
            for name, tensor in tensors.items():
                assert np.array_equal(held[name], tensor.numpy()) and held[name].shape == tuple(tensor.shape)
    most = 1 << 26  # most bytes that a small file may expand to
    many = {str(i): torch.zeros(1).expand(most // 16) for i in range(6)}
    with hc.open_checkpoint(saved(tmp_path / "many.pt", many, legacy)) as opened:
        assert list(opened) == ["0", "1", "2", "3"] and list(opened.skipped) == ["4", "5"]
    hc.quantize_checkpoint(path, tmp_path / "o.safetensors", "int8")
    assert np.array_equal(hc.load(tmp_path / "o.safetensors")["of_one"].dequantize(), np.full((2, 64), 2.0))


class Call:
    """A global of a pickle and the arguments of its call; without arguments, the global itself."""

    def __init__(self, name: str, *arguments: Any) -> None:
        self.name, self.arguments = name, arguments


def program(value: Any) -> bytes:
    """Return the opcodes of a value."""
    if isinstance(value, Call):
        module, _, attribute = value.name.rpartition(".")
        called = b"(" + b"".join(map(program, value.arguments)) + b"tR" if value.arguments else b""
        return f"c{module}\n{attribute}\n".encode() + called
    if isinstance(value, dict):
        return b"}(" + b"".join(program(part) for pair in value.items() for part in pair) + b"u"
    if isinstance(value, (tuple, list)):
        return b"(" + b"".join(map(program, value)) + (b"t" if isinstance(value, tuple) else b"l")
    return pickle.dumps(value, 2)[2:-1]


def file_of(path: Path, value: Any) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("m/data.pkl", b"\x80\x02" + program(value) + b".")
    return path


def test_distributed_tensors_are_named(tmp_path: Path) -> None:
    """torch writes a DTensor as a class, a wrapper without a storage, and a state with unknown objects."""
    kind, path = Call("torch.distributed.tensor.DTensor"), tmp_path / "m.pt"
    shell = Call("posix.system", "true")
    spec = Call("torch.distributed.tensor._dtensor_spec.DTensorSpec", Call("x.Shard", 0))

    def tensor(**state: Any) -> Call:
        made = (kind, None, (4, 4), (4, 1), 0, None, None, False)
        wrapper = Call("torch._utils._rebuild_wrapper_subclass")
        return Call("torch._tensor._rebuild_from_type_v2", wrapper, kind, made, {"_spec": spec, "grad": True} | state)

    for more in ({}, {"call": shell}):  # an attribute is skipped, and none of its code runs
        with hc.open_checkpoint(file_of(path, {"d": tensor(**more), "a": 1})) as found:
            assert found.skipped == {"d": "of the class torch.distributed.tensor.DTensor (4, 4)"}
    for wrong in (
        {"d": tensor(), "x": shell},
        {"x": shell},
        [shell, {"y": (shell,)}],
        {"d": tensor(), "x": spec},
        kind,
    ):
        with bad_argument(
            ValueError, None, "file", "which files of tensors do not need: nothing of it was run"
        ) as caught:
            hc.load(file_of(path, wrong))
        assert "a pickle that names " in str(caught.value)
