"""Print the code of README.md as one shell script, from top to bottom.

python tests/house/readme.py [--installed] > readme.sh     # --installed: without the first block, which installs
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "README.md"
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def script(installed: bool) -> str:
    """Return the script; each Python block is a separate program in the same folder."""
    blocks = [(language, code) for language, code in BLOCK.findall(README.read_text(encoding="utf-8"))]
    first, *rest = blocks
    assert first[0] == "sh" and "pip install" in first[1], "README.md begins with how to install"
    lines = [] if installed else [first[1]]
    lines += [code if language == "sh" else f"python - <<'PYTHON'\n{code}PYTHON\n" for language, code in rest]
    return "".join(lines)


if __name__ == "__main__":
    print(script("--installed" in sys.argv), end="")
