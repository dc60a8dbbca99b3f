"""The PTX that nvcc makes of the kernels runs on the host; faults of the source and of the flags show in that run."""

from __future__ import annotations

import ctypes
import os
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import compiled
import driven
import emulated
import numpy as np
import pytest
import test_cuda_host
from ptx import executed
from test_cuda_layouts import aligned

from heterocompute.bench.cuda.instructions import (
    ANSWERS,
    PARTS,
    PRODUCTS,
    answers_of,
    products_of,
    random_sides,
    random_words,
)

SOURCES = emulated.ROOT / "csrc/cuda"
CHECKS = [SOURCES / "check/check.cu", SOURCES / "check/check_90a.cu"]
Use = Callable[[Path], None]


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Use:
    """Return a function by which all launches of a test use a library."""

    def change(library: Path) -> None:
        loaded = emulated.opened(library)
        monkeypatch.setattr(emulated, "kernels", lambda: loaded)
        monkeypatch.setattr(emulated, "load", lambda *_: loaded)

    return change


def wrong_instructions(seed: int = 0) -> list[str]:
    """Return the parts of hc_check_instructions that differ from their definitions."""
    words = aligned(random_words(np.random.default_rng(seed)))
    answers, wanted = np.zeros((ANSWERS, 32), np.uint32), answers_of(words)
    emulated.check(words, answers)
    return [name for name, part in PARTS.items() if (answers[part] != wanted[part]).any()]


def wrong_warpgroup() -> list[str]:
    """Return the name of the product of a warpgroup if it is not exact."""
    sides = aligned(random_sides(np.random.default_rng(0)))
    answers = np.zeros(PRODUCTS, np.int32)
    emulated.check(sides, answers, of_warpgroups=True)
    return [] if (answers == products_of(sides)).all() else ["product of a warpgroup"]


@pytest.mark.parametrize("virtual", ["80", "100"])
@pytest.mark.sweep(every=2)
def test_compiled_instructions_do_what_their_definitions_say(virtual: str, use: Use) -> None:
    use(compiled.kernels(CHECKS, virtual))
    assert [wrong_instructions(seed) for seed in range(3)] == [[]] * 3
    assert wrong_warpgroup() == []


