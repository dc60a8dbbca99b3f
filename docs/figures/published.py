"""Write docs/published.md, the page of published results: python docs/figures/published.py"""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

from heterocompute import hardware as hw
from heterocompute.hardware.ledger.figure import KINDS, STATUSES, PublishedFigure, as_written, headline
from heterocompute.report.numbers import four_digits

PAGE = Path(__file__).resolve().parents[1] / "published.md"
INTRODUCTION = """# Published results

How far can you trust the hardware models? This page compares every modelled quantity with the value that a paper, data
sheet or lecture printed. `hw.published()` returns the records, and `heterocompute reproduce` computes them on your
machine in under a minute. For checks without a published source see [worked examples](hardware-examples.md).

```sh
heterocompute reproduce                             # every result, with counts by status
heterocompute reproduce eyeriss --html eyeriss.html # one machine, source or subject, as a page with a plot
heterocompute reproduce tpu_v1 --save before.json   # hw.results.Reproduction.load reads it, a - b compares
heterocompute reproduce off --json                  # the results that the model misses, each with its reason
```

```python
from heterocompute import hardware as hw

figure = hw.published("eyeriss-isca-2016/dataflows-conv")[0]
{name: round(row["modelled"], 2) for name, row in figure.rows.items()}
# {'ws': 1.47, 'os-a': 2.47, 'os-b': 1.62, 'os-c': 2.41, 'nlr': 2.46}
figure.printed["ws"], figure.status     # ('1.4 to 2.5', 'reproduced')
```

## A paper's table on your network

```sh
heterocompute reproduce vs-quant --model digits                                     # a network shipped with the package
heterocompute reproduce vs-quant --model model.onnx --data x.npy --labels y.npy     # your network, with its accuracy
heterocompute reproduce mx --model model.safetensors                                # only weights: their error
heterocompute reproduce eyeriss --model resnet18                                    # an accelerator, layer by layer
```

| name | table | measured | modelled |
|---|---|---|---|
| `vs-quant` | bits of weights and activations, vector size, bits of a scale | accuracy | energy, area of a product |
| `mx` | microscaling formats and NVFP4, weights and activations | accuracy | energy, area of a product |
| `gptq` | rounding to nearest and GPTQ at 4, 3 and 2 bits | accuracy, error of the layers' outputs | |
| `nm-sparsity` | N:M patterns, alone and with integers | accuracy, bytes | multiply-adds, energy |
| `deep-compression` | pruning, shared values, entropy | accuracy, bytes | |
| `eyeriss`, `tpu-v1` | layers on the machine | | time, energy, DRAM |
| `mixed-precision-memory` | types, optimizers, recomputation | | memory of training |

`--html` writes a page with the table and the published results of the paper with their status. Networks are not
retrained. So accuracies at few bits and low densities are below those of papers that retrain.

## The rule

**{headline}.** A result is reproduced if its deviation is within a limit. The limit is the *larger* of two numbers,
never their sum. The first is the stated error of the model for that kind of quantity. The second is the rounding of the
print: half a unit of the last digit, and at most 10 % of the value. A range has no rounding. No result has a limit of
its own.

{kinds}

{statuses}

- A claim in words, such as "about two thirds", has no limit. The number next to the words is ours, and the verdict is a
  sentence with the model's number.
- A deviation below 5 % is printed in per cent.
- The deviation from a range is the deviation from its nearer end. Shares are compared in points.
- A result with several rows has the status of its worst row.
- `figure.machine` names the machine and the configuration that the model evaluates, or the formula.
- Each result is a row of a TOML file in `heterocompute/hardware/ledger/sources/`. Its `model` names a function of
  `ledger/models/`, and `takes` lists the inputs that this function takes from the source.
- Energy scales with the square of the voltage, so each record names its voltage. It also scales with the name of a
  node. From 28 to 7 nm this law gives a factor of 6.6. TSMC's two steps give 8.3, the lectures 1.5 to 2. See
  [processes](#processes) and [chips](#chips).
- The model of VS-Quant's test chip is 2.8 to 3.8 times too good at the voltage of each measurement. Clock, control and
  leakage are not modelled, and gates do not shrink by the square of a node's name.

"""


def kinds() -> str:
    """Return the kinds of quantities and their stated errors as Markdown."""
    lines = ["| kind | stated error | why |", "|---|---|---|"]
    for kind, (error, why) in KINDS.items():
        said = {0.0: "equal", math.inf: "no limit"}.get(
            error, f"{100 * error:g} {'points' if kind == 'share' else '%'}"
        )
        lines.append(f"| {kind} | {said} | {why} |")
    return "\n".join(lines)


def statuses(counts: Counter[str]) -> str:
    """Return the statuses with their counts and definitions as Markdown."""
    lines = ["| status | results | meaning |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {status} | {counts[status]} | {said} |" for status, said in STATUSES.items())])


def number(value: float) -> str:
    """Return a number with four digits, or all digits of an integer."""
    return f"{value:,.0f}" if abs(value) >= 1e5 and value == round(value) else four_digits(value)


def line(one: PublishedFigure) -> str:
    """Return a published result as a row of a table."""
    names = [f"{name} " if name else "" for name in one.printed]
    printed = ", ".join(name + as_written(text) for name, text in zip(names, one.printed.values(), strict=True))
    here = ", ".join(f"{name} {number(row['modelled'])}".strip() for name, row in one.rows.items()) or "-"
    conditions = ", ".join(filter(None, (one.version, one.where, f"{one.voltage:g} V" if one.voltage else "")))
    source = f"{one.source} ({conditions})" if conditions else one.source
    cells = [one.claim, printed, here, one.verdict, one.machine, source]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def page() -> str:
    """Return the page."""
    every = hw.published()
    count = Counter(one.status for one in every)
    text = INTRODUCTION.replace("{kinds}", kinds()).replace("{statuses}", statuses(count))
    text = text.replace("{headline}", headline(count))
    lines = [text.rstrip()]
    for topic in sorted({one.topic for one in every}):
        lines += ["", f"## {topic}", "", "| claim | published | here | status | machine | source |", "|---" * 6 + "|"]
        lines += [line(one) for one in every if one.topic == topic]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
