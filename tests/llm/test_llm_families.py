"""The table of families in the documentation is that of the records, and every record that runs has a small model."""

from __future__ import annotations

from pathlib import Path

import made

from heterocompute.families.record import Family
from heterocompute.families.table import RUN, RUN_KINDS

PAGE = Path(__file__).parents[2] / "docs" / "llm.md"
HEAD = "| Hugging Face `model_type` | GGUF `general.architecture` | block |"


def block_of(family: Family) -> str:
    """Return what differs from the block of Llama."""
    experts = [kind.experts for kind in family.kinds if kind.experts is not None]
    parts = {
        "latents": family.is_latent,
        "layer norms": family.centered,
        "norms after": family.post_norms and not family.pre_norms,
        "norms before and after": family.post_norms and family.pre_norms,
        "norms of queries and keys": bool(family.qk_norm),
        "parallel parts": family.parallel == "always",
        "parallel parts by a flag": family.parallel not in ("", "always"),
        "no gate": not family.is_gated,
        family.activation.replace("gelu_erf", "exact gelu"): family.activation != "silu",
        "fused matrices": bool(family.fused),
        "learned positions": family.learned_positions,
        "layers without RoPE": bool(family.unrotated),
        "partial RoPE": family.share < 1,
        "windows": any(kind.windows is not None for kind in family.kinds),
        "caps": bool(family.caps),
        "sinks": family.sinks,
        "factors": any(kind.factors for kind in family.kinds),
        "experts": bool(experts),
        "shared experts": any(one.shared for one in experts),
        "sigmoid router": any(one.router == "sigmoid" for one in experts),
    }
    return ", ".join(name for name, has in parts.items() if has) or "that of Llama"


def rows() -> list[str]:
    found = []
    for family in RUN.values():
        kinds = ", ".join(f"`{kind.name}`" for kind in family.kinds)
        found.append(f"| {kinds} | {f'`{family.name}`' if family.in_gguf else ''} | {block_of(family)} |")
    return found


def test_the_page_lists_the_families_of_the_records() -> None:
    wanted = "\n".join([HEAD, "|---|---|---|", *rows()])
    assert wanted in PAGE.read_text(), f"replace the table of {PAGE.name} by\n{wanted}"


def test_every_family_that_runs_has_a_small_model() -> None:
    assert {*RUN_KINDS} - {*made.FAMILIES} == {"gemma3_text"}  # the model of gemma3