DEVICE, WGMMA, CHECK, CHECK_90A = "device.h", "matmul/wgmma.h", "check/check.cu", "check/check_90a.cu"
FAULTS = [  # a file, its text, what replaces the text, what the run says
    (
        DEVICE,
        "s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6",
        "s8.s8.s32 {%0, %1, %2, %3}, {%4, %6, %5",
        "mma of signed bytes",
    ),
    (DEVICE, '"+r"(c[0]), "+r"(c[1])', '"=r"(c[0]), "+r"(c[1])', "reads a register that nothing wrote"),
    (DEVICE, "%12, 0x0;", "%12, 0x1;", "unknown form"),
    (DEVICE, "{%8, %9, %10, %11}", "{%8, %10, %9, %11}", "sparse mma"),
    (DEVICE, "b16 {%0, %1, %2, %3}, [%4];", "b16 {%0, %2, %1, %3}, [%4];", "ldmatrix"),
    (
        DEVICE,
        '"r"(to), "l"(global) : "memory"',
        '"r"(to + 16), "l"(global) : "memory"',
        "of shared memory, which another thread",
    ),
    (DEVICE, "is_valid ? 16 : 0", "is_valid ? 0 : 16", "asynchronous copy or zeros"),
    (DEVICE, "is_valid ? 16 : 0", "is_valid ? 8 : 0", "copies 8 bytes, expected 0 or 16"),
    (DEVICE, "cp.async.commit_group;", "", "ends with copies that nothing waited for"),
    (DEVICE, '"n"(N)', '"n"(N + 1)', "ends with copies that nothing waited for"),
    (DEVICE, "{ __syncthreads(); }", "{}", "of shared memory, which another thread wrote"),
    (DEVICE, "0x6a;", "0x6c;", "and, xor"),
    (DEVICE, '"h"(half)', '"h"((uint16_t)(half ^ 1))', "float16 to float32"),
    (DEVICE, "__byte_perm(a, b, which)", "__byte_perm(b, a, which)", "permutation of bytes"),
    (
        DEVICE,
        "__shfl_xor_sync(0xffffffffu, value, mask)",
        "__shfl_down_sync(~0u, value, mask)",
        "unknown instruction: shfl.sync.down",
    ),
    (
        CHECK,
        "hc_load_matrix_x4(loaded, shared + lane * 4)",
        "hc_load_matrix_x4(loaded, shared + lane * 4 + 1)",
        "which is not aligned",
    ),
    (CHECK, "p.in + 13 * 32 + lane * 4", "p.in + 13 * 32 + lane * 4 + 1", "copies 16 bytes that are not aligned"),
    (
        CHECK,
        "hc_mma_bf16(four, left, right);",
        "if (lane < 16) hc_mma_bf16(four, left, right);",
        "16 at a collective of their warp",
    ),
    (WGMMA, '"}, %64, %65, p;', '"}, %65, %64, p;', "product of a warpgroup"),
    (WGMMA, '"%0, %1, %2, %3, %4', '"%0, %2, %1, %3, %4', "product of a warpgroup"),
    (WGMMA, "setp.ne.b32 p", "setp.eq.b32 p", "product of a warpgroup"),
    (WGMMA, "fence.proxy.async.shared::cta;", "", "multiplies shared memory that no fence followed"),
    (WGMMA, "wgmma.fence.sync.aligned;", "", "multiplies before a fence of its registers"),
    (WGMMA, "wgmma.wait_group.sync.aligned %0;", "// %0", "touches a sum of products before it waited"),
    (WGMMA, '", " PLACES ", 0, 1;', '", " PLACES ", 0, 0;', "unknown form"),
    (WGMMA, '"l"(a), "l"(b), "r"(places)', '"l"(b), "l"(a), "r"(places)', "multiplies what lies beyond"),
    (WGMMA, "(uint64_t)2 << 62", "(uint64_t)3 << 62", "a descriptor of another layout"),
    (WGMMA, "(uint64_t)1 << 62", "(uint64_t)1 << 61", "a descriptor of another layout"),
    (CHECK_90A, "hc_barrier();", "", "multiplies shared memory that no barrier followed"),
]


@pytest.mark.sweep(every=12)
@pytest.mark.parametrize(("file", "text", "other", "said"), FAULTS)
def test_a_fault_of_the_source_shows(file: str, text: str, other: str, said: str, use: Use, tmp_path: Path) -> None:
    source = (SOURCES / file).read_text()
    assert text in source
    changed = tmp_path / "cuda" / file
    changed.parent.mkdir(parents=True)
    changed.write_text(source.replace(text, other, 1))
    is_of_warpgroups = file in (WGMMA, CHECK_90A)
    kernel = changed if file in (CHECK, CHECK_90A) else CHECKS[is_of_warpgroups]
    compiled.write_ptx([kernel], tmp_path, [f"-I{tmp_path}", *compiled.flags()])
    use(compiled.copy_interpreter(tmp_path))
    try:
        found = ", ".join(wrong_warpgroup() if is_of_warpgroups else wrong_instructions())
    except AssertionError as fault:
        found = str(fault)
    assert said in found


@pytest.mark.sweep(every=0)
@pytest.mark.parametrize(
    ("flag", "other", "said"),
    [
        ("-fmad=false", "-fmad=true", "unknown instruction: (mul|add).f32"),
        ("-ftz=false", "-ftz=true", r"unknown instruction: \w+.rn.ftz.f32"),
        ("-prec-div=true", "-prec-div=false", "unknown instruction: div.full.f32"),
        ("-prec-sqrt=true", "-prec-sqrt=false", "unknown instruction: sqrt.approx"),
    ],
)
def test_a_flag_that_changes_bits_shows(flag: str, other: str, said: str, use: Use, tmp_path: Path) -> None:
    assert flag in compiled.flags()
    compiled.write_ptx(CHECKS[:1], tmp_path, [other if one == flag else one for one in compiled.flags()])
    use(compiled.copy_interpreter(tmp_path))
    with pytest.raises(AssertionError, match=said):
        wrong_instructions()


