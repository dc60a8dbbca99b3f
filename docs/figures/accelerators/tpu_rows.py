"""TPU v1, network by network: rates under the roof, the array, waits, and CPU and GPU beside it."""

from __future__ import annotations

from collections.abc import Iterator

from dense_rows import APPLICATIONS, SERVED, TPU, attainable, times_faster
from row import Row

from heterocompute import hardware as hw

#: 10^12 operations/s; shares of the cycles in which the array is active, and that wait for weights or load them; times
#: as fast as a CPU: K80 and TPU.
MEASURED = {
    "MLP0": (12.3, 0.127, 0.539 + 0.159, 2.5, 41.0),
    "MLP1": (9.7, 0.106, 0.442 + 0.134, 0.3, 18.5),
    "LSTM0": (3.7, 0.082, 0.581 + 0.158, 0.4, 3.5),
    "LSTM1": (2.8, 0.105, 0.621 + 0.171, 1.2, 1.2),
    "CNN0": (86.0, 0.782, 0.0, 1.6, 40.3),
    "CNN1": (14.1, 0.462, 0.281 + 0.070, 2.7, 71.0),
}
SIZES = "the roof knows no sizes of layers: those of this network fill 256 x 256 multipliers badly"
BESIDE = "time beside the matrices is not in the model"
HOST = "roofs of both: what CPU and GPU reach of theirs, and their batch but for MLP0's, are not published by network"
KINDS = (
    ("rate, 10^12 operations/s", 0.25, False),
    ("share of the time in which the array is active", 0.05, True),
    ("share of the time that waits for weights or loads them, at the roof", 0.15, True),
    ("a K80 over a Haswell", 0.25, False),
    ("over a Haswell", 0.25, False),
)
MISSED = {
    ("LSTM1", 0): SIZES, ("CNN1", 0): SIZES,
    ("CNN0", 1): BESIDE, ("CNN1", 1): SIZES,
    ("MLP1", 2): BESIDE, ("LSTM0", 2): BESIDE, ("CNN1", 2): "the roof leaves no wait; fully connected layers have one",
} | {(app, 3): HOST for app in ("MLP0", "MLP1", "LSTM0", "LSTM1", "CNN0")} | {
    (app, 4): HOST for app in ("MLP1", "LSTM0", "LSTM1", "CNN0")
}  # fmt: skip


def modelled(app: str, kind: int) -> float:
    """Return what the roofs give."""
    reuse = APPLICATIONS[app]
    served = reuse if app.startswith("CNN") else min(reuse, SERVED)
    rate = attainable("tpu-v1", "int8", reuse)
    active = rate / hw.device("tpu-v1").peak("int8")
    haswell = attainable("haswell", "fp32", served)
    return (rate / 1e12, active, max(0.0, 1 - active), attainable("k80", "fp32", served) / haswell, rate / haswell)[
        kind
    ]


def applications() -> Iterator[Row]:
    """The six networks at the roof, and MLP0 within its 7 ms."""
    for app, published in MEASURED.items():
        for kind, (what, within, absolute) in enumerate(KINDS):
            if app == "MLP0" and kind in (0, 2, 4):  # from its layers, in dense_rows.py
                continue
            yield Row(
                "tpu_v1",
                f"{app}, {what}",
                published[kind],
                lambda app=app, kind=kind: modelled(app, kind),
                within,
                TPU,
                missed=MISSED.get((app, kind), ""),
                absolute=absolute,
            )
    for what, printed, times, missed in (
        ("tpu_v1 over a Haswell", 14.5, lambda: times_faster("haswell"), HOST),
        ("tpu_v1 over a K80", 13.2, lambda: times_faster("k80"), ""),
        ("a K80 over a Haswell", 1.1, lambda: times_faster("haswell") / times_faster("k80"), HOST),
    ):
        yield Row("tpu_v1", f"six networks, geometric mean: {what}", printed, times, 0.25, TPU, missed=missed)
    idle = "at the roof; the share of it that is reached within 7 ms is not modelled"
    for name, dtype, batch, most, inferences, printed, missed in (
        ("haswell", "fp32", 16, 64, 5482, 0.42, "both at the roof, that of memory and that of arithmetic"),
        ("k80", "fp32", 16, 64, 13461, 0.37, ""),
        ("tpu-v1", "int8", 200, 250, 225000, 0.80, ""),
    ):
        rate = lambda name=name, dtype=dtype, batch=batch: attainable(name, dtype, batch)  # noqa: E731
        what = f"MLP0 within 7 ms on {name}, inferences/s"
        yield Row("tpu_v1", what, inferences, lambda rate=rate: rate() / 40e6, 0.25, TPU, missed=idle)
        yield Row(
            "tpu_v1",
            f"MLP0 on {name}: rate within 7 ms over that of the largest batch ({most})",
            printed,
            lambda rate=rate, at=(name, dtype, most): rate() / attainable(*at),
            0.10,
            TPU + "; the largest batch from memory",
            missed=missed,
            absolute=True,
        )
