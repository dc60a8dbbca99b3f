"""A valid call of every public callable of `hardware`; tests replace its arguments one at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from heterocompute import hardware as hw
from heterocompute.hardware.accelerators.machines.machine import FOLDER

CHIP = "a100-sxm-40gb"
LEVELS = [hw.mapper.Level("DRAM", read=2.0, write=2.0), hw.mapper.Level("Buffer", words=64, read=1.0, write=1.0)]
ARCH = hw.mapper.Arch(LEVELS, mac=1.0)
PROBLEM = hw.mapper.Problem.gemm(4, 2, 4)
NAMES = list(PROBLEM.tensors)
MAPPING = hw.mapper.Mapping({"DRAM": [("M", 4)], "Buffer": [("N", 2), ("K", 4)]})
POD = hw.multi.Fabric("pod", (hw.multi.Tier("node", 4, 50e9), hw.multi.Tier("net", 16, 12.5e9)))
NET = hw.Network("net", (hw.layers.Node("fc", hw.layers.Linear(8, 4), ("input",)),), (8,))
CONV = hw.layers.Conv2d(3, 4, 3, padding=1)
RUN = hw.systems.pipeline(0.05, 0.02, 0.13, 0.01, steps=3)
WORK = hw.systems.product_work(64, 64, 64)
STEP = hw.training_step(NET, CHIP, batch=4)


@dataclass(frozen=True)
class Call:
    """A function and arguments that it accepts."""

    function: Callable[..., Any]
    arguments: dict[str, Any]


def call(function: Callable[..., Any], **arguments: Any) -> Call:
    return Call(function, arguments)


def shapes(layer: hw.layers.Layer, *inputs: tuple[int, ...]) -> dict[str, Call]:
    """Return the calls of the methods of a layer, which take shapes without names."""
    names = {f"input{i}": shape for i, shape in enumerate(inputs)}
    title = type(layer).__name__
    methods = ("output_shape", "macs", "gemm")

    def of(method: str) -> Callable[..., Any]:
        return lambda **given: getattr(layer, method)(*given.values())

    return {f"{title}.{method}": Call(of(method), names) for method in methods}


# Values that functions return and that users do not construct.
RESULTS = {
    "BatchSweep", "Counts", "Dispatch", "Exploration", "Files", "Found", "FusedNetwork", "Fusion", "LargestBatch",
    "MappedNetwork",
    "MacCost", "Measurement", "Overhead", "PipelineRun", "PublishedFigure", "PublishedFigures", "Roofline", "Stats",
    "Utilization", "Feed", "memory.Memory",
    "systolic.Run", "systolic.Simulation", "multi.ChipletTraffic", "accelerators.AcceleratorReport",
    "accelerators.Layer", "Operand", "Quantity", "Reproduction", "TrainingStep",
}  # fmt: skip
# Callables without arguments, or without numbers and strings as arguments.
PLAIN = {
    "Add", "Concat", "Flatten", "Layer", "MatMul", "Multiply", "Softmax", "glossary", "growth", "series",
    "multi.growth", "accelerators.names", "accelerators.diannao", "accelerators.eyeriss",
    "accelerators.scnn", "accelerators.simba", "accelerators.tpu_v1",
    "host", "state_arithmetic",  # one measures for seconds, the other registers a family permanently
}  # fmt: skip

MACHINE = hw.Machine({
    "name": "m", "process": "16nm", "clock": 1e9, "sizes": {"rows": 4}, "mac": {"weights": "int8"},
    "level": [{"name": "dram", "kind": "ddr3", "bandwidth": 1e9},
              {"name": "buffer", "kib": 4, "count": "rows", "spread": "K"}],
})  # fmt: skip

CALLS: dict[str, Call] = {
    "Activation": call(hw.layers.Activation, kind="relu", functional=False),
    "AdaptiveAvgPool2d": call(hw.layers.AdaptiveAvgPool2d, size=(2, 2), functional=False),
    "AddTable": call(hw.layers.AddTable, rows=16, width=8, limits=True),
    "Parallel": call(hw.Parallel, data=4, tensor=1, pipeline=1, expert=1, zero=1, microbatch=1, interleaved=1,
                     recompute="none", expert_copies=None, sequence=False, fused_attention=False, overlapped=0.0),
    "TrainingStep.days": call(STEP.days, samples=1000.0),
    "TrainingStep.device_hours": call(STEP.device_hours, samples=1000.0),
    "training_step": call(hw.training_step, network=NET, device=CHIP, recipe="bf16", batch=4, fabric=None,
                          parallel=None, input_shape=None, sustained=1.0),
    "zero_memory": call(hw.zero_memory, parameters=7.5e9, devices=64, stage=3, optimizer_bytes=12.0),
    "Arch": call(hw.mapper.Arch, levels=LEVELS, mac=1.0, macs=4),
    "Arch.fanout": call(ARCH.fanout, place=0),
    "Attention": call(hw.layers.Attention, width=16, heads=4, kv_heads=2, bias=True, residual=False),
    "AvgPool2d": call(hw.layers.AvgPool2d, kernel_size=(3, 3), stride=2, padding=1, ceil_mode=False),
    "BatchNorm2d": call(hw.layers.BatchNorm2d, channels=8, affine=True),
    "Builder": call(lambda name, input_shape: hw.Builder(name, input_shape).build(), name="b", input_shape=(3, 8)),
    "Builder.add": call(lambda name, layer: hw.Builder("b", (8,)).add(name, layer), name="fc",
                        layer=hw.layers.Linear(8, 4)),
    "Context": call(hw.layers.Context, heads=4, kv_heads=2, cached=3, window=8),
    "Conv2d": call(hw.layers.Conv2d, in_channels=4, out_channels=8, kernel_size=(3, 3), stride=(2, 2), padding=1,
                   dilation=1, groups=2, bias=True, shared=False),
    "Density": call(hw.mapper.Density, share=0.5, kind="fixed"),
    "Density.n_of_m": call(hw.mapper.Density.n_of_m, n=2, m=4),
    "Device": call(hw.Device, name="mine", peak={"int8": 4e12}, bandwidth=5e10, memory=1e9, tdp=50.0,
                   sparse={"int8": 8e12}, on_chip=1e6, links={"pcie": 1e9}, die_mm2=100.0, year=2020, process="7nm",
                   kind="asic", title="Mine", note="", aliases=("m",), source={"tdp": "a"}, unverified=("tdp",),
                   clock={"a": (1.0, 2.0, 3.0)}),
    "Device.peak": call(hw.device(CHIP).peak, dtype="fp16", sparse=False),
    "Device.ridge": call(hw.device(CHIP).ridge, dtype="fp16", sparse=False),
    "Device.need": call(hw.device(CHIP).need, figure="bandwidth"),
    "Device.source_of": call(hw.device(CHIP).source_of, figure="bandwidth"),
    "Embedding": call(hw.layers.Embedding, rows=16, width=8),
    "Feed.at": call(RUN.feed.at, stage="read", batch=0),
    "Feed.reading": call(RUN.feed.reading, batch=0),
    "Feed.copying": call(RUN.feed.copying, batch=0),
    "Feed.after": call(lambda batch: list(RUN.feed.after(batch)), batch=0),
    "LayerNorm": call(hw.layers.LayerNorm, width=8, bias=True),
    "Level": call(hw.mapper.Level, name="L", words=64, keeps={"W"}, read=1.0, write=1.0, update=1.0, leak=0.1, block=2,
                  instances=4, cluster=2, read_bandwidth=2.0, write_bandwidth=2.0, compress={"A": 4.0},
                  gate={"A": {"B"}}, skip={"C": {"B"}}),
    "Linear": call(hw.layers.Linear, in_features=8, out_features=4, bias=True, shared=False),
    "Loops": call(hw.layers.Loops, name="l", n=1, c=4, k=8, p=6, q=6, r=3, s=3, stride=(1, 1), dilation=(1, 1),
                  groups=2,
                  padding=(1, 1)),
    "Loops.problem": call(lambda **sizes: hw.layers.Loops("l", **sizes).problem(), n=1, c=4, k=8, p=6, q=6, r=3, s=3,
                          groups=2),
    "Mapping": call(hw.mapper.Mapping, temporal={"DRAM": [("M", 4)]}, spatial={"DRAM": [("N", 2)]},
                    keeps={"DRAM": {"A"}}),
    "MaxPool2d": call(hw.layers.MaxPool2d, kernel_size=(3, 3), stride=2, padding=1, ceil_mode=False),
    "Network": call(hw.Network, name="n", nodes=NET.nodes, input_shape=(8,), note="", frozen=0, prepared=(0, 0)),
    "Network.with_input": call(NET.with_input, shape=(5, 8)),
    "Network.decoding": call(hw.networks["gpt2"].decoding, context=7),
    "Network.fused_attention": call(hw.networks["gpt2"].fused_attention),
    "Network.problems": call(NET.problems, batch=2),
    "Node": call(lambda **given: hw.Network("n", (hw.layers.Node(**given),), (8,)).flows, name="fc",
                 layer=hw.layers.Linear(8, 4),
                 inputs=("input",), memory_of=None, kept=(1, 2)),
    "PipelineRun.to_svg": call(RUN.to_svg, steps=2),
    "Problem": call(hw.mapper.Problem, dims={"P": 4, "R": 3}, tensors={"W": [{"R": 1}], "I": [{"P": 1, "R": 1}],
                    "O": [{"P": 1}]}, output="O", densities={"W": 0.5}),
    "Problem.words": call(PROBLEM.words, tensor=NAMES[0]),
    "Problem.density": call(PROBLEM.density, tensor=NAMES[0]),
    "Problem.relevant": call(PROBLEM.relevant, tensor=NAMES[0]),
    "Problem.gemm": call(hw.mapper.Problem.gemm, m=4, n=2, k=3),
    "Problem.conv2d": call(hw.mapper.Problem.conv2d, c=3, k=4, p=5, q=5, r=3, s=3, n=1, stride=1, dilation=1),
    "multi.one_process": call(hw.multi.one_process, step_seconds=0.1, gradient_bytes=1e9, count=8, link=1e9,
                              input_bytes=1e6, output_bytes=1e3),
    "multi.collective": call(hw.multi.collective, kind="broadcast", size=1e9, count=8, link=1e9, latency=1e-6),
    "read_smi": call(hw.systems.read_smi, path="never.csv", columns="index,power.draw"),
    "saturating_sms": call(hw.systems.saturating_sms, device=CHIP, latency=5e-7, bytes_a_thread=16, threads=1024),
    "published": call(hw.published, name="links"),
    "Quantity.like": call(hw.quantity("1 s").like, other=hw.quantity("2 s"), what="time"),
    "Roofline.to_html": call(lambda title: None, title="a"),
    "Scores": call(hw.layers.Scores, heads=4, kv_heads=2, cached=3, window=8),
    "Select": call(hw.layers.Select, last=True),
    "Stats.level_energy": call(hw.mapper.evaluate(PROBLEM, ARCH, MAPPING).level_energy, level="DRAM"),
    "accelerators.accelerator": call(hw.accelerators.accelerator, name="eie"),
    "accelerators.eie": call(hw.accelerators.eie, depth=8),
    "accelerators.groq_lpu": call(hw.accelerators.groq_lpu, chips=2),
    "accelerators.magnet": call(hw.accelerators.magnet, dataflow="ws", process="16nm"),
    "accelerators.nvdla": call(hw.accelerators.nvdla, winograd=True, compressed=False),
    "accelerators.tensor_core": call(hw.accelerators.tensor_core, generation="volta"),
    "accelerators.Accelerator": call(hw.accelerators.Accelerator, name="a", title="A", source="s", year=2020,
                                     process="16nm", clock=1e9, formats={"int8": 64}, cost=lambda *_: None,
                                     accumulator_bits=32, vector=1, resident="", operations=None, watts=1.0,
                                     mac_pj=0.1, gated="", instruction_pj=0.0, still="", holds=None, chips=1,
                                     waits="DRAM", notes=()),
    "Accelerator.peak": call(hw.accelerators.tpu_v1().peak, format="int8"),
    "Accelerator.report": call(hw.accelerators.eie().report, network="digits", format="int16", batch=1,
                               input_shape=(1, 8, 8), zeros={"fc1": {"W": 0.5}}, layers=["fc1"],
                               voltage=0.8, dram="hbm2"),
    "Machine": call(hw.Machine, table=MACHINE.table),
    "Machine.named": call(hw.Machine.named, name="tpu_v1", rows=8, columns=8, bandwidth=1e9),
    "Machine.read": call(hw.Machine.read, path=FOLDER / "tpu_v1.toml", rows=8),
    "Machine.peak": call(MACHINE.peak, format="int8"),
    "Machine.set": call(MACHINE.set, changes={"buffer.kib": 2, "mac.lanes": 2, "clock": 1e9, "sizes.rows": 4}),
    "Machine.report": call(MACHINE.report, network="digits", batch=1, format="int8", voltage=0.7),
    "Machine.roofline": call(MACHINE.roofline, network="digits", batch=1, input_shape=(1, 8, 8)),
    "Machine.fuse": call(MACHINE.fuse, network="digits", batch=1, objective="energy", input_shape=(1, 8, 8)),
    "amdahl": call(hw.systems.amdahl, share=0.5, speedup=4.0),
    "as_network": call(hw.as_network, network=[hw.layers.Linear(8, 4)], input_shape=(3, 8), training=0),
    "batch_sweep": call(hw.batch_sweep, network="digits", device=CHIP, batches=(1, 2), dtype="fp16",
                        format="int8", input_shape=(1, 8, 8), kv_cache="int8"),
    "break_even_density": call(hw.break_even_density, gain_dense=1.33, floor=0.1, operands=2),
    "check_host": call(lambda **given: None, rows=1),
    "compare": call(hw.compare, devices=[CHIP, "t4"], network="gpt2", format="int8", price={CHIP: 10000.0, "t4": 1.0},
                    dtype="fp16", batch=1, context=16, input_shape=(8,), lifetime_years=3.0, kv_cache="int8"),
    "copy_seconds": call(hw.systems.copy_seconds, size=1e6, link=1e9),
    "count": call(hw.count, network="digits", input_shape=(1, 8, 8), like="mac", batch=2, dtype="fp32"),
    "device": call(hw.device, name=CHIP),
    "devices": call(hw.devices, kind="tpu", year=2017),
    "dispatch": call(hw.systems.dispatch, op="digits", devices=[CHIP, "t4"], objective="time", dtype="fp16",
                     format="int8",
                     batch=2, input_shape=(1, 8, 8), links={CHIP: 1e9}, launch={CHIP: 1e-5}),
    "dispatch of sizes": call(hw.systems.dispatch, op=lambda n: hw.systems.product_work(n, n, n), devices=[CHIP, "t4"],
                              launch={"t4": 1e-5}, links={"t4": 1e9}, sizes=(16, 64)),
    "dispatch of work": call(lambda **given: hw.systems.dispatch(WORK | given, ["xeon-platinum-8256", "t4"]),
                             **{key: one for key, one in WORK.items()}),
    "doubling_time": call(hw.systems.doubling_time, rate=0.5),
    "dvfs": call(hw.dvfs, power="100 W", time="1 s", voltage=("1 V", "0.8 V"), frequency=("1 GHz", "0.8 GHz"),
                 static="1 W"),
    "efficiency": call(hw.efficiency, rate="1 TOPS", power="4 W"),
    "energy_ratio": call(hw.energy_ratio, facility="1.2 MW", equipment="1 MW"),
    "evaluate": call(hw.mapper.evaluate, problem=PROBLEM, arch=ARCH, mapping=MAPPING),
    "explain_gain": call(hw.explain_gain, a="k20x", b=CHIP, a_dtype="fp32", b_dtype="fp16", sparse=False),
    "explore": call(hw.explore, space={"lanes": [8]}, networks="digits", objective=("energy", "area"), batch=1,
                    budget=2, seed=0, workers=None),
    "explore, of a machine": call(hw.explore, networks="digits", base=MACHINE, set={"buffer.kib": [1, 2]},
                                  objective="energy", batch=1, budget=2, seed=0),
    "fuse": call(hw.fuse, network="digits", sram_bytes=1e6, batch=1, training=False, recompute=False, dtype="fp16",
                 format="int8", input_shape=(1, 8, 8)),
    "hbm_bandwidth": call(hw.systems.hbm_bandwidth, stacks=5, width_bits=1024, rate=2.43e9),
    "intensity.conv2d": call(hw.intensity.conv2d, layer=CONV, input_shape=(3, 8, 8), dtype="fp16", batch=1,
                             unrolled=False),
    "intensity.conv2d_reuse": call(hw.intensity.conv2d_reuse, filters=4, kernel_size=(3, 3), stride=1),
    "intensity.gemm": call(hw.intensity.gemm, m=4, n=5, k=6, dtype="fp16"),
    "intensity.gemv": call(hw.intensity.gemv, m=4, k=6, dtype="fp16"),
    "intensity.im2col_copies": call(hw.intensity.im2col_copies, kernel_size=(3, 3), stride=1),
    "largest_batch": call(hw.systems.largest_batch, network="digits", device=CHIP, dtype="fp32", training=True,
                          optimizer="adam", target=4, usable=0.9, input_shape=(1, 8, 8), recipe=None),
    "load_devices": call(hw.load_devices, path="never/there.toml"),
    "mac": call(hw.mac, weight_format="int8", activation_format="int8", accumulator_bits=24, vector=16,
                process="45nm", voltage=0.9, log_sharing=1),
    "mapping_page": call(hw.mapper.mapping_page, problem=PROBLEM, arch=ARCH, mapping=MAPPING, title="A"),
    "measure": call(hw.measure, call=lambda: None, batch=1, warmup=0, runs=2, seconds=0.0),
    "memory.allocated": call(hw.memory.allocated, size=1000),
    "memory.backward": call(hw.memory.backward, network="digits", input_shape=(1, 8, 8), batch=1, dtype="fp32"),
    "memory.device_total": call(hw.memory.device_total, sizes=[1000, 2000], context=1000),
    "memory.forward": call(hw.memory.forward, network="digits", input_shape=(1, 8, 8), batch=1, dtype="fp32",
                           outputs=2),
    "memory.infer": call(hw.memory.infer, network="digits", input_shape=(1, 8, 8), batch=1, dtype="fp32",
                         format="int8", kv_cache="int8"),
    "memory.kv_cache": call(hw.memory.kv_cache, network="gpt2", context=16, batch=1, dtype="fp16", format="int8"),
    "memory.training": call(hw.memory.training, network="digits", input_shape=(1, 8, 8), batch=1, dtype="bf16",
                            optimizer="adam", recompute=2),
    "multi.chiplets": call(hw.multi.chiplets, network="digits", count=36, elements=16, batch=1, input_shape=(1, 8, 8),
                           operand_bytes=1.0, sum_bytes=3.0, element_rate=2e11, link=1e11, pj_a_bit=1.2),
    "multi.fabric": call(hw.multi.fabric, name="dgx-a100", count=16),
    "multi.allreduce": call(hw.multi.allreduce, size=1e6, count=8, link=1e9, latency=1e-6, algorithm="ring",
                            pipelined=True),
    "multi.allreduce, fabric": call(hw.multi.allreduce, size=1e6, count=64, link=POD, algorithm="switch"),
    "multi.reduce_bandwidth": call(hw.multi.reduce_bandwidth, count=8, link=1e9, algorithm="ring"),
    "multi.Fabric": call(hw.multi.Fabric, name="f", tiers=POD.tiers, source=""),
    "Fabric.of": call(POD.of, count=8),
    "multi.Tier": call(hw.multi.Tier, name="node", count=4, rate=50e9, latency=1e-6),
    "multi.data_parallel": call(hw.multi.data_parallel, step_seconds=0.2, gradient_bytes=1e6, count=8, link=1e9,
                                overlapped=0.5, algorithm="ring"),
    "multi.parameter_server": call(hw.multi.parameter_server, step_seconds=0.2, gradient_bytes=1e6, count=8, link=1e9,
                                   servers=2),
    "multi.pipeline_parallel": call(hw.multi.pipeline_parallel, stages=[1.0, 2.0], microbatches=8, interleaved=1,
                                    copy_seconds=0.1),
    "multi.tensor_parallel": call(hw.multi.tensor_parallel, step_seconds=1.0, activation_bytes=1e6, blocks=4, count=8,
                                  link=1e9, reductions=4),
    "multi.scaling": call(hw.multi.scaling, network="digits", device=CHIP, fabric=POD, counts=[1, 4], dtype="bf16",
                          batch=2, utilization=0.5, overlapped=0.5, input_shape=(1, 8, 8)),
    "offload_break_even": call(hw.systems.offload_break_even, device=CHIP, host=1e9, dtype="fp32", link=1e9),
    "operand": call(hw.operand, format="int8"),
    "overhead": call(hw.overhead, instruction="hmma", relative_to="math", overhead_pj=30.0),
    "overlap": call(hw.systems.overlap, stages=[1.0, 2.0], prefetch=True),
    "pipeline": call(hw.systems.pipeline, step=0.05, read=(0.02, 0.03), decode=0.1, copy=0.01, workers=2, prefetch=2,
                     storage=2, files=1, open_seconds=0.01, pinned=True, staging=0.1, metrics=0.01, log=(5, 0.1),
                     checkpoint=(7, 0.1), steps=10),
    "possible": call(hw.possible, operations=1e9, traffic=1e6, timings={"a": 1.0}, devices=[CHIP], dtype="fp32"),
    "precision_ratio": call(hw.precision_ratio, narrow="5 TFLOPS", wide="10 TFLOPS"),
    "product_dtype": call(hw.product_dtype, device=CHIP, weights="int8", activations="int8"),
    "product_work": call(hw.systems.product_work, m=4, n=5, k=6, dtype="fp32"),
    "quantity": call(hw.quantity, value="1 s", kind="s", name="time"),
    "ranked": call(lambda a, b, by: hw.ranked(a, b, by=by), a="int4", b="int8", by="energy"),
    "ratio": call(hw.ratio, a="2 s", b="1 s"),
    "read_yaml": call(lambda paths: hw.mapper.read_yaml(paths), paths="never/there.yaml"),
    "roofline": call(hw.roofline, network="digits", device=CHIP, dtype="fp16", format="int8", batch=1,
                     input_shape=(1, 8, 8), sparse=False, kv_cache=None),
    "search, of a network": call(hw.search, network="digits", machine=MACHINE, objective="edp", batch=1,
                                 format="int8", input_shape=(1, 8, 8), budget=12, seed=0),
    "search": call(hw.mapper.search, problem=PROBLEM, arch=ARCH, objective="edp", budget=10, seed=0, threads=None,
                   dataflow=None, method="auto", progress=False),
    "systolic.gemm": call(hw.systolic.gemm, M=8, N=4, K=8, rows=4, columns=4, dataflow="ws", sram_words=(10, 10, 10)),
    "systolic.conv": call(hw.systolic.conv, C=3, H=8, W=8, K=4, R=3, S=3, stride=1, padding=1, batch=1, rows=4,
                          columns=4, dataflow="ws", sram_words=100),
    "systolic.simulate": call(hw.systolic.simulate, a=[[1, 2], [3, 4]], b=[[5, 6], [7, 8]], rows=2, columns=2,
                              dataflow="ws"),
    "throughput": call(hw.throughput, count=10.0, work="1000 op", time="1 s"),
    "tpp": call(hw.systems.tpp, device=CHIP, io_gb_s=600.0),
    "training_flops": call(hw.systems.training_flops, parameters=1e9, tokens=1e9),
    "training_time": call(hw.systems.training_time, parameters=1e9, tokens=1e9, device=CHIP, count=8, utilization=0.4,
                          dtype="bf16", recompute=False),
    "utilization": call(hw.systems.utilization, blocks=100, device=CHIP, threads=256, registers=32, shared=1000,
                        tensor_share=0.5, busy_share=0.5, sms=10),
    "write_yaml": call(lambda **given: hw.mapper.write_yaml("never/there.toml", **given), problem=PROBLEM, arch=ARCH),
    **shapes(hw.layers.Conv2d(3, 4, 3), (3, 8, 8)),
    **shapes(hw.layers.Linear(8, 4), (5, 8)),
    **shapes(hw.layers.MaxPool2d(3, 2), (3, 8, 8)),
    **shapes(hw.layers.AdaptiveAvgPool2d(2), (3, 8, 8)),
    **shapes(hw.layers.BatchNorm2d(3), (3, 8, 8)),
    **shapes(hw.layers.LayerNorm(8), (5, 8)),
    **shapes(hw.layers.Embedding(16, 8), (5,)),
    **shapes(hw.layers.AddTable(16, 8), (5, 8)),
    **shapes(hw.layers.Scores(2), (5, 8), (5, 8)),
    **shapes(hw.layers.Context(2), (2, 5, 5), (5, 8)),
    **shapes(hw.layers.MatMul(), (5, 8), (8, 4)),
    **shapes(hw.layers.Add(), (5, 8), (5, 8)),
    **shapes(hw.layers.Multiply(), (5, 8), (5, 1)),
    **shapes(hw.layers.Concat(), (5, 8), (4, 8)),
    **shapes(hw.layers.Flatten(), (5, 8)),
    **shapes(hw.layers.Select(), (5, 8)),
}  # fmt: skip