def words_of(ptx: str) -> list[str]:
    """Return PTX without comments, word by word."""
    return re.sub(r"//[^\n]*", "", ptx).split()


@pytest.mark.sweep(every=0)
def test_a_fatbin_holds_the_ptx_that_runs(tmp_path: Path) -> None:
    compiled.write_ptx(CHECKS[:1], tmp_path)
    plain = ["--no-compress" if flag.startswith("--compress") else flag for flag in compiled.flags()]
    command = [compiled.find_nvcc(), "-fatbin", *plain, str(CHECKS[0]), "-o", f"{tmp_path}/check.fatbin"]
    for virtual, real in compiled.build()["CODE"].items():
        command += ["-gencode", f"arch=compute_{virtual},code={real}"]
    subprocess.run(command, cwd=emulated.ROOT, check=True)
    image = (tmp_path / "check.fatbin").read_bytes()
    held = image[image.index(b".version") :].split(b"\0")[0].decode()
    assert words_of(held) == words_of((tmp_path / "check.ptx").read_text())


EARLIER = [  # what the interpreter says of a fault before the host build does
    "touches 1 bytes at 64 of 64 bytes of shared memory",
    "touches a sum of products before it waited",
    "since the last barrier",
]


@pytest.mark.sweep(every=0)
def test_faults_of_the_host_build_show_in_compiled_kernels(use: Use, tmp_path: Path) -> None:
    compiled.write_ptx([emulated.HOST.with_name("faults.cu")], tmp_path)
    use(compiled.copy_interpreter(tmp_path))
    (cases,) = test_cuda_host.test_a_fault_is_a_sentence.pytestmark  # type: ignore[attr-defined]
    for kernel, threads, shared, sentence in cases.args[1]:
        found = test_cuda_host.launch(kernel, threads, shared)[0]
        assert any(text in found for text in (sentence, *EARLIER)), kernel
    for order in range(3):
        assert "since the last barrier" in test_cuda_host.launch("races", order=order)[0]
        test_cuda_host.test_a_sound_kernel_gives_the_same_in_every_order(order)


