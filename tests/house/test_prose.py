"""Pages are written in plain English: words of the field, short sentences.

What a script can check of how pages are written: words that have a plainer one, and long sentences. Code, tables and
headings are left out. `OLD` are pages that were not rewritten yet; one that passes must leave the list.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from sources import PY_FILES, name, report

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "notebooks/README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [page for page in PAGES if "reference" not in page.parts]
OLD: set[str] = set()
#: Words to avoid, and their replacements.
WORDS = {
    r"anew": "again, repeated",
    r"by turns": "interleaved",
    r"peers?": "other libraries",
    r"shall": "should",
    r"hangs? on": "depends on",
    r"but for": "except",
    r"somebody|stranger": "the user, another program",
    r"made (data|networks?|models?)": "synthetic",
    r"rounding by chance": "stochastic rounding",
    r"is none of|are none of": "is not, does not apply",
    r"a good (part|deal)": "much, most",
    r"goes? by|goes? to": "uses, is in",
    r"the same bits": "bitwise identical results",
    r"what is kept": "nonzeros",
}
MOST_WORDS = 40  # of a sentence; the aim is 17 on average and 30 at most
LONG, LONG_SHARE = 30, 0.04  # of the sentences of all pages at most this share is longer; colons do not end them


def sentences(page: Path, ends: str = ".!?:;") -> list[str]:
    """Return the sentences of a page's paragraphs and lists, without code, tables, headings and links' targets."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"<!--.*?-->|<[^>]+>", "", text, flags=re.DOTALL)
    text = re.sub(r"^\s*(\||#|!\[).*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"`[^`\n]*`", "X", text)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    found = []
    for block in re.split(r"\n\s*\n|\n\s*[-*]\s|\n\s*\d+\.\s", text):
        found += re.split(rf"(?<=[{ends}])\s+(?=[A-Z\[`*0-9])", " ".join(block.split()))
    return [sentence for sentence in found if sentence]


def flaws(page: Path) -> list[str]:
    """Return the faults of a page."""
    found = []
    for sentence in sentences(page):
        for word, better in WORDS.items():
            if re.search(rf"\b({word})\b", sentence, re.IGNORECASE):
                found.append(f"{word!r}, better {better!r}: {sentence}")
        if len(sentence.split()) > MOST_WORDS:
            found.append(f"{len(sentence.split())} words: {sentence}")
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_is_written_plainly(page: Path) -> None:
    name, found = page.relative_to(ROOT).as_posix(), flaws(page)
    if name in OLD:
        assert found, f"{name} is written plainly: take it out of OLD"
    else:
        assert not found, "\n".join([name, *found])


def test_few_sentences_are_long() -> None:
    found = {page.relative_to(ROOT).as_posix(): sentences(page, ".!?") for page in PAGES}
    long = [(name, one) for name, texts in found.items() for one in texts if len(one.split()) > LONG]
    share = len(long) / sum(map(len, found.values()))
    listed = "\n".join(f"{name}: {one}" for name, one in long)
    assert share <= LONG_SHARE, f"{share:.1%} of the sentences have more than {LONG} words:\n{listed}"


def test_bits_per_value_have_one_name() -> None:
    others = re.compile(r"\bbits (a value|(a|per) (weight|number|parameter))\b|\bbits/(value|weight)\b", re.IGNORECASE)
    pictures = [
        *(ROOT / "docs").rglob("*.svg"),
        *(ROOT / "docs/figures").rglob("*.py"),
        *(ROOT / "notebooks").glob("*.ipynb"),
    ]
    sources = [*PAGES, *PY_FILES, *pictures, *(ROOT / "heterocompute").rglob("*.js")]
    found = [f"{name(path)}: {one[0]}" for path in sources if (one := others.search(path.read_text(encoding="utf-8")))]
    report("stored bits are called 'bits per value'", found)


@pytest.mark.sweep(every=0)
def test_docstrings_begin_with_a_verb_or_a_noun() -> None:
    found = []
    for path in PY_FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = ast.get_docstring(node) or ""
                found += [f"{name(path)}: {text[:60]}"] if re.match(r"(What|Whether|How)\b", text) else []
    report("a docstring begins with a verb, or with the noun of its object", found)


def test_the_check_finds_what_it_looks_for(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("It is made anew.\n\n" + "word " * 41 + "end.\n\n```\nanew\n```\n| anew |\n\nA short one.\n")
    assert len(flaws(page)) == 2
    page.write_text("One: two three. Four.\n\n- Five\n")
    assert sentences(page, ".!?") == ["One: two three.", "Four.", "- Five"]
