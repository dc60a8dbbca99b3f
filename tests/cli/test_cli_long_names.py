"""Messages quote only a part of very long words of a command line."""

from __future__ import annotations

import pytest
from common import run


@pytest.mark.parametrize("words", [["{}"], ["study", "digits", "{}"], ["count", "{}"], ["study", "--formats", "{}"]])
def test_a_long_word_is_quoted_in_part(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code, _, said = run(capsys, *(word.format("x" * 50_000) for word in words))
    assert code in (1, 2) and "x" * 81 not in said and "xxx" in said