NAN, INFINITY = 0x7FC00000, 0x7F800000
BODIES = [  # PTX that leaves a result in %rd0, and the result
    ("mov.u32 %r1, 40; mov.u32 %r0, 7; shl.b32 %r0, %r0, %r1; cvt.u64.u32 %rd0, %r0;", 0),
    ("mov.u32 %r0, -8; shr.s32 %r0, %r0, 99; cvt.u64.u32 %rd0, %r0;", 0xFFFFFFFF),
    ("mov.u32 %r0, -8; shr.u32 %r0, %r0, 32; cvt.u64.u32 %rd0, %r0;", 0),
    ("mov.u32 %r0, 0x80402010; prmt.b32 %r0, %r0, 0xff, 0x4b90; cvt.u64.u32 %rd0, %r0;", 0xFFFF0010),
    ("mov.u64 %rd0, -1; bfi.b64 %rd0, 0, %rd0, 60, 9;", 0x0FFFFFFFFFFFFFFF),
    ("mov.u64 %rd0, 5; bfi.b64 %rd0, 9, %rd0, 64, 1;", 5),
    ("mov.u32 %r0, 0xff00; lop3.b32 %r0, %r0, 0xf0f0, 0xcccc, 0xea; cvt.u64.u32 %rd0, %r0;", 0xFCCC),
    ("mov.u32 %r0, 0x8000f0; bfe.s32 %r0, %r0, 4, 4; cvt.u64.u32 %rd0, %r0;", 0xFFFFFFFF),
    ("mov.u32 %r0, 0x800000f0; bfe.u32 %r0, %r0, 28, 9; cvt.u64.u32 %rd0, %r0;", 8),
    ("mov.u32 %r0, 0x800000f0; bfe.s32 %r0, %r0, 28, 9; cvt.u64.u32 %rd0, %r0;", 0xFFFFFFF8),
    ("mov.u32 %r0, 0x800000f0U; bfe.s32 %r0, %r0, 99, 9; cvt.u64.u32 %rd0, %r0;", 0xFFFFFFFF),
    ("mov.u64 %rd0, -3; mul.hi.u64 %rd0, %rd0, 5;", 4),
    ("mov.u64 %rd0, -3; mul.hi.s64 %rd0, %rd0, 5;", 2**64 - 1),
    ("mov.u32 %r0, -3; mul.wide.s32 %rd0, %r0, 5;", 2**64 - 15),
    ("mov.u32 %r0, -7; rem.s32 %r0, %r0, 3; cvt.s64.s32 %rd0, %r0;", 2**64 - 1),
    (f"mov.b32 %f0, {NAN}; cvt.rzi.s32.f32 %r0, %f0; cvt.u64.u32 %rd0, %r0;", 0),
    (f"mov.b32 %f0, {NAN}; cvt.rzi.s64.f32 %rd0, %f0;", 1 << 63),
    (f"mov.b32 %f0, {INFINITY}; cvt.rzi.s32.f32 %r0, %f0; cvt.u64.u32 %rd0, %r0;", 2**31 - 1),
    ("mov.f32 %f0, 0fC0200000; cvt.rni.s32.f32 %r0, %f0; cvt.s64.s32 %rd0, %r0;", 2**64 - 2),
    ("mov.f32 %f0, 0fBF800000; cvt.rzi.u32.f32 %r0, %f0; cvt.u64.u32 %rd0, %r0;", 0),
    ("mov.f32 %f0, 0f80000000; min.f32 %f0, 0f00000000, %f0; mov.b32 %r0, %f0; cvt.u64.u32 %rd0, %r0;", 1 << 31),
    ("mov.f32 %f0, 0f80000000; max.f32 %f0, %f0, 0f00000000; mov.b32 %r0, %f0; cvt.u64.u32 %rd0, %r0;", 0),
    (f"mov.b32 %f0, {NAN}; max.f32 %f0, %f0, 0f3F800000; mov.b32 %r0, %f0; cvt.u64.u32 %rd0, %r0;", 0x3F800000),
    (f"mov.b32 %f0, {NAN}; setp.leu.f32 %p0, %f0, %f0; selp.b64 %rd0, 3, 4, %p0;", 3),
    (f"mov.b32 %f0, {NAN}; setp.ne.f32 %p0, %f0, %f0; selp.b64 %rd0, 3, 4, %p0;", 4),
    ("mov.u16 %rs0, -2; cvt.s32.s8 %r0, %rs0; cvt.u64.u32 %rd0, %r0;", 0xFFFFFFFE),
    ("mov.u16 %rs0, 0x1234; mov.u16 %rs1, 0x5678; mov.b32 %r0, {%rs0, %rs1}; cvt.u64.u32 %rd0, %r0;", 0x56781234),
    ("mov.u32 %r0, 0x56781234; mov.b32 {%rs0, %rs1}, %r0; cvt.u64.u16 %rd0, %rs1;", 0x5678),
    ("mov.u64 %rd0, -1; cvt.rn.f32.u64 %f0, %rd0; mov.b32 %r0, %f0; cvt.u64.u32 %rd0, %r0;", 0x5F800000),
    ("mov.u64 %rd0, 9; mov.pred %p0, -1; @!%p0 mov.u64 %rd0, 8;", 9),
    ("{ .reg .b32 t; mov.u32 t, 6; cvt.u64.u32 %rd0, t; }", 6),
]
STOPS = [  # PTX, and why it ends the launch
    ("mov.u64 %rd0, %rd1;", "mov.u64 reads a register that nothing wrote"),
    ("div.s32 %r0, 5, 0;", "div.s32 divides by zero"),
    ("add.f32 %f0, 0f00000000, 0f00000000;", "unknown instruction: add.f32"),
    ("mov.u64 %rd1, 8; ld.global.u32 %r0, [%rd1];", "touches 4 bytes at 8, which no allocation holds"),
    (
        "mov.u32 %r0, hc_shared_bytes; ld.shared.v2.u32 {%r0, %r1}, [%r0+4];",
        "touches 8 bytes at 4, which is not aligned",
    ),
    ("mov.u32 %r0, 64; ld.shared.u8 %rs0, [%r0];", "touches 1 bytes at 64 of 64 bytes of shared memory"),
    ("mov.b64 %rd1, k_param_0; ld.param.u64 %rd0, [%rd1+8];", "touches 8 bytes at 8 of 8 bytes of parameters"),
    ("mov.u32 %r0, 0; shfl.sync.bfly.b32 %r0|%p0, %r0, 1, 15, -1;", "shfl.sync.bfly.b32 unknown form"),
    ("$L_0: bra.uni $L_0;", "bra.uni jumps without an end"),
    ("trap;", "trap is reached"),
]
ENTRY = """.version 9.0
.target sm_80
.address_size 64
.extern .shared .align 1024 .b8 hc_shared_bytes[];
.visible .entry k(
.param .align 8 .b8 k_param_0[8]
)
.maxntid 32, 1, 1
{{
.reg .pred %p<2>; .reg .b16 %rs<2>; .reg .b32 %r<2>; .reg .f32 %f<2>; .reg .b64 %rd<4>;
{body}
ld.param.u64 %rd3, [k_param_0]; st.global.u64 [%rd3], %rd0; ret;
}}
"""


