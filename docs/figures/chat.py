"""Draw docs/site/static/chat.svg: a session of `heterocompute chat` in a terminal, recorded from the command itself.

python docs/figures/chat.py SmolLM2-135M-Instruct.Q4_1.gguf
"""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text
from runner import DOCS, options

QUESTIONS = ("What is the capital of France?", "/exit")
OPTIONS = ["--format", "vsq4-g16-s4", "--activations", "int8", "--against", "stored"]
WIDTH = 96
INK = "#767676"  # 4.5 : 1 on white, 4.2 : 1 on GitHub's dark page


def session(model: Path) -> str:
    """Run the command in a pseudoterminal, answer each prompt with the next line, and return what it wrote."""
    parent, child = pty.openpty()
    command = [sys.executable, "-m", "heterocompute", "chat", str(model), *OPTIONS]
    environment = {**os.environ, "COLUMNS": str(WIDTH), "TERM": "dumb", "NO_COLOR": "1"}
    running = subprocess.Popen(command, stdin=child, stdout=child, stderr=child, env=environment)
    os.close(child)
    said, left, quiet = "", list(QUESTIONS), time.monotonic()
    while running.poll() is None or select.select([parent], [], [], 0)[0]:
        if select.select([parent], [], [], 0.5)[0]:
            try:
                said += os.read(parent, 1 << 16).decode(errors="replace")
            except OSError:  # the command has ended
                break
            quiet = time.monotonic()
        elif said.endswith("> ") and left and time.monotonic() - quiet > 0.4:
            os.write(parent, f"{left.pop(0)}\n".encode())
    said = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", said).replace("\r\n", "\n").replace("\r", "\n")
    kept = [line for line in said.split("\n") if not re.search(r"\.gguf: +\d+%", line)]  # without progress
    return "\n".join(kept).strip()


def of_any_page(svg: str) -> str:
    """Return the picture without a window: letters that light and dark pages show, and no font of another host."""
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<circle [^>]*/>", "", svg).replace("#292929", "none")
    svg = re.sub(r"#[0-9a-f]{6}", INK, svg)
    width = float(svg.split('viewBox="0 0 ')[1].split()[0])
    return svg.replace("<svg ", f'<svg width="{width:g}" ', 1)


def main() -> None:
    """Record and draw."""
    parser = options(__doc__)
    parser.add_argument("model", type=Path)
    model = parser.parse_args().model
    said = session(model)
    console = Console(record=True, width=WIDTH, file=open(os.devnull, "w"))
    console.print(Text(f"$ heterocompute chat {model.name} {' '.join(OPTIONS)}", style="bold"))
    for line in said.rstrip().split("\n"):
        console.print(Text(line, style="bold" if line.startswith("> ") else ""))
    svg = console.export_svg(title="heterocompute chat")
    (DOCS / "site/static/chat.svg").write_text(of_any_page(svg), encoding="utf-8")
    print(said)


if __name__ == "__main__":
    main()
