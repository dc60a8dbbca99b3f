"""The built-in convolutional networks, as torchvision defines them unless stated otherwise."""

from __future__ import annotations

from .graph import Builder, Network
from .layers import BatchNorm2d, Conv2d, Linear
from .plain import Activation, AdaptiveAvgPool2d, Add, Concat, Flatten, MaxPool2d, Multiply

IMAGE = (3, 224, 224)


def alexnet() -> Network:
    """Return torchvision's AlexNet, "one weird trick": one group, 64 filters first."""
    net = Builder("alexnet", IMAGE)
    sizes = [(3, 64, 11, 4, 2), (64, 192, 5, 1, 2), (192, 384, 3, 1, 1), (384, 256, 3, 1, 1), (256, 256, 3, 1, 1)]
    for i, (channels, filters, kernel, stride, padding) in enumerate(sizes, 1):
        net.add(f"conv{i}", Conv2d(channels, filters, kernel, stride, padding))
        net.add(f"relu{i}", Activation())
        if i in (1, 2, 5):
            net.add(f"pool{i}", MaxPool2d(3, 2))
    net.add("avgpool", AdaptiveAvgPool2d(6))
    _classifier(net, 256 * 36, 4096)
    return net.build("torchvision; Krizhevsky 2014")


def alexnet_original() -> Network:
    """Return AlexNet as published: 227 x 227, two groups in layers 2, 4 and 5."""
    net = Builder("alexnet_original", (3, 227, 227))
    sizes = [(3, 96, 11, 4, 0, 1), (96, 256, 5, 1, 2, 2), (256, 384, 3, 1, 1, 1), (384, 384, 3, 1, 1, 2)]
    sizes.append((384, 256, 3, 1, 1, 2))
    for i, (channels, filters, kernel, stride, padding, groups) in enumerate(sizes, 1):
        net.add(f"conv{i}", Conv2d(channels, filters, kernel, stride, padding, groups=groups))
        net.add(f"relu{i}", Activation())
        if i in (1, 2, 5):
            net.add(f"pool{i}", MaxPool2d(3, 2))
    _classifier(net, 256 * 36, 4096)
    return net.build("Krizhevsky et al. 2012, two groups, 227 x 227; local response normalization not counted")


def vgg16() -> Network:
    """Return VGG-16, configuration D."""
    net = Builder("vgg16", IMAGE)
    channels = 3
    for block, (filters, count) in enumerate([(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)], 1):
        for i in range(1, count + 1):
            net.add(f"conv{block}_{i}", Conv2d(channels, filters, 3, padding=1))
            net.add(f"relu{block}_{i}", Activation())
            channels = filters
        net.add(f"pool{block}", MaxPool2d(2, 2))
    net.add("avgpool", AdaptiveAvgPool2d(7))
    _classifier(net, 512 * 49, 4096)
    return net.build("torchvision; Simonyan and Zisserman 2014")


def _classifier(net: Builder, features: int, width: int) -> None:
    net.add("flatten", Flatten())
    for i, (a, b) in enumerate([(features, width), (width, width), (width, 1000)], 6):
        net.add(f"fc{i}", Linear(a, b))
        if i < 8:
            net.add(f"relu{i}", Activation())


def _conv_norm(
    net: Builder, name: str, conv: Conv2d, source: str = "", act: str | None = "relu", functional: bool = False
) -> str:
    """Append a convolution, its normalization and, unless act is None, its activation."""
    net.add(f"{name}.conv", conv, *([source] if source else []))
    last = net.add(f"{name}.norm", BatchNorm2d(conv.out_channels))
    return last if act is None else net.add(f"{name}.{act}", Activation(act, functional))


def resnet(name: str, counts: tuple[int, int, int, int], bottleneck: bool) -> Network:
    """Return a ResNet; with bottlenecks it is v1.5, the stride in the 3 x 3 convolution."""
    net = Builder(name, IMAGE)
    _conv_norm(net, "stem", Conv2d(3, 64, 7, 2, 3, bias=False))
    source = net.add("pool", MaxPool2d(3, 2, 1))
    channels, growth = 64, 4 if bottleneck else 1
    for stage, (width, count) in enumerate(zip((64, 128, 256, 512), counts, strict=True), 1):
        for i in range(count):
            place, stride, out = f"layer{stage}.{i}", 2 if stage > 1 and i == 0 else 1, width * growth
            if bottleneck:
                _conv_norm(net, f"{place}.1", Conv2d(channels, width, 1, bias=False), source)
                _conv_norm(net, f"{place}.2", Conv2d(width, width, 3, stride, 1, bias=False))
                last = _conv_norm(net, f"{place}.3", Conv2d(width, out, 1, bias=False), act=None)
            else:
                _conv_norm(net, f"{place}.1", Conv2d(channels, width, 3, stride, 1, bias=False), source)
                last = _conv_norm(net, f"{place}.2", Conv2d(width, width, 3, 1, 1, bias=False), act=None)
            if stride > 1 or channels != out:
                short = Conv2d(channels, out, 1, stride, bias=False)
                source = _conv_norm(net, f"{place}.downsample", short, source, act=None)
            net.add(f"{place}.add", Add(), last, source)
            source = net.add(f"{place}.relu", Activation())
            channels = out
    net.add("avgpool", AdaptiveAvgPool2d(1))
    net.add("flatten", Flatten())
    net.add("fc", Linear(channels, 1000))
    return net.build("torchvision; He et al. 2015" + (", v1.5" if bottleneck else ""))