def run_body(body: str, folder: Path) -> tuple[str, int]:
    """Return why PTX ends the launch of a thread, and its result."""
    folder.mkdir()
    (folder / "k.ptx").write_text(ENTRY.format(body=body.replace("; ", ";\n")))
    library = emulated.opened(compiled.copy_interpreter(folder))
    made = ctypes.c_uint64(0)
    params, one = struct.pack("Q", ctypes.addressof(made)), (ctypes.c_uint32 * 3)(1, 1, 1)
    fault = library.hc_cuda_host_launch(b"k", one, one, 64, params, len(params), 0)
    return (fault or b"").decode(), made.value


@pytest.mark.sweep(every=0)
def test_the_interpreter_does_what_the_isa_says(tmp_path: Path) -> None:
    compiled.find_nvcc()
    for number, (body, wanted) in enumerate(BODIES):
        assert run_body(body, tmp_path / str(number)) == ("", wanted), body
    for number, (body, sentence) in enumerate(STOPS):
        assert sentence in run_body(body, tmp_path / f"stops-{number}")[0], body


SUBJECTS = ["codec", "gemm", "conv", "layers", "patterns", "own"]
# other cases run the same kernels
NOT_HERE = "not ((rows_that_fit and float64) or (weights_that_stay_packed and tensor) or prepacked)"
UNUSED: dict[str, str] = {}  # kernels that no plan launches, and why they are there
# not in the sample of each run
BY_HAND = (
    "tiles_of_each_width or int16-int4-g32-f16 or (patterns_on_warpgroups and int8)"
    " or int8-int8+2:4 or 1-0-int8+2:4 or (pattern_kept and 1-9-128)"
)


