"""The model of a training step: ZeRO, parallelism, recomputation, formats, and sums of parts."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import heterocompute as hc
from heterocompute import hardware as hw

Parallel = hw.Parallel
A100, H100 = "a100-sxm-80gb", "h100-sxm"


def step(recipe: Any = "bf16", batch: int = 64, device: str = A100, **split: Any) -> hw.TrainingStep:
    found = Parallel(**split)
    system = hw.multi.fabric("dgx-a100", found.devices) if found.devices > 1 else None
    return hw.training_step("gpt2", device, recipe, batch=batch, fabric=system, parallel=found)


@pytest.mark.parametrize(("stage", "printed"), [(0, 120.0), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_zero_is_the_published_table(stage: int, printed: float) -> None:
    assert round(hw.zero_memory(7.5e9, 64, stage) / 1e9, 1) == printed


@pytest.mark.parametrize("stage", range(4))
def test_memory_of_a_step_is_that_of_zero(stage: int) -> None:
    memory = step(data=8, zero=stage).memory_per_device
    states = sum(memory[name] for name in ("weights", "gradients", "master", "optimizer"))
    assert states == pytest.approx(hw.zero_memory(hw.networks["gpt2"].params, 8, stage), rel=1e-3)


def test_parts_add_up_and_matmuls_are_those_of_the_layers() -> None:
    found = step(microbatch=8)
    assert sum(found.parts.values()) == pytest.approx(found.seconds)
    operations = 2 * 64 * sum(flow.macs for flow in hw.networks["gpt2"])
    least = operations / hw.device(A100).peak("bf16")
    assert least <= found.parts["forward"] < 1.3 * least
    assert found.operations == 3 * operations
    assert found.energy == pytest.approx(found.seconds * hw.device(A100).tdp)


def test_recomputation_repeats_the_forward_pass_for_less_memory() -> None:
    plain, again = step(microbatch=8), step(microbatch=8, recompute="full")
    assert again.parts["recompute"] == pytest.approx(plain.parts["forward"] + plain.parts["elementwise"] / 2.5)
    assert again.memory_per_device["activations"] < plain.memory_per_device["activations"] / 3


def test_recomputation_by_layer_repeats_these_layers() -> None:
    plain, full = step(microbatch=8), step(microbatch=8, recompute="full")
    part, named = (step(microbatch=8, recompute=how) for how in ("attention", ["*.scores", "*.softmax"]))
    assert part.parts == named.parts
    assert part.memory_per_device == named.memory_per_device
    assert 0 < part.parts["recompute"] < 0.4 * full.parts["recompute"]
    scores = 8 * 12 * 1024 * 1024 * 2  # bytes of one layer
    saved = plain.memory_per_device["activations"] - part.memory_per_device["activations"]
    assert saved == pytest.approx(2 * 11 * scores, rel=0.01)  # scores and softmax of all blocks but one
    every = step(microbatch=8, recompute=["*"])
    assert every.parts == full.parts
    assert step(tensor=4, recompute=["*.fc2"]).parts["tensor_parallel"] == pytest.approx(
        5 / 4 * step(tensor=4).parts["tensor_parallel"]
    )
    assert step(tensor=4, recompute=["*.query"]).bytes["tensor_parallel"] == step(tensor=4).bytes["tensor_parallel"]
    fused = {"microbatch": 8, "fused_attention": True}
    assert step(**fused, recompute="attention").parts == step(**fused).parts


def test_rounding_to_narrow_formats_moves_bytes() -> None:
    assert step("bf16").parts["rounding"] == step("adam8bit").parts["rounding"] == 0
    tensors, groups = (step(name, device=H100, microbatch=8).parts["rounding"] for name in ("fp8-current", "mxfp8"))
    assert groups == pytest.approx(5 / 3 * tensors, rel=0.02)  # 16 bits are read, 8 written; again 8 and 8
    inside = dataclasses.replace(hc.training.recipe("fp8-current"), attention=None)
    whole = step(inside, device=H100, microbatch=8)
    assert whole.parts["rounding"] > tensors
    assert whole.parts["forward"] < step("fp8-current", device=H100, microbatch=8).parts["forward"]


def test_deepseek_is_within_a_third_and_its_communication_is_hidden() -> None:
    from heterocompute.hardware.ledger.models.training import deepseek_hours

    assert deepseek_hours(14.8e12) == pytest.approx(2.664, rel=0.3)


def test_the_largest_batch_of_a_recipe_is_that_of_its_step() -> None:
    for name in ("bf16", "adam8bit", "sr-bf16", "lns-madam"):
        found = hw.systems.largest_batch("gpt2", "t4", recipe=name)
        peaks = [hw.training_step("gpt2", "t4", name, batch=n, parallel=Parallel(microbatch=n)).peak_memory
                 for n in (found.batch, found.batch + 1)]  # fmt: skip
        assert peaks[0] <= found.limit < peaks[1]
        changes = {row["change"]: row for row in found.changes}
        assert changes["checkpointing"]["batch"] > changes["selective checkpointing"]["batch"] > found.batch
        assert ("optimizer" in changes) == (name != "adam8bit")
    with pytest.raises(ValueError, match="dtype is 'fp16' next to a recipe"):
        hw.systems.largest_batch("gpt2", "t4", recipe="bf16", dtype="fp16")


def test_bubbles_shrink_with_microbatches_and_parts() -> None:
    shares = [
        found.parts["bubble"] / (found.seconds - found.parts["data_parallel"] - found.parts["optimizer"])
        for found in (step(pipeline=4, batch=8), step(pipeline=4, batch=64), step(pipeline=4, batch=8, interleaved=3))
    ]
    assert shares[0] == pytest.approx(3 / 11, abs=0.02)
    assert shares[1] == pytest.approx(3 / 67, abs=0.02)
    assert shares[2] == pytest.approx(1 / 9, abs=0.03)


def test_communication_follows_the_division() -> None:
    alone, tensor, data = step(), step(tensor=4), step(data=4)
    assert alone.parts.get("tensor_parallel", 0) == alone.parts["data_parallel"] == 0
    assert tensor.parts["tensor_parallel"] > 0
    assert data.bytes["data_parallel"] == pytest.approx(2 * 3 / 4 * 4 * hw.networks["gpt2"].params, rel=1e-3)
    assert step(data=4, zero=3).bytes["data_parallel"] == pytest.approx(1.5 * data.bytes["data_parallel"])
    narrow = dataclasses.replace(hc.training.recipe("bf16"), all_reduce="int8")
    assert step(narrow, data=4).bytes["data_parallel"] == pytest.approx(0.25 * data.bytes["data_parallel"])


def test_recipes_change_rates_and_states() -> None:
    wide, narrow = step(device=H100, microbatch=8), step("fp8-current", device=H100, microbatch=8)
    assert narrow.parts["forward"] < 0.75 * wide.parts["forward"]
    assert step("int8-switchback", microbatch=8).parts["weight_gradients"] == pytest.approx(
        step(microbatch=8).parts["weight_gradients"], rel=0.01
    )
    small = step("adam8bit").memory_per_device["optimizer"]
    assert small == pytest.approx(step("fp32").memory_per_device["optimizer"] / 4, rel=0.02)
    assert step("sr-bf16").memory_per_device["master"] == 0
    assert "has no matmul of" in step("fp8-current").notes[0]


def test_fused_attention_moves_no_scores() -> None:
    plain, fused = step(microbatch=8), step(microbatch=8, fused_attention=True)
    assert fused.parts["elementwise"] < plain.parts["elementwise"]
    assert fused.memory_per_device["activations"] < plain.memory_per_device["activations"]


def test_experts_send_positions() -> None:
    system = hw.multi.fabric("dgx-h100", 64)
    found = [
        hw.training_step("deepseek_v3", H100, batch=64, fabric=system, parallel=Parallel(data=64, expert=expert))
        for expert in (1, 8, 64)
    ]
    assert found[0].parts.get("expert_parallel", 0) == 0 < found[1].parts["expert_parallel"]
    assert found[2].memory_per_device["weights"] < found[1].memory_per_device["weights"] / 3


@pytest.mark.parametrize(
    ("split", "batch", "words"),
    [
        ({"data": 3}, 64, "batch is 64, expected a multiple of data x microbatch, 3"),
        ({"pipeline": 16}, 64, "pipeline is 16 stages of 1 parts, and the network has 12 blocks"),
        ({"expert": 3}, 64, "expert is 3, expected a divisor of data, 1"),
        ({"zero": 4}, 64, "Parallel: zero is 4"),
        ({"recompute": "some"}, 64, "recompute is 'some'"),
        ({"recompute": ["*.sorces"]}, 64, "recompute has '\\*.sorces', which is not a layer of gpt2"),
        ({"overlapped": 2.0}, 64, "overlapped"),
    ],
)
def test_bad_divisions_are_named(split: dict[str, Any], batch: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        hw.training_step("gpt2", A100, batch=batch, parallel=Parallel(**split))
    with pytest.raises(ValueError, match="recipe: name is 'fp9'"):
        hw.training_step("gpt2", A100, "fp9")
