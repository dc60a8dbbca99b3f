"""Compare matmuls on a GPU with `hw.roofline`: python docs/figures/h100_products.py, with a torch that has CUDA.

A CUDA graph repeats a matmul until a replay takes about 20 ms. The copies of the weights exceed the L2 cache. A time is
the median of 7 replays by CUDA events. A cell has the ms of the roofline, the measured ms, and their ratio.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from runner import options, table as markdown

from heterocompute import hardware as hw

ROWS, SIZES = (1, 16, 64, 128, 512, 2048, 8192), (4096, 8192)
L2, REPLAY, REPLAYS, CALLS = 200e6, 0.02, 7, 400  # bytes of all copies, seconds, ..., at most in a replay
# Name, dtype and format of the roofline, bytes per stored weight.
KINDS = {
    "bf16": ("bf16", None, 2),
    "fp16": ("fp16", None, 2),
    "tf32": ("tf32", None, 4),
    "fp32": ("fp32", None, 4),
    "int8, `_int_mm`": ("int8", None, 1),
    "fp8, `_scaled_mm`": ("fp8", None, 1),
    "fp8, parts of 128 in fp32": ("fp8", None, 1),
    "bf16+2:4, cuSPARSELt": ("bf16", "2:4", 1),
    "int8+2:4, cuSPARSELt": ("int8", "int8+2:4", 0.5),
}


def seconds(torch: Any, calls: list[Callable[[], Any]]) -> float:
    """Return the median seconds of one call."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def timed(run: Callable[[], Any]) -> float:
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        return float(begin.elapsed_time(end)) / 1e3

    def once() -> None:
        for call in calls:
            call()

    with torch.cuda.stream(torch.cuda.Stream()):
        once()
    torch.cuda.synchronize()
    rounds = min(max(int(REPLAY / max(timed(once), 2e-6)), 1), max(CALLS // len(calls), 1))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(rounds):
            once()
    timed(graph.replay)
    return sorted(timed(graph.replay) for _ in range(REPLAYS))[REPLAYS // 2] / (rounds * len(calls))


def products(torch: Any, kind: str, x: Any, weights: list[Any]) -> list[Callable[[], Any]]:
    """Return a call for each copy of the weights (n, k), or of their compressed form by cuSPARSELt."""
    one = torch.ones((), device="cuda")
    if kind.startswith("int8,"):
        return [lambda w=w: torch._int_mm(x, w.t()) for w in weights]
    if kind.startswith("fp8"):
        how = {"out_dtype": torch.bfloat16, "use_fast_accum": "parts" not in kind}
        return [lambda w=w: torch._scaled_mm(x, w.t(), one, one, **how) for w in weights]
    if "2:4" in kind:
        how = {"out_dtype": torch.bfloat16} if kind.startswith("int8") else {}
        number = torch._cslt_sparse_mm_search(weights[0], x.t(), **how)
        return [lambda w=w: torch._cslt_sparse_mm(w, x.t(), alg_id=number, **how) for w in weights]
    return [lambda w=w: torch.mm(x, w.t()) for w in weights]


def measured(torch: Any, sizes: tuple[int, ...], rows: tuple[int, ...]) -> dict[str, float]:
    """Return seconds by kind, rows and size, without the calls that a library refuses."""
    found: dict[str, float] = {}
    types = {"bf16": torch.bfloat16, "fp16": torch.float16, "int8": torch.int8, "fp8": torch.float8_e4m3fn}
    for n in sizes:
        for kind, (dtype, pattern, stored) in KINDS.items():
            torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
            weights = []

            def drawn(height: int, width: int = n, dtype: str = dtype) -> Any:
                values = torch.randn(height, width, device="cuda")
                if dtype == "int8":
                    return (values * 32).clamp(-127, 127).to(torch.int8)
                return values.to(types.get(dtype, torch.float32))

            for _ in range(max(2, math.ceil(L2 / (n * n * stored)))):
                w = drawn(n)
                if pattern:
                    kept = torch.rand(n, n // 4, 4, device="cuda").topk(2, -1).indices
                    mask = torch.zeros(n, n // 4, 4, dtype=torch.bool, device="cuda").scatter_(-1, kept, True)
                    w = torch._cslt_compress(torch.where(mask.view(n, n), w, torch.zeros_like(w)))
                weights.append(w)
            for m in rows:
                try:
                    found[f"{kind} {m} {n}"] = seconds(torch, products(torch, kind, drawn(m), weights))
                except RuntimeError as error:
                    print(f"{kind}, {m} x {n}: {str(error)[:80]}")
    return found


def table(found: dict[str, float], n: int, rows: tuple[int, ...]) -> str:
    """Return times of the roofline and measured times as Markdown."""
    lines = []
    for kind, (dtype, pattern, _) in KINDS.items():
        cells = []
        for m in rows:
            clock = found.get(f"{kind} {m} {n}")
            layer = hw.layers.Linear(n, n, bias=False)
            roof = hw.roofline(layer, "h100-sxm", dtype, format=pattern, batch=m, input_shape=(n,)).seconds
            share = "-" if clock is None else f"{clock * 1e3:.3g} **{roof / clock:.2f}**"
            cells.append(f"{roof * 1e3:.3g} {share}")
        lines.append([kind, *cells])
    return markdown([f"{n} x {n} times", *(f"{m} rows" for m in rows)], lines)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--json", help="write what was measured, or read it where the file is there")
    given = parser.parse_args()
    try:
        with open(given.json or "") as file:
            found = json.load(file)
    except FileNotFoundError:
        import torch

        print(torch.__version__, torch.cuda.get_device_name())
        found = measured(torch, SIZES, ROWS)
        if given.json:
            with open(given.json, "w") as file:
                json.dump(found, file)
    for n in SIZES:
        print(f"\n{table(found, n, ROWS)}")


if __name__ == "__main__":
    main()
