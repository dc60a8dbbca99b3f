"""Write docs/hardware-roofline.svg: networks under the roof of an H100. python docs/figures/hardware_rooflines.py"""

from __future__ import annotations

from runner import DOCS

from heterocompute import hardware as hw
from heterocompute.report.roofline import roofline_svg

PICTURE = DOCS / "hardware-roofline.svg"
DEVICE, DTYPE = "h100-sxm", "fp16"
# Label, network, tokens in the cache, batch, format of the weights.
POINTS = [
    ("llama_7b, a token, int4-g128-f16", "llama_7b", 1024, 1, "int4-g128-f16"),
    ("llama_7b, a token", "llama_7b", 1024, 1, None),
    ("llama_7b, 64 tokens at once", "llama_7b", 0, 64, None),
    ("resnet50, batch 1", "resnet50", None, 1, None),
    ("resnet50, batch 256", "resnet50", None, 256, None),
    ("bert_base, batch 1", "bert_base", None, 1, None),
    ("bert_base, batch 64", "bert_base", None, 64, None),
]
WIDTH, HEIGHT = 760, 380


def picture() -> str:
    """Return the picture."""
    chip = hw.device(DEVICE)
    layers = []
    for label, name, context, batch, fmt in POINTS:
        network = hw.networks[name] if context is None else hw.networks[name].decoding(context)
        found = hw.roofline(network, chip, DTYPE, fmt, batch)
        layers.append({"name": label, **{key: getattr(found, key) for key in KEYS}})
    roof = {"dtype": DTYPE, "peak": chip.peak(DTYPE), "bandwidth": chip.need("bandwidth"), "layers": layers}
    return roofline_svg(roof, WIDTH, HEIGHT, "Networks under the roof of an H100 SXM, fp16") + "\n"


KEYS = ("intensity", "operations", "seconds", "bound")


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
