"""The emulated product: checks its arguments and passes the operands to one of the two models."""

from __future__ import annotations

from .. import _heterocompute as _core
from ..arrays.array_like import ArrayLike
from ..base.errors import WrongValue, shown
from ..base.float_env import counts_subnormals
from ..products.arguments import Array, as_matrix
from .codes import multiply_codes
from .floats import multiply_floats
from .model import NAME, as_operand, parse_model, refuse


@counts_subnormals
def matmul(
    a: ArrayLike,
    b: ArrayLike,
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
    """Multiply two arrays as the given hardware does, and return ``a @ b``.

    Parameters
    ----------
    a, b : array_like or QuantizedArray
        Shapes as in `numpy.matmul`. Integer accumulators accept arrays of an integer dtype, arrays quantized to
        integers along the reduction axis, or log numbers of one gamma on both sides. Float accumulators accept floats,
        and use quantized arrays as their float32 values.
    accumulator : str
        - ``"int32"``, ``"int24-sat"``, ``"int16-sat"``, ``"int20-wrap"`` ...: two's complement of 2 to 63 bits that
          saturates or wraps (``"int32"`` wraps).
        - ``"float64"``: for log numbers.
        - ``"fp16"``, ``"bf16"``, ``"fp32"``.
        - ``"fp22"``: fp32 with 13 fraction bits.

        With an instruction: one of the accumulators that it supports.
    scale_product_bits : int, optional
        Round the product of two integer scales to this number of upper bits, 2 to 16, to nearest, ties to even.
    conversion : str
        - ``"exact"``.
        - ``"mitchell"``: 2^f = 1 + f for log numbers, Mitchell's multiplier for integers.
        - ``"hybrid:n"``: for log numbers, the upper n bits of f by a table, the lower bits by 1 + f.
    chunk : int, optional
        Number of products along k that are summed exactly before they are added to the accumulator. A chunk ends at a
        group boundary. Default: 1, or a whole group with an integer accumulator and an operand with groups.
    instruction : str, optional
        A preset, one of `INSTRUCTIONS`:

        - ``"hfma"``, ``"hdp4a"``, ``"hmma"`` multiply float16.
        - ``"dp4a"`` and ``"imma"`` multiply 8-bit integers with one scale per row.
        - ``"hmma-v100"``, ``"hmma-a100"``, ``"hmma-ada"``, ``"hmma-h100"``, ``"hmma-b200"`` are tensor cores as
          measured. From A100 on also ``-bf16`` and ``-tf32`` (``"hmma-h100-tf32"``), from Ada on ``-e4m3`` and
          ``-e5m2``. The float16 instructions add to ``"fp32"``, fp8 of Ada and H100 to ``"fp22"``, or to float16 with
          ``accumulator="fp16"``.
    extra_bits : int, optional
        0 to 8, with a float accumulator. Before the sum of a step, the accumulator and the products are cut to a
        multiple of one unit. The unit is this number of bits below the last bit of the largest exponent among them.
        With ``"hmma"`` it is below the last of 24 bits, for every accumulator.
    rounding : {"rne", "truncate"}, optional
        Rounding of float accumulators and of the cut of `extra_bits`. Default: ``"rne"``. For ``"hmma"`` it is
        ``"truncate"``, but ``"rne"`` for its float16 sums.
    fraction_bits : int, optional
        For log numbers in integers: the largest product is ``2**fraction_bits``, smaller products are truncated.
        Default: the largest number without overflow.

    Returns
    -------
    ndarray
        float32, or int64 (the accumulators) if both operands are integer arrays. Results are bitwise identical for
        every number of threads and instruction set.

    Raises
    ------
    ValueError
        The arguments do not match each other or the operands, an operand holds a NaN or an infinity, or a value is
        not a float16 although the instruction multiplies float16.
    TypeError
        An argument or array has the wrong type.

    Notes
    -----
    Scaled integer products: Dai et al., "VS-Quant", MLSys 2021 (arXiv 2102.04503), equation 5 and section 5. Keller
    et al., "A 17-95.6 TOPS/W Deep Learning Inference Accelerator with Per-Vector Scaled 4-bit Quantization for
    Transformers in 5nm", VLSI 2022, is ``accumulator="int24-sat", scale_product_bits=8`` with groups of 64. Log
    numbers: Zhao et al., "LNS-Madam", 2021 (arXiv 2106.13914); Mitchell, IRE Trans. EC 11(4), 1962. Tensor cores: Fasi
    et al., "Numerical behavior of NVIDIA tensor cores", PeerJ Computer Science 7:e330, 2021; Khattak and Mikaitis,
    "Accurate Models of NVIDIA Tensor Cores", 2025 (arXiv 2512.07004). Sums of fp8: DeepSeek-AI, "DeepSeek-V3 Technical
    Report", 2024 (arXiv 2412.19437), section 3.3.2; Zhang et al., "SageAttention2", 2024 (arXiv 2411.10958). The
    instructions of an H100 were compared with the hardware and are bitwise identical.

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
            raise WrongValue(f"{NAME}: {name} has no dimensions")
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
