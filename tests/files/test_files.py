"""Files: written arrays are read back, other programs can read them, and a file is complete or absent."""

import json
import os
import stat
import struct

import numpy as np
import pytest
from common import assert_refused, bad_argument, read_raw, write_raw

import heterocompute as hc
from heterocompute.arrays.bits import unpack
from heterocompute.base.container import DTYPES, Reader, numpy_dtype
from heterocompute.base.writer import Writer
from heterocompute.files.safetensors import save

# From every family, one format without and one with short groups.
FORMATS = [
    "int8",
    "int4-g16",
    "int3-g5-asym-f16",
    "int4-asym",
    "int24",
    "vsq4-g16-s4",
    "vsq4-g16-s4-tensor",
    "vsq3u-g5",
]
FORMATS += [text for family in hc.Format.families() if family.family not in ("int", "vsq") for text in family.examples]


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "model.safetensors")


def weights(*shape):
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


# Written arrays are read back.


@pytest.mark.parametrize("text", FORMATS)
@pytest.mark.parametrize("shape, axis", [((5, 37), -1), ((37, 3), 0), ((4, 20, 3, 3), (2, 3, 1)), ((7,), 0)])
@pytest.mark.sweep(every=12)
def test_quantized_array_round_trips(path, text, shape, axis):
    array = hc.quantize(weights(*shape), text, axis=axis)
    array.save(path)
    back = hc.load(path)
    assert isinstance(back, hc.QuantizedArray)
    assert back == array
    assert back.source_dtype == "float32"


@pytest.mark.parametrize("text", [text for text in FORMATS if hc.format(text).unit == 1])
@pytest.mark.sweep(every=3)
def test_short_groups_of_zeros_round_trip(path, text):
    array = hc.quantize(weights(3, 37) * (np.arange(37) < [[37], [0], [16]]), text)
    array.save(path)
    assert hc.load(path) == array


@pytest.mark.parametrize("text", ["int4-g16", "int4-g16-asym", "vsq4-g16-s4"])
@pytest.mark.parametrize("shape", [(0, 16), (3, 0), (0, 0)])
def test_empty_quantized_array_round_trips(path, text, shape):
    array = hc.quantize(np.zeros(shape, np.float32), text)
    array.save(path)
    assert hc.load(path) == array


def test_views_are_saved_as_what_they_show(path):
    array = hc.quantize(weights(6, 32), "vsq4-g16-s4")
    save(path, {"rows": array[1:6:2], "turned": array.T})
    back = hc.load(path)
    assert back["rows"] == array[1:6:2]
    assert back["turned"] == array.T


def test_plain_and_quantized_arrays_share_a_file(path):
    arrays = {"w": hc.quantize(weights(3, 8), "int4"), "b": np.arange(3.0), "scalar": np.float32(2)}
    save(path, arrays)
    back = hc.load(path)
    assert list(back) == ["w", "b", "scalar"]
    assert back["w"] == arrays["w"]
    assert back["b"].dtype == np.float64 and np.array_equal(back["b"], arrays["b"])
    assert back["scalar"].shape == () and back["scalar"] == 2


@pytest.mark.parametrize("name", [name for name, bits in DTYPES.values() if bits >= 8])
def test_every_dtype_round_trips(path, name):
    array = np.array([[0, 1, 1], [1, 0, 1]]).astype(numpy_dtype(name))
    save(path, {"x": array, "empty": array[:0], "turned": array.T})
    back = hc.load(path)
    assert back["x"].dtype == array.dtype and back["x"].tobytes() == array.tobytes()
    assert back["empty"].shape == (0, 3)
    assert back["turned"].tobytes() == array.T.tobytes()


def test_big_endian_array_is_stored_little_endian(path):
    save(path, {"x": np.arange(4, dtype=">i4")})
    assert hc.load(path)["x"].tolist() == [0, 1, 2, 3]


def test_safetensors_package_reads_our_files(path):
    safetensors = pytest.importorskip("safetensors")
    array = hc.quantize(weights(3, 40), "vsq4-g16-s4")
    save(path, {"w": array, "odd": np.arange(3, dtype=np.uint8), "b": weights(3)})
    with safetensors.safe_open(path, "np") as file:
        assert json.loads(file.metadata()["heterocompute"]) == {
            "version": 1,
            "single": False,
            "tensors": {"w": {"format": "vsq4-g16-s4", "shape": [3, 40], "axis": [1], "dtype": "float32"}},
        }
        assert sorted(file.keys()) == ["b", "odd", "w.coarse", "w.codes", "w.scales"]
        for key, part in array.components.items():
            assert np.array_equal(file.get_tensor(f"w.{key}"), part)


def test_we_read_files_of_the_safetensors_package(path):
    numpy_files = pytest.importorskip("safetensors.numpy")
    arrays = {"a": weights(2, 3), "h": weights(4).astype(np.float16), "i": np.arange(5), "t": np.array([True, False])}
    numpy_files.save_file(arrays, path, metadata={"format": "np"})
    back = hc.load(path)
    assert back.keys() == arrays.keys()
    for name, array in arrays.items():
        assert back[name].dtype == array.dtype and np.array_equal(back[name], array)
    with Reader(path) as reader:
        assert reader.metadata == {"format": "np"}