def googlenet() -> Network:
    """Return torchvision's GoogLeNet without its auxiliary classifiers: 3 x 3 in place of the paper's 5 x 5."""
    net = Builder("googlenet", IMAGE)

    def unit(name: str, a: int, b: int, kernel: int, source: str, stride: int = 1) -> str:
        return _conv_norm(net, name, Conv2d(a, b, kernel, stride, kernel // 2, bias=False), source, functional=True)

    unit("conv1", 3, 64, 7, "input", 2)
    last = net.add("pool1", MaxPool2d(3, 2, ceil_mode=True))
    last = unit("conv2", 64, 64, 1, last)
    unit("conv3", 64, 192, 3, last)
    last = net.add("pool2", MaxPool2d(3, 2, ceil_mode=True))
    # name, input channels, 1x1, (3x3 reduce, 3x3), (5x5 reduce, 5x5), pool projection
    table = [
        ("3a", 192, 64, 96, 128, 16, 32, 32), ("3b", 256, 128, 128, 192, 32, 96, 64),
        ("4a", 480, 192, 96, 208, 16, 48, 64), ("4b", 512, 160, 112, 224, 24, 64, 64),
        ("4c", 512, 128, 128, 256, 24, 64, 64), ("4d", 512, 112, 144, 288, 32, 64, 64),
        ("4e", 528, 256, 160, 320, 32, 128, 128), ("5a", 832, 256, 160, 320, 32, 128, 128),
        ("5b", 832, 384, 192, 384, 48, 128, 128),
    ]  # fmt: skip
    for name, channels, one, three_in, three, five_in, five, pool in table:
        a = unit(f"{name}.1", channels, one, 1, last)
        b = unit(f"{name}.2", three_in, three, 3, unit(f"{name}.2reduce", channels, three_in, 1, last))
        c = unit(f"{name}.3", five_in, five, 3, unit(f"{name}.3reduce", channels, five_in, 1, last))
        d = unit(f"{name}.4", channels, pool, 1, net.add(f"{name}.pool", MaxPool2d(3, 1, 1, ceil_mode=True), last))
        last = net.add(f"{name}.concat", Concat(), a, b, c, d)
        if name in ("3b", "4e"):
            kernel = 3 if name == "3b" else 2
            last = net.add(f"pool{name}", MaxPool2d(kernel, 2, ceil_mode=True))
    net.add("avgpool", AdaptiveAvgPool2d(1))
    net.add("flatten", Flatten())
    net.add("fc", Linear(1024, 1000))
    return net.build("torchvision, without auxiliary classifiers; Szegedy et al. 2014")


def mobilenet_v1() -> Network:
    """Return MobileNet (width 1.0): depthwise separable convolutions."""
    net = Builder("mobilenet_v1", IMAGE)
    _conv_norm(net, "stem", Conv2d(3, 32, 3, 2, 1, bias=False))
    channels = 32
    sizes = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]
    for i, (filters, stride) in enumerate(sizes):
        _conv_norm(net, f"{i}.depth", Conv2d(channels, channels, 3, stride, 1, groups=channels, bias=False))
        _conv_norm(net, f"{i}.point", Conv2d(channels, filters, 1, bias=False))
        channels = filters
    net.add("avgpool", AdaptiveAvgPool2d(1))
    net.add("flatten", Flatten())
    net.add("fc", Linear(1024, 1000))
    return net.build("Howard et al. 2017, width 1.0")


def mobilenet_v2() -> Network:
    """Return MobileNetV2 (width 1.0): inverted residuals with linear bottlenecks."""
    net = Builder("mobilenet_v2", IMAGE)
    source = _conv_norm(net, "stem", Conv2d(3, 32, 3, 2, 1, bias=False), act="relu6")
    channels, place = 32, 0
    for expand, filters, count, first in [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
                                          (6, 160, 3, 2), (6, 320, 1, 1)]:  # fmt: skip
        for i in range(count):
            name, stride, inside, begin = f"block{place}", first if i == 0 else 1, channels * expand, source
            if expand > 1:
                source = _conv_norm(net, f"{name}.expand", Conv2d(channels, inside, 1, bias=False), source, "relu6")
            depth = Conv2d(inside, inside, 3, stride, 1, groups=inside, bias=False)
            _conv_norm(net, f"{name}.depth", depth, source, "relu6")
            source = _conv_norm(net, f"{name}.project", Conv2d(inside, filters, 1, bias=False), act=None)
            if stride == 1 and channels == filters:
                source = net.add(f"{name}.add", Add(), begin, source)
            channels, place = filters, place + 1
    _conv_norm(net, "head", Conv2d(320, 1280, 1, bias=False), act="relu6")
    net.add("avgpool", AdaptiveAvgPool2d(1, functional=True))
    net.add("flatten", Flatten())
    net.add("fc", Linear(1280, 1000))
    return net.build("torchvision; Sandler et al. 2018, width 1.0")


def efficientnet_b0() -> Network:
    """Return EfficientNet-B0: inverted residuals with squeeze and excitation."""
    net = Builder("efficientnet_b0", IMAGE)
    source = _conv_norm(net, "stem", Conv2d(3, 32, 3, 2, 1, bias=False), act="silu")
    channels, place = 32, 0
    for expand, kernel, first, filters, count in [(1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2),
            (6, 3, 2, 80, 3), (6, 5, 1, 112, 3), (6, 5, 2, 192, 4), (6, 3, 1, 320, 1)]:  # fmt: skip
        for i in range(count):
            name, stride, inside, begin = f"block{place}", first if i == 0 else 1, channels * expand, source
            if expand > 1:
                source = _conv_norm(net, f"{name}.expand", Conv2d(channels, inside, 1, bias=False), source, "silu")
            depth = Conv2d(inside, inside, kernel, stride, kernel // 2, groups=inside, bias=False)
            wide = _conv_norm(net, f"{name}.depth", depth, source, "silu")
            net.add(f"{name}.se.pool", AdaptiveAvgPool2d(1))
            net.add(f"{name}.se.fc1", Conv2d(inside, channels // 4, 1))
            net.add(f"{name}.se.silu", Activation("silu"))
            net.add(f"{name}.se.fc2", Conv2d(channels // 4, inside, 1))
            gate = net.add(f"{name}.se.sigmoid", Activation("sigmoid"))
            net.add(f"{name}.se.multiply", Multiply(), wide, gate)
            source = _conv_norm(net, f"{name}.project", Conv2d(inside, filters, 1, bias=False), act=None)
            if stride == 1 and channels == filters:
                source = net.add(f"{name}.add", Add(), begin, source)
            channels, place = filters, place + 1
    _conv_norm(net, "head", Conv2d(320, 1280, 1, bias=False), act="silu")
    net.add("avgpool", AdaptiveAvgPool2d(1))
    net.add("flatten", Flatten())
    net.add("fc", Linear(1280, 1000))
    return net.build("torchvision; Tan and Le 2019")


def doc_cnn() -> Network:
    """Return a textbook's network of two convolutions as printed; its first linear layer fits only few input sizes."""
    net = Builder("doc_cnn", (1, 28, 28))
    for i, (channels, filters) in enumerate([(1, 32), (32, 64)], 1):
        net.add(f"conv{i}", Conv2d(channels, filters, 3))
        net.add(f"relu{i}", Activation())
        net.add(f"pool{i}", MaxPool2d(2, 2))
    net.add("flatten", Flatten())
    net.add("fc1", Linear(16384, 128))
    net.add("relu3", Activation())
    net.add("fc2", Linear(128, 10))
    return net.build(
        "as printed: 2,117,386 parameters, an fc1 for inputs of 70 to 73 pixels only; other sizes report the mismatch. "
        "The size of its input is not printed: digits of 28 x 28 pixels are assumed"
    )


def digits() -> Network:
    """Return the small network of the package, for 8 x 8 digits."""
    net = Builder("digits", (1, 8, 8))
    for i, (channels, filters, stride) in enumerate([(1, 32, 1), (32, 64, 2), (64, 64, 2)], 1):
        net.add(f"conv{i}", Conv2d(channels, filters, 3, stride, 1))
        net.add(f"relu{i}", Activation())
    net.add("flatten", Flatten())
    net.add("fc1", Linear(256, 64))
    net.add("relu4", Activation())
    net.add("fc2", Linear(64, 10))
    return net.build("hc.zoo.digits()")