def run_compiled(counts: Path, *words: str, **changed: str) -> None:
    """Run a module of Python that launches compiled kernels; add what they executed to a file."""
    whole = {
        name: value for name, value in os.environ.items() if name not in {"HETEROCOMPUTE_PART", "HETEROCOMPUTE_SWEEP"}
    }
    environment = {**whole, "HETEROCOMPUTE_TEST_PTX": "80", "PTX_COUNTS": str(counts), **changed}
    command = [sys.executable, "-m", *words]
    done = subprocess.run(command, env=environment, cwd=emulated.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


def ran(subject: str) -> Path:
    """Return the file of the kernels that a subject launched, in any process."""
    return compiled.kernels().parent / f"ran-{subject}"


@pytest.mark.sweep(every=0)
@pytest.mark.parametrize("subject", [*SUBJECTS, "conformance"])
def test_compiled_kernels_give_the_bits_of_the_cpu(subject: str, use: Use, tmp_path: Path) -> None:
    library, counts = compiled.kernels(), tmp_path / "counts"
    if subject == "conformance":
        use(library)
        paths = driven.environment()
        command = ["heterocompute", "bench", "cuda", "--check", "--quick"]
        run_compiled(counts, *command, FAKE_DRIVER_ARCHITECTURE="90", **paths)
    else:
        tests = f"tests/cuda/test_cuda_{subject}.py"
        run_compiled(counts, "pytest", "-q", "-p", "no:cacheprovider", "-k", NOT_HERE, tests)
    if subject == "gemm":
        run_compiled(counts, "pytest", "-q", "-p", "no:cacheprovider", "-m", "", "-k", BY_HAND, tests)
    ran(subject).write_text("\n".join({line.split()[0] for line in counts.read_text().splitlines()}))


# wavefronts of shared memory and sectors of global memory over the least, where they are more than 1.005 and 1.1
WAVEFRONTS = {
    "hc_gemm_24": 1.08,
    "hc_gemm_few_24": 1.75,
    "hc_gemm_90a_24": 1.13,
}  # positions: two of four words of each row are read
SECTORS = {
    **{
        "hc_gemm_few_s4": 1.9,
        "hc_gemm_few_24": 1.3,
        "hc_gemm_nibbles_128_folded": 1.6,
        "hc_gemm_90a_nibbles_folded": 1.2,
    },  # scales of groups
    **{"hc_gemm_nibbles": 2.9, "hc_gemm_90a_g": 1.2, "hc_gemm_s8_16_grouped": 1.9},
    **{"hc_gemm_24": 1.2, "hc_gemv_nf4": 1.7, "hc_gemv_ggml_b8": 1.8},  # y; rows of codes that whole groups step over
}


@pytest.mark.sweep(every=0)
def test_matmuls_have_no_bank_conflicts_and_read_whole_sectors(use: Use) -> None:
    loaded = executed.library()
    use(Path(loaded._name))
    emulated.kernels().ptx_write_counts.argtypes = emulated.kernels().ptx_write_traffic.argtypes = [ctypes.c_char_p]
    kernels = set()
    for call in executed.matmuls():
        _, sites = executed.counted(call.run)
        for kernel in {site.kernel for site in sites if site.kernel.startswith(executed.MATMULS)}:
            if kernel.startswith("hc_gemv") and not re.search(r"_b[48]_v[18]$", kernel):
                continue  # a thread decodes what has no words
            wavefronts, sectors = (
                next((most for name, most in limits.items() if kernel.startswith(name)), otherwise)
                for limits, otherwise in ((WAVEFRONTS, 1.005), (SECTORS, 1.1))
            )
            assert executed.over(kernel, "shared", sites) <= wavefronts, (kernel, call.name)
            assert executed.over(kernel, "global", sites) <= sectors, (kernel, call.name)
            kernels.add(kernel)
    assert len(kernels) > 25


@pytest.mark.sweep(every=0)
def test_every_kernel_runs_as_compiled_code() -> None:
    files = [ran(subject) for subject in (*SUBJECTS, "conformance")]
    if missing := [file.name for file in files if not file.exists()]:
        pytest.skip(f"{', '.join(missing)}: not yet, another process runs them")
    texts = [path.read_text() for path in compiled.kernels().parent.glob("*.ptx")]
    entries = {name for text in texts for name in re.findall(r"\.entry (\w+)", text)}
    assert entries - {name for file in files for name in file.read_text().split()} == set(UNUSED)
