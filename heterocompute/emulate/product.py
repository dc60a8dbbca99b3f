"""The product of emulations: checks its arguments and hands the operands to one of the two models."""

from __future__ import annotations

from typing import Any

from .. import _heterocompute as _core
from ..base.float_env import counts_subnormals
from ..base.values import shown
from ..products.arguments import Array, as_matrix
from .codes import multiply_codes
from .floats import multiply_floats
from .model import NAME, as_operand, parse_model, refuse


@counts_subnormals
def matmul(
    a: Any,
    b: Any,
    accumulator: str = "int32",
    scale_product_bits: int | None = None,
    conversion: str = "exact",
    chunk: int | None = None,
    instruction: str | None = None,
    *,
    extra_bits: int | None = None,
    rounding: str | None = None,
    fraction_bits: int | None = None,
) -> Array:
    """Multiply two arrays as a given hardware would: ``a @ b``.

    Parameters
    ----------
    a, b : array_like or QuantizedArray
        Shapes as in `numpy.matmul`. Integer accumulators take integers: arrays of an integer dtype, or arrays quantized
        along the reduction axis to integers; or log numbers on both sides, of one gamma. Float accumulators take
        floats, and quantized arrays by their values, as float32.
    accumulator : str
        ``"int32"``, ``"int24-sat"``, ``"int16-sat"``, ``"int20-wrap"`` ...: two's complement of 2 to 63 bits that
        saturates or wraps (``"int32"`` wraps). ``"float64"``: for log numbers. ``"fp16"``, ``"bf16"``, ``"fp32"``;
        ``"fp22"``: fp32 with 13 bits after the point. With an instruction one of those that it adds to.
    scale_product_bits : int, optional
        Round the product of two integer scales to so many of its upper bits, 2 to 16, nearest, ties to even.
    conversion : str
        ``"exact"``; ``"mitchell"``, of log numbers 2^f = 1 + f, of integers Mitchell's multiplier; ``"hybrid:n"``, of
        log numbers the upper n bits of f by a table and the others by 1 + f.
    chunk : int, optional
        Products that are summed exactly before they are added to the accumulator, along k; a chunk ends at the boundary
        of a group. By default 1, with an integer accumulator and an operand that has groups a whole group.
    instruction : str, optional
        A preset, one of `INSTRUCTIONS`. ``"hfma"``, ``"hdp4a"``, ``"hmma"`` multiply float16, ``"dp4a"`` and
        ``"imma"`` 8-bit integers with one scale a row. ``"hmma-v100"``, ``"hmma-a100"``, ``"hmma-ada"``,
        ``"hmma-h100"``, ``"hmma-b200"`` are tensor cores as measured; those from A100 on also ``-bf16`` and ``-tf32``
        (``"hmma-h100-tf32"``), those from Ada on ``-e4m3`` and ``-e5m2``. ``"hmma-h100"`` and the others of float16
        add to ``"fp32"``, fp8 of Ada and H100 to ``"fp22"``, or with ``accumulator="fp16"`` to that.
    extra_bits : int, optional
        0 to 8. With a float accumulator: before the sum of a step, the accumulator and the products are cut to a
        multiple of one unit: so many bits below the last bit of a number with the largest exponent among them. With
        ``"hmma"`` below the last of 24 bits, whatever the accumulator.
    rounding : {"rne", "truncate"}, optional
        Of float accumulators, and of what `extra_bits` cuts. By default ``"rne"``; ``"truncate"`` of ``"hmma"``,
        but ``"rne"`` of its sums in float16.
    fraction_bits : int, optional
        Of log numbers in integers: the largest product is ``2**fraction_bits``, the others are truncated. By default
        the largest number with which nothing can overflow.

    Returns
    -------
    ndarray
        float32; int64, the accumulators themselves, where both operands are arrays of integers. The bits are the same
        for every number of threads and instruction set.

    Raises
    ------
    ValueError
        Arguments that do not fit each other or the operands; a NaN or an infinity; values that are no float16 with an
        instruction that multiplies float16.
    TypeError
        Arguments or arrays of the wrong type.

    Notes
    -----
    Scaled products of integers: Dai et al., "VS-Quant", MLSys 2021 (arXiv 2102.04503), equation 5 and section 5; Keller
    et al., "A 17-95.6 TOPS/W Deep Learning Inference Accelerator with Per-Vector Scaled 4-bit Quantization for
    Transformers in 5nm", VLSI 2022, is ``accumulator="int24-sat", scale_product_bits=8`` on groups of 64. Log numbers:
    Zhao et al., "LNS-Madam", 2021 (arXiv 2106.13914); Mitchell, IRE Trans. EC 11(4), 1962. Tensor cores: Fasi et al.,
    "Numerical behavior of NVIDIA tensor cores", PeerJ Computer Science 7:e330, 2021; Khattak and Mikaitis, "Accurate
    Models of NVIDIA Tensor Cores", 2025 (arXiv 2512.07004); sums of fp8: DeepSeek-AI, "DeepSeek-V3 Technical Report",
    2024 (arXiv 2412.19437), section 3.3.2; Zhang et al., "SageAttention2", 2024 (arXiv 2411.10958). Those of an H100
    were compared with one, bit for bit.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> x = np.full((1, 1000), 100, np.int8)
    >>> hc.emulate.matmul(x, x.T), hc.emulate.matmul(x, x.T, accumulator="int16-sat")
    (array([[10000000]]), array([[32767]]))
    >>> ones = np.ones((1, 4096), np.float16)
    >>> hc.emulate.matmul(ones, ones.T, instruction="hfma")
    array([[2048.]], dtype=float32)
    """
    model = parse_model(accumulator, chunk, instruction, extra_bits, rounding)
    left, right = as_operand(a, "a"), as_operand(b, "b")
    for value, name in ((left, "a"), (right, "b")):
        if value.ndim == 0:
            raise ValueError(f"{NAME}: {name} has no dimensions")
    ndims = left.ndim, right.ndim
    left, right = as_matrix(left, column=False), as_matrix(right, column=True)
    shape = _core.matmul_shape(NAME, left.shape, right.shape)
    if model.kind == "floats":
        refuse(conversion != "exact", "conversion", conversion, f"accumulator {shown(model.text)} multiplies floats")
        refuse(scale_product_bits is not None, "scale_product_bits", scale_product_bits, "float accumulators have none")
        refuse(fraction_bits is not None, "fraction_bits", fraction_bits, "it is for log numbers in integers")
        y = multiply_floats(model, left, right, shape)
    else:
        refuse(extra_bits is not None, "extra_bits", extra_bits, "it is for float accumulators")
        refuse(rounding is not None, "rounding", rounding, "it is for float accumulators")
        y = multiply_codes(model, left, right, shape, scale_product_bits, conversion, fraction_bits)
    final = shape[: len(shape) - 2] + (shape[-2:-1] if ndims[0] > 1 else ()) + (shape[-1:] if ndims[1] > 1 else ())
    return y.reshape(final)