def test_null_metadata_is_none(path):
    write_raw(path, {"__metadata__": None, "x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, b"\0" * 8)
    assert hc.load(path)["x"].tolist() == [0, 0]


def test_tensors_lie_aligned(path):
    save(path, {"bytes": np.zeros(3, np.uint8), "wide": np.zeros(2), "half": np.zeros(1, np.float16)})
    header, _ = read_raw(path)
    for name, width in {"wide": 8, "half": 2}.items():
        assert header[name]["data_offsets"][0] % width == 0
    with open(path, "rb") as file:
        assert struct.unpack("<Q", file.read(8))[0] % 8 == 0


def test_unpack_follows_the_bit_order():
    codes = np.arange(2 * 11).reshape(2, 11)
    for bits in (1, 2, 3, 4, 5, 6, 7, 8, 16, 24):
        wanted = (codes * 2654435761) % (1 << bits)
        rows = [sum(int(code) << (i * bits) for i, code in enumerate(row)) for row in wanted]
        packed = np.array([list(row.to_bytes(-(-11 * bits // 8), "little")) for row in rows], np.uint8)
        assert np.array_equal(unpack(packed, bits, 11), wanted)


def test_only_arrays_with_names_are_saved(path):
    with bad_argument(TypeError, None, "type", "list"):
        save(path, [np.zeros(3)])
    with bad_argument(TypeError, None, "type", "3"):
        save(path, {3: np.zeros(3)})
    with bad_argument(TypeError, None, "type", "'x'.*str"):
        save(path, {"x": "text"})
    with bad_argument(TypeError, None, "type", "'x'.*object"):
        save(path, {"x": np.array([None])})
    with bad_argument(ValueError, None, "value", "__metadata__"):
        save(path, {"__metadata__": np.zeros(3)})
    with bad_argument(ValueError, None, "value", r"'a\\ud800'"):
        save(path, {"a\ud800": np.zeros(3)})
    with bad_argument(ValueError, None, "value", "w.codes"):
        save(path, {"w": hc.quantize(weights(2, 4), "int8"), "w.codes": np.zeros(3)})
    with bad_argument(ValueError, None, "value", "w.coarse"):
        save(path, {"w": hc.quantize(weights(2, 4), "int8"), "w.coarse": np.zeros(3)})
    assert os.listdir(os.path.dirname(path)) == []


# A file is complete or absent.


def test_failure_keeps_the_old_file_and_leaves_nothing_else(path):
    save(path, {"old": np.zeros(3)})
    for failure in (KeyboardInterrupt, ValueError):
        with pytest.raises(failure), Writer(path, {"a": ("float32", (1000,))}) as writer:
            assert len(os.listdir(os.path.dirname(path))) == 2
            writer.write("a", np.zeros(1000, np.float32))
            raise failure
        assert os.listdir(os.path.dirname(path)) == ["model.safetensors"]
    assert list(hc.load(path)) == ["old"]


def test_writer_wants_every_tensor_as_announced(path):
    with (
        bad_argument(ValueError, None, "value", "'a' was announced but not written"),
        Writer(path, {"a": ("int8", (2,))}),
    ):
        pass
    for wrong in (np.zeros(2, np.uint8), np.zeros(3, np.int8)):
        with bad_argument(ValueError, None, "value", "'a' is"), Writer(path, {"a": ("int8", (2,))}) as writer:
            writer.write("a", wrong)
    assert os.listdir(os.path.dirname(path)) == []


def test_missing_folder_names_the_users_path(tmp_path):
    path = str(tmp_path / "absent" / "model.safetensors")
    with pytest.raises(FileNotFoundError) as caught:
        save(path, {"a": np.zeros(3)})
    assert caught.value.filename == path


@pytest.mark.skipif(os.name != "posix", reason="permission bits and links are POSIX's")
def test_permissions_and_links_stay(path, tmp_path):
    save(path, {"a": np.zeros(3)})
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o666 & ~umask
    os.chmod(path, 0o640)
    link = str(tmp_path / "link")
    os.symlink(path, link)
    save(link, {"b": np.zeros(3)})
    assert os.path.islink(link) and list(hc.load(path)) == ["b"]
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o640


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs a named pipe")
def test_only_regular_files_are_read_and_replaced(path, tmp_path):
    os.mkfifo(path)
    assert_refused(path, "is a FIFO, expected a regular file")
    (tmp_path / "empty").mkdir()
    assert_refused(str(tmp_path / "empty"), "expected one index of a checkpoint or one file of weights, there is none")
    with bad_argument(ValueError, None, "file", "FIFO"):
        save(path, {"a": np.zeros(3)})
    with pytest.raises(FileNotFoundError):
        hc.load(str(tmp_path / "absent"))


class Lent:
    """An array that only supports DLPack, like those of other libraries."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return (1, 0)


def test_save_stands_beside_load(tmp_path):
    path = tmp_path / "x.safetensors"
    w = np.random.default_rng(0).standard_normal((8, 32)).astype(np.float32)
    for one in (hc.quantize(w, "vsq4-g16-s4"), hc.prune(w, "2:4"), hc.encode_bitmap(w), hc.encode_eie(w)):
        hc.save(path, one)
        assert hc.load(path) == one
        hc.save(path, {"a": one, "b": Lent(w), "c": w[0]})
        found = hc.load(path)
        assert found["a"] == one and np.array_equal(found["b"], w) and np.array_equal(found["c"], w[0])
    for wrong in (w, Lent(w)):
        with bad_argument(TypeError, None, "type", "'name'"):
            hc.save(path, wrong)
    for wrong in ({"a": [1.0]}, {"a": None}):
        with bad_argument(TypeError, None, "type", "save: tensor 'a' is .*, expected an array"):
            hc.save(path, wrong)
    assert list(hc.load(path)) == ["a", "b", "c"]  # the previous file
