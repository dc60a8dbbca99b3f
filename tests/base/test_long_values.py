"""Messages quote at most 80 characters of a value, for every argument of every public function."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import heterocompute as hc
from heterocompute.base.errors import shown

LONG: list[Any] = ["x" * 50_000, "x." * 25_000, b"x" * 50_000, (1,) * 20_000, ["x" * 50_000], {"x" * 50_000: 1},
                   {"w": "x" * 50_000}, 10**4000, {"x" * 50_000}, "x" * 50_000 + "/x.npz"]  # fmt: skip
MOST = 600  # most characters of a message, including lists of known names

W = np.random.default_rng(0).standard_normal((8, 32)).astype(np.float32)
IMAGE = np.ones((1, 4, 6, 6), np.float32)
FILTERS = np.ones((8, 4, 3, 3), np.float32)
Q = hc.quantize(W, "int8")
LOGS = hc.quantize(W, "log8-8")
SPARSE = hc.prune(W, "2:4")
HESSIAN = hc.ptq.Hessian(32)
HESSIAN.add(W)
WEIGHTS = {"w": W}


def call(function: Callable[..., Any], /, **arguments: Any) -> tuple[Callable[..., Any], dict[str, Any]]:
    return function, arguments


def evaluate(**given: Any) -> float:
    return 1.0


def recipe(tmp: str, **given: Any) -> Any:
    return hc.quantize_checkpoint(tmp, tmp + ".out", **given)


WINDOW = {"stride": 1, "padding": 1}
CALLS = {
    "KVCache": call(hc.KVCache, format=None, layers=1, heads=1, width=32, batch=1, windows=None),
    "attention": call(hc.attention, q=np.ones((1, 1, 2, 32), np.float32), k=np.ones((1, 1, 2, 32), np.float32),
                      v=np.ones((1, 1, 2, 32), np.float32), causal=True, scale=None, window=None, cap=None),
    "layers.gelu": call(hc.layers.gelu, x=W, up=None),
    "layers.layer_norm": call(hc.layers.layer_norm, x=W, weight=None, bias=None, epsilon=1e-5),
    "layers.rms_norm": call(hc.layers.rms_norm, x=W, weight=None, epsilon=1e-6),
    "layers.rope": call(hc.layers.rope, x=np.ones((1, 1, 2, 32), np.float32), cosine=np.ones((2, 16), np.float32),
                        sine=np.ones((2, 16), np.float32), pairs=False),
    "layers.softmax": call(hc.layers.softmax, x=W),
    "layers.swiglu": call(hc.layers.swiglu, gate=W, up=W),
    "zoo.open_encoder": call(hc.zoo.open_encoder, path="missing"),
    "zoo.open_llm": call(hc.zoo.open_llm, path="missing.gguf"),
    "BitmapArray": call(hc.BitmapArray, bitmap=np.zeros(1, np.uint8), values=W[0, :0], shape=(2, 4)),
    "Codebook": call(hc.Codebook, bits=4, group=None, per="row", dim=1),
    "EIEArray": call(hc.EIEArray, components={}, shape=(2, 4), axis=(1,)),
    "Float": call(hc.Float, name="e4m3", saturate=True, scaled=None),
    "Affine": call(hc.Affine, bits=4, group=64, scale="f32"),
    "GGML": call(hc.GGML, type="q4_k"),
    "Int": call(hc.Int, bits=8, group=None, symmetric=True, scale="f32"),
    "Integer": call(hc.Integer, bits=4, signed=True, full=False, fraction_bits=0),
    "Levels": call(hc.Levels, values=(0.0, 1.0), thresholds=None, text=None),
    "Minifloat": call(hc.Minifloat, exponent=3, mantissa=4, bias=None, specials=None, subnormals=True, signed=True),
    "define": call(hc.define, name=None, element="e3m4", scale="f32", group=16, block=None, per="row", second=None,
                   rule=None, target=None, saturate=True, rounding="even"),
    "Log": call(hc.Log, bits=8, gamma=8, group=None),
    "MX": call(hc.MX, element="e2m1", scale_rule="floor"),
    "NF4": call(hc.NF4, group=64, double=False),
    "NVFP4": call(hc.NVFP4, four_over_six=False),
    "QuantizedArray": call(hc.QuantizedArray, components=Q.components, format=Q.format, shape=(8, 32), axis=(1,),
                           source_dtype="float32"),
    "RotatedArray": call(hc.RotatedArray, source=Q, format=hc.format(f"{Q.format}+had")),
    "Sparse": call(hc.Sparse, base=hc.format("int8"), n=2, m=4),
    "Rotated": call(hc.Rotated, base=hc.format("int8"), block=64, seed=1),
    "SparseArray": call(hc.SparseArray, components=SPARSE.components, format=SPARSE.format, shape=(8, 32), axis=(1,),
                        source_dtype="float32"),
    "VSQ": call(hc.VSQ, bits=4, group=16, scale_bits=4, unsigned=False, coarse="row", refit=False),
    "code_storage": call(hc.code_storage, q=hc.quantize(W, "cb4")),
    "codebook_gradient": call(hc.codebook_gradient, dw=W, q=hc.quantize(W, "cb4")),
    "codebook_step": call(hc.codebook_step, q=hc.quantize(W, "cb4"), gradient=np.zeros((8, 16), np.float32), lr=0.1),
    "conv2d": call(hc.conv2d, x=IMAGE, w=FILTERS, bias=None, stride=1, padding=1, dilation=1, groups=1,
                   activations=None, algorithm="auto", layout="NCHW", out=None, relu=False, accuracy="default"),
    "conv2d_backward_input": call(hc.conv2d_backward_input, dy=np.ones((1, 8, 6, 6), np.float32), w=FILTERS, size=6,
                                  dilation=1, groups=1, layout="NCHW", out=None, **WINDOW),
    "conv2d_backward_weight": call(hc.conv2d_backward_weight, dy=np.ones((1, 8, 6, 6), np.float32), x=IMAGE, size=3,
                                   dilation=1, groups=1, layout="NCHW", out=None, **WINDOW),
    "conv2d_outer": call(hc.conv2d_outer, x=IMAGE, w=FILTERS, bias=None, counts=False, cells=(8, 8),
                         multipliers=(4, 4), banks=32, accumulators=1024, out=None, **WINDOW),
    "convert_checkpoint": call(hc.convert_checkpoint, in_path="never/there.npz", out_path="never/out.npz", layout="awq",
                               lossy=None, source=None, progress=None, workers=None, resume=True, shard_size="5GB",
                               dry_run=False, part=None),
    "diff": call(hc.diff, a="never/a.npz", b="never/b.npz", inputs=None, inputs_b=None, layout_a=None, layout_b=None,
                 progress=None),
    "emulate.accepts": call(hc.emulate.accepts, emulate="hmma", activations=None, weights=None, length=64),
    "emulate.conv2d": call(hc.emulate.conv2d, x=IMAGE, w=FILTERS, bias=None, activations="int8", emulate="int32",
                           dilation=1, groups=1, **WINDOW),
    "emulate.linear": call(hc.emulate.linear, x=W, w=W, bias=None, activations="int8", emulate="int32"),
    "emulate.matmul": call(hc.emulate.matmul, a=W, b=W.T, accumulator="fp32", scale_product_bits=None,
                           conversion="exact", chunk=None, instruction=None, extra_bits=None, rounding=None,
                           fraction_bits=None),
    "emulate.parse": call(hc.emulate.parse, emulate="hmma"),
    "encode_bitmap": call(hc.encode_bitmap, a=np.ones((2, 4), np.float32)),
    "calibrate": call(hc.calibrate, seconds=0.0),
    "encode_eie": call(hc.encode_eie, w=np.ones((4, 8), np.float32), codebook=None, elements=4),
    "error": call(hc.error, w=W, q=Q),
    "explain": call(lambda function, x, q, **options: hc.explain(function, x, q, **options), function=hc.linear, x=W,
                    q=Q, activations=None),
    "fake_quantize": call(hc.fake_quantize, w=W, format="int8", axis=-1, clip=None, out=None),
    "finish_checkpoint": call(hc.finish_checkpoint, out_path="never/there"),
    "format": call(hc.format, text="int8"),
    "kl_divergence": call(hc.kl_divergence, logits=W, changed=W),
    "layers.avg_pool2d": call(hc.layers.avg_pool2d, x=IMAGE, size=3, **WINDOW),
    "layers.max_pool2d": call(hc.layers.max_pool2d, x=IMAGE, size=3, **WINDOW),
    "layers.fold_batch_norm": call(hc.layers.fold_batch_norm, w=FILTERS, bias=None, gamma=np.ones(8), beta=np.ones(8),
                                   mean=np.ones(8), variance=np.ones(8), epsilon=1e-5),
    "linear": call(hc.linear, x=W, w=Q, bias=None, activations=None, out=None),
    "log_add": call(hc.log_add, a=LOGS, b=LOGS, format=None),
    "log_multiply": call(hc.log_multiply, a=LOGS, b=LOGS, format=None),
    "load": call(hc.load, path="never/there.npz", layout=None),
    "matmul": call(hc.matmul, a=W, b=W.T, activations=None, out=None),
    "open": call(hc.open, path="never/there.npz", layout=None),
    "open_checkpoint": call(hc.open_checkpoint, path="never/there.npz", layout=None),
    "permute_channels": call(hc.permute_channels, w=W, pattern="2:4", axis=-1, effort="fast"),
    "permute_linear": call(hc.permute_linear, first=W, bias=None, second=np.ones((4, 8), np.float32),
                           permutation=np.arange(8)),
    "prepack": call(hc.prepack, w=Q),
    "prune": call(hc.prune, w=W, pattern="2:4", axis=-1, scores=None, mask=None),
    "prune_mask": call(hc.prune_mask, w=W, pattern="2:4", axis=-1, scores=None),
    "ptq.Hessian": call(hc.ptq.Hessian, k=32, groups=1),
    "ptq.accept": call(hc.ptq.accept, weights=WEIGHTS, ladder=["int4", "int8"], evaluate=len, at_least=0.5,
                       inputs=None, method=None, evaluations=None, include=None, exclude=None),
    "ptq.accumulator_bits": call(hc.ptq.accumulator_bits, q=hc.quantize(W, "int8"), activations="int8", tile=None,
                                 inputs=None),
    "ptq.bound": call(hc.ptq.bound, w=W, format="int4-g16", h=HESSIAN, damping=0.01, order="activation", axis=None),
    "ptq.calibrate": call(hc.ptq.calibrate, weights=WEIGHTS, inputs=evaluate, include=None, exclude=None),
    "ptq.correct_bias": call(hc.ptq.correct_bias, w=W, q=Q, h=HESSIAN, bias=None, axis=None),
    "ptq.error": call(hc.ptq.error, w=W, q=Q, h=HESSIAN, axis=None),
    "ptq.gptq": call(hc.ptq.gptq, w=W, h=HESSIAN, format="int4-g16", order="activation", scales="search", damping=0.01,
                     sweeps=1, refit=True, axis=None, mask=None, accumulator=None, activations=None,
                     tile=None),
    "ptq.hadamard": call(hc.ptq.hadamard, x=W, axis=-1, block=None, seed=None, out=None, inverse=False),
    "ptq.qronos": call(hc.ptq.qronos, w=W, h=HESSIAN, format="int4-g16", order="activation", scales="search",
                       damping=1e-3, sweeps=1, refit=True, axis=None, mask=None),
    "ptq.quantize": call(hc.ptq.quantize, weights=WEIGHTS, inputs=evaluate, format="int4-g16", sequential=False,
                         held={"w": HESSIAN}, include=None, exclude=None),
    "ptq.rotate": call(hc.ptq.rotate, net=None, seed=0),
    "ptq.quantize_checkpoint": call(hc.ptq.quantize_checkpoint, in_path="never/there.npz", out_path="never/out.npz",
                                    hessians={"w": HESSIAN}, format="int4-g16", include=(), exclude=(),
                                    workers=None),
    "ptq.rescale": call(hc.ptq.rescale, ws=[W], h=HESSIAN, format="int4", alpha="search"),
    "ptq.search": call(hc.ptq.search, weights=WEIGHTS, formats=["int8", "int4"], budget={"bits": 6}, evaluate=None,
                       metric=None, hessians={"w": HESSIAN}, groups=(), probe=None, include=None),
    "quantize": call(hc.quantize, w=W, format="int8", axis=-1, clip=None, importance=None,
                     layout=None),
    "quantize_checkpoint": call(hc.quantize_checkpoint, in_path="never/there.npz", out_path="never/out.npz",
                                format="int8", include=(), exclude=(), recipe=None, axis=None, workers=None, part=None,
                                shard_size="5GB"),
    "run_onnx": call(hc.run_onnx, model="never/there.onnx", inputs={"x": W}, format=None, activations=None,
                     recipe=None),
    "save": call(hc.save, path="never/there.npz", arrays={"w": Q}, layout=None),
    "save_gguf": call(hc.save_gguf, path="never/there.gguf", tensors={"w": W}, metadata=None, types=None,
                      importance=None),
    "scores.sparsegpt": call(hc.scores.sparsegpt, w=W, h=HESSIAN, pattern="2:4", damping=0.01),
    "scores.wanda": call(hc.scores.wanda, w=W, x=W),
    "set_num_threads": call(hc.set_num_threads, n=hc.get_num_threads()),
    "show_config": call(hc.show_config, mode="dicts"),
    "study": call(hc.study, weights=WEIGHTS, formats=["int8"], evaluate=None, include=None, exclude=None,
                  activations=None, recipe=None, layout=None),
    "study_density": call(hc.study_density, weights=WEIGHTS, patterns=["2:4"], evaluate=evaluate, include=None,
                          exclude=None, axis=-1),
    "study_training": call(hc.study_training, make_model=None, recipes=["bf16"], data=None, steps=1, seeds=1,
                           batch=None, rate=None, progress=None),
    "training.Current": call(hc.training.Current, margin=0, power_of_two=False),
    "training.Delayed": call(hc.training.Delayed, history=16, margin=0, amax="max", power_of_two=False),
    "training.DynamicScale": call(hc.training.DynamicScale, initial=1.0, growth=2.0, backoff=0.5, interval=10),
    "training.Recipe": call(hc.training.Recipe, weights="int8", activations="int8", gradients="int8", master="fp32",
                            weight_gradients="fp32", optimizer={}, optimizer_size=0, all_reduce="bf16", scaling=None,
                            loss_scale=None, rounding={}, keep={}, attention=None, weight_matmul=None,
                            requantize=(), hadamard=None, sums=None, pad=False, update="optimizer", seed=0, name="",
                            source=""),
    "training.attention_step": call(hc.training.attention_step, q=W, k=W, v=W, dy=W, recipe="bf16", causal=False,
                                    seed=None),
    "training.linear_step": call(hc.training.linear_step, x=W, w=W, dy=np.ones((8, 8), np.float32), recipe="bf16",
                                 seed=None),
    "training.recipe": call(hc.training.recipe, name="bf16"),
    "training.fake_quantize": call(hc.training.fake_quantize, w=W, format="int8", axis=-1, clip=None,
                                   rounding="nearest", seed=0, scale=None),
    "training.mask_flips": call(hc.training.mask_flips, old=W > 0, new=W > 0),
    "training.sparsity_at": call(hc.training.sparsity_at, step=1, begin=0, end=2, final=0.5, power=3),
    "training.sr_ste": call(hc.training.sr_ste, dw=W, w=W, mask=W > 0, decay=0.1),
    "tune": call(lambda function, x, q, **options: hc.tune(function, x, q, **options), function=hc.linear, x=W, q=Q,
                 seconds=0.0),
    "vectors": call(hc.vectors, format="int4", folder="never/there", seed=0, kinds=None, count=4, length=4,
                    accumulators=(), pattern="2:4"),
    "verify": call(hc.verify, file="never/there.npz", base="never/base.npz", recipe=None, guess=False, inputs=None,
                   sample=None, seed=None, statement=None, layout=None, part=None, workers=None, digest=True,
                   progress=None),
    "use": call(hc.use, isa=None, threads=None, blas=None, path=None, tuned=None),
}  # fmt: skip
# Values that functions return, and functions without arguments.
OTHERS = {"ptq.Calibration", "Checkpoint", "CodeStorage", "DensityStudy", "Difference", "EIELoad", "ErrorReport",
          "Explanation", "Format", "MeasuredCosts", "OuterCounts",
          "Prepacked", "PrepackedFilters", "Study", "TrainingStudy", "Verification",
          "get_num_threads", "emulate.Instruction", "ptq.AccumulatorBits", "ptq.Gate", "ptq.OutputError",
          "ptq.Plan", "ptq.Rescaling", "ptq.Rounded", "training.AttentionStep", "training.LinearStep", "training.Watch",
          "training.recipes", "zoo.Adder", "zoo.Digits", "zoo.Network", "zoo.adder",
          "zoo.digits"}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.sweep(every=4)
def test_messages_are_short(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    function, arguments = CALLS[name]
    for argument in arguments:
        for value in LONG:
            try:
                answer = function(**{**arguments, argument: value})
                if name == "use":
                    with answer:
                        pass
            except Exception as error:
                said = str(error)
                place = f"{name}, {argument} = {value!r:.20}: {type(error).__name__} of {len(said)} characters"
                assert len(said) <= MOST and "x" * 81 not in said and "x." * 41 not in said, f"{place}: {said[:200]}"


def test_every_public_function_is_among_them() -> None:
    for name in hc.__all__:
        one = getattr(hc, name)
        inside = isinstance(one, types.ModuleType)
        own = [f"{name}.{key}" for key in getattr(one, "__all__", ())] if inside else [name]
        if name in ("hardware", "formats", "reference"):  # tested elsewhere, or not callable
            continue
        for path in own:
            found = getattr(one, path.split(".")[1]) if inside else one
            if callable(found) and not (inspect.isclass(found) and issubclass(found, BaseException)):
                assert path in CALLS or path in OTHERS, path


def test_short_values_are_shown_whole() -> None:
    for value in ("int9", 3, 1.5, None, (1, 2), ["a"], {"a": 1}, b"x", "x" * 78, list(range(20)), True, {1}):
        assert shown(value) == repr(value)
    assert shown("x" * 79).startswith("'xxx") and len(shown("x" * 79)) <= 80
    assert shown(np.zeros((2, 3))) == "an array of float64 (2, 3)"
    assert shown(10**6000) == "an int of 19932 bits"


def test_values_in_messages_go_through_one_function() -> None:
    """No f-string of the package quotes a whole value, except strings of the package and values cut by their format."""
    folder = Path(hc.__file__).parent
    bare = [
        f"{path.relative_to(folder)}:{number}: {line.strip()}"
        for path in sorted(folder.rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if "!r}" in line and not line.strip().startswith("return f") and path.name not in ("texts.py", "values.py")
    ]
    assert bare == []
