"""Models of hardware on the command line: devices, count, roofline. They print dicts of heterocompute.hardware."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from ..base.errors import printable, shown
from ..base.texts import counted, quoted
from ..report.numbers import four_digits
from ..report.table import Column
from .options import Options
from .parts import MORE, UsageError, print_json, print_line, print_table, print_words

NUMBER = re.compile(r"\d+")
FIGURES = ("peak.fp32", "peak.fp16", "peak.int8", "peak.fp8", "peak.int4", "bandwidth", "memory", "tdp")


def register(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the commands to the parser.

    Parameters
    ----------
    command : callable
        ``command(name, run, text, *examples)`` adds a parser and returns it.
    """
    devices = command("devices", _devices, "List the chips of the device table, or show one chip with its sources.",
                      "devices a100-sxm-80gb")  # fmt: skip
    add = Options(devices, "hardware:devices")
    add("name", "NAME", "show this device, with all numbers and their sources", nargs="?")
    add("--kind", "KIND")
    add("--year", "YEAR", type=int)
    add.common("--device-file")
    add.common("--html")

    count = command("count", _count, "Count the parameters and operations of a network.", "count resnet50 --like thop")
    add = Options(count, "hardware:count")
    add.common("model")
    add_input(count)
    add.common("--html")
    add(
        "--like",
        "TOOL",
        "rule of counting: mac (default), flop, thop, fvcore, ptflops, ptflops-aten, torchinfo or torch",
    )
    add("--dtype", "TYPE", "dtype of the stored parameters")

    roofline = command("roofline", _roofline, "Model the time and the limit of each layer of a network on a device. "
                       "With several devices, print one row per device.",
                       "roofline llama_7b h100-sxm --format int4-g128-f16 --context 1024",
                       "roofline Llama-3.1-8B h100-sxm,mi300x,l40s --context 8192 --batch 16")  # fmt: skip
    add = Options(roofline)
    add.common("model")
    add_input(roofline)
    add.common("--html")
    add("device", "DEVICE", "device name as in `heterocompute devices`, a TOML file with one device, or host for this "
        "machine; several separated by commas")  # fmt: skip
    add.common("--device-file")
    add("--dtype", "TYPE", "dtype of the arithmetic; default: the fastest of fp16, bf16 and fp32")
    add("--format --formats", "F", "format of the weights in memory, such as int4-g128 or 2:4", dest="format")
    add("--kv-cache", "F", "with --context: format of the cached keys and values")
    add("--fused-attention", None, "a whole prompt, whose attention scores stay on chip")
    add("--plot", "PATH", "also write the plot")


def add_input(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what a network computes."""
    add = Options(parser, "hardware:count")
    add("--input", "SHAPE", "shape of one sample without the batch, such as 3,224,224", dest="shape")
    add("--context", "N", "a transformer that generates one token after N others", type=int)
    add.common("--batch")


def network_of(arguments: argparse.Namespace) -> Any:
    """Return the network that MODEL, --input and --context give.

    Returns
    -------
    Network
    """
    from .. import hardware as hw  # 60 ms

    context, shape = arguments.context, _shape_of(arguments.shape)
    if context is None:
        return hw.as_network(arguments.model, shape)
    if shape is not None:
        raise UsageError("--input does not apply with --context, which is one token")
    if not 0 <= context < 2**31:
        raise UsageError(f"--context is {context}, expected a number from 0 up, and below 2^31")
    return hw.as_network(arguments.model).decoding(context)


def _devices(arguments: argparse.Namespace) -> int:
    from .. import hardware as hw  # 60 ms

    found = hw.load_devices(arguments.device_file) if arguments.device_file else hw.devices()
    if arguments.name is not None:
        for option in ("kind", "year"):
            if getattr(arguments, option) is not None:
                raise UsageError(f"--{option} does not apply with NAME, which is one device")
        return _one_device(chip_of(arguments.name, arguments.device_file, hw.device), arguments)
    try:
        known = hw.devices(arguments.kind)
    except ValueError as error:
        raise UsageError(str(error)) from None
    rows = [
        _device_row(one)
        for name, one in found.items()
        if (arguments.device_file or name in known)
        and arguments.kind in (None, one.kind)
        and arguments.year in (None, one.year)
    ]
    if arguments.json:
        return print_json({"devices": rows})
    without = [row["name"] for row in rows if all(row[key] is None for key in FIGURES)]
    rows = [row for row in rows if row["name"] not in without]
    shown = [("fp32", "fp32"), ("16", "16 bit"), ("int8", "int8"), ("fp8", "fp8"), ("int4", "int4")]
    for row in rows:  # chips with both types have the same rate for both; some have one of them
        row["peak.16"] = row["peak.fp16"] or row.get("peak.bf16")
    columns = [Column("name", "device"), Column("year", "year", _plain, leaves=5)]
    columns += [
        Column(f"peak.{dtype}", f"{title} T", _tera, leaves)
        for (dtype, title), leaves in zip(shown, (7, 0, 1, 4, 8), strict=True)
    ]
    columns += [
        Column("bandwidth", "GB/s", _giga),
        Column("memory", "GiB", _gib, leaves=2),
        Column("tdp", "W", _plain, leaves=3),
    ]
    summary = [
        f"{counted(len(rows), 'device')}; T is 10^12 dense operations/s, GiB 2^30 bytes, ? a figure that no source "
        "confirms, - one not known"
    ]
    if without:
        summary.append(f"left out, because they have none of these figures: {', '.join(without)}")
    return show(arguments, "Devices", summary, columns, [{**row, "marked": row["unverified"]} for row in rows])


def _device_row(one: Any) -> dict[str, Any]:
    row = {"name": one.name, "title": one.title, "kind": one.kind, "year": one.year, "process": one.process}
    row |= dict.fromkeys(FIGURES)
    row |= one.figures()
    return row | {"unverified": list(one.unverified), "aliases": list(one.aliases)}


def _one_device(one: Any, arguments: argparse.Namespace) -> int:
    rows = [
        {"figure": figure, "value": value, "unverified": figure in one.unverified, "source": one.source_of(figure)}
        for figure, value in one.figures().items()
    ]
    if arguments.json:
        about = {"name": one.name, "title": one.title, "kind": one.kind, "year": one.year, "process": one.process}
        about |= {"note": one.note, "aliases": list(one.aliases), "unverified": list(one.unverified)}
        return print_json({**about, "figures": rows})
    parts = {"year": one.year, "process": one.process}
    known = [f"{part}{'?' if key in one.unverified else ''}" for key, part in parts.items() if part]
    print_words(", ".join([f"{one.name}: {one.title}", *known]))
    sources = list(dict.fromkeys(row["source"] for row in rows if row["source"]))
    for row in rows:
        row["place"] = f"[{1 + sources.index(row['source'])}]" if row["source"] else "-"
        row["shown"] = _figure_text(row["figure"], row["value"]) + ("?" if row["unverified"] else "")
        row["ridge"] = ""
        if row["figure"].startswith("peak.") and one.bandwidth is not None:
            row["ridge"] = f"{row['value'] / one.bandwidth:.1f}"
    columns = [
        Column("figure", "figure"),
        Column("shown", "value"),
        Column("ridge", "ridge (operations/B)", leaves=1),
        Column("place", "source", left=True),
    ]
    notes = [f"[{i}] {source}" for i, source in enumerate(sources, 1)]
    return show(arguments, one.name, [*notes, *[one.note] * bool(one.note)], columns, rows)


def chip_of(name: str, file: str | None, known: Callable[[str], Any]) -> Any:
    """Return a device by its name: from the file if one is given, and then only from it."""
    if not file:
        return known(name)
    from ..hardware import load_devices  # 60 ms

    named = {alias: one for one in load_devices(file).values() for alias in (one.name, *one.aliases)}
    if name not in named:
        names = ", ".join(map(printable, named)) or "none"
        raise ValueError(f"{printable(file)}: {quoted(name)} is not a device of this file; it has {names}")
    return named[name]


def _count(arguments: argparse.Namespace) -> int:
    from .. import hardware as hw  # 60 ms

    if arguments.like not in hw.CONVENTIONS:
        raise UsageError(f"--like is {shown(arguments.like)}, expected one of {', '.join(hw.CONVENTIONS)}")
    _check_texts(arguments.dtype)
    network, batch = network_of(arguments), batch_of(arguments)
    found = hw.count(network, like=arguments.like, batch=batch, dtype=arguments.dtype)
    if arguments.json:
        return print_json(found.to_dict())
    columns = [
        Column("name", "layer"),
        Column("kind", "kind", leaves=1, left=True),
        Column("output", "output", lambda shape: " x ".join(map(str, shape)), leaves=2),
        Column("params", "parameters", "{:,}".format),
        Column("count", found.unit, "{:,}".format),
    ]
    rows = [row for row in found.layers if row["params"] or row["count"]]
    summary = (
        f"{found.network}: {found.params:,} parameters, {found.bytes:,} bytes as {arguments.dtype}, {found.total:,} "
        f"{found.unit} like {found.convention}, {found.activations:,} activations, batch {found.batch}"
    )
    summaries = [summary, f"Not counted: {found.leaves_out}."]
    drawn = ""
    if arguments.html:
        from ..report.drawings import bars  # 20 ms

        of_kind: dict[str, float] = {}
        for row in rows:
            name = NUMBER.sub("#", row["name"])
            of_kind[name] = of_kind.get(name, 0) + row["count"]
        drawn = bars(list(of_kind.items()), found.unit, f"{found.unit} of {found.network} by layer")
    return show(arguments, f"Count of {found.network}", summaries, columns, rows, folds=True, drawn=drawn)


def _roofline(arguments: argparse.Namespace) -> int:
    from .. import hardware as hw  # 60 ms

    _check_texts(arguments.dtype, arguments.format, arguments.kv_cache)
    if arguments.kv_cache is not None and arguments.context is None:
        raise UsageError("--kv-cache needs --context: only a generated token reads cached keys and values")
    if arguments.fused_attention and arguments.context is not None:
        raise UsageError("--fused-attention does not apply with --context, which is one token")
    network = network_of(arguments)
    if arguments.fused_attention:
        network = network.fused_attention()
    first, *more = arguments.device.split(",")
    names = [one.strip() for one in (first, *more)] if more else [first]
    chips = [chip_of(name, arguments.device_file, hw.device) for name in names]
    if len(chips) > 1:
        return _several(arguments, network, chips)
    (chip,) = chips
    dtype = arguments.dtype or hw.product_dtype(chip, None, None)
    found = hw.roofline(network, chip, dtype, arguments.format, batch_of(arguments), kv_cache=arguments.kv_cache)
    if arguments.plot:
        found.plot(arguments.plot)
    if arguments.html:
        found.to_html(arguments.html)
    if arguments.json:
        return print_json(found.to_dict())
    columns = [
        Column("name", "layer"),
        Column("operations", "10^6 operations", lambda value: four_digits(value / 1e6), leaves=4),
        Column("bytes", "kB", lambda value: four_digits(value / 1e3), leaves=3),
        Column("intensity", "operations/B", lambda value: "-" if value is None else f"{value:.4g}", leaves=2),
        Column("seconds", "us", lambda value: f"{value * 1e6:.4g}"),
        Column("bound", "bound by", left=True),
        Column("share", "of the peak", lambda value: f"{value:.1%}", leaves=1),
    ]
    weights = "" if found.format == dtype else f", weights {found.format}"
    weights += "" if found.kv_cache == dtype else f", keys and values {found.kv_cache}"
    level = f" (memory of the weights, {_giga(found.bandwidth)} GB/s)" if found.bound == "memory" else ""
    summary = [
        f"{found.network} on {found.device}, {dtype}{weights}, batch {found.batch}: at least "
        f"{found.seconds * 1e3:.4g} ms, {found.bound}-bound{level}, {found.intensity or 0:.4g} operations a byte "
        f"(ridge {found.ridge:.4g}), {found.share:.1%} of the peak of {found.peak / 1e12:.4g}e12 operations/s"
    ]
    if found.plain_seconds is not None:
        summary.append(f"with {dtype} weights {found.plain_seconds * 1e3:.4g} ms: {found.speedup:.2f} times as long")
    if found.note:
        summary.append(found.note)
    return show(arguments, "", summary, columns, found.layers, folds=True)


def _several(arguments: argparse.Namespace, network: Any, chips: Sequence[Any]) -> int:
    """Print a row per device."""
    from .. import hardware as hw  # 60 ms

    if arguments.plot:
        raise UsageError("--plot needs one DEVICE, whose roof it draws")
    options = {"dtype": arguments.dtype, "batch": batch_of(arguments), "kv_cache": arguments.kv_cache}
    rows = hw.compare(network, chips, format=arguments.format, **options)
    for row in rows:  # there is no price
        for key in ("price", "performance_price", "cost", "cost_each"):
            del row[key]
    if arguments.json:
        about = {"network": network.name, "batch": arguments.batch, "context": arguments.context}
        return print_json({**about, "format": arguments.format, "kv_cache": arguments.kv_cache, "devices": rows})
    what = "tokens/s" if arguments.context is not None else "samples/s"
    columns = [
        Column("device", "device"),
        Column("dtype", "dtype", left=True, leaves=2),
        Column("seconds", "ms", lambda value: four_digits(value * 1e3)),
        Column("throughput", what, lambda value: "-" if value is None else four_digits(value)),
        Column("bound", "bound by", left=True),
        Column("share", "of the peak", "{:.1%}".format, leaves=1),
        Column("memory", "GB", lambda value: four_digits(value / 1e9)),
        Column("count", "devices", lambda value: "-" if value is None else str(value)),
    ]
    given = {"weights": arguments.format, "keys and values": arguments.kv_cache}
    formats = "".join(f", {name} {text}" for name, text in given.items() if text is not None)
    summary = [
        f"{network.name}, batch {arguments.batch}{formats}: the least time of a step, and the number of devices that "
        "hold weights, activations and cache; several devices work one after another"
    ]
    return show(arguments, f"{network.name} on devices", summary, columns, rows)


def _shape_of(text: str | None) -> tuple[int, ...] | None:
    """Return the shape in --input."""
    if text is None:
        return None
    parts = [part.strip() for part in text.replace("x", ",").split(",")]
    if not all(part.isdecimal() and 0 < int(part) < 2**31 for part in parts):
        raise UsageError(f"--input is {shown(text)}, expected positive numbers such as 3,224,224")
    return tuple(map(int, parts))


def _check_texts(dtype: str | None, format: str | None = None, kv_cache: str | None = None) -> None:
    from ..hardware.chips.chip import dtype_bits  # 60 ms
    from ..hardware.cost.stored import stored, stored_cache  # 60 ms

    try:
        if dtype is not None:
            dtype_bits(dtype)
        stored(format, dtype or "fp16")
        stored_cache(kv_cache, dtype or "fp16")
    except ValueError as error:
        raise UsageError(str(error)) from None


def batch_of(arguments: argparse.Namespace) -> int:
    """Return the batch that --batch gives."""
    if not 0 < arguments.batch < 2**31:
        raise UsageError(f"--batch is {arguments.batch}, expected a positive number below 2^31")
    batch: int = arguments.batch
    return batch


def show(
    arguments: argparse.Namespace,
    title: str,
    summary: Sequence[str],
    columns: Sequence[Column],
    rows: list[dict[str, Any]],
    folds: bool = False,
    drawn: str = "",
) -> int:
    """Print a table and its summary, and write the page of --html.

    Parameters
    ----------
    title : str
        Of the page. Empty: it is written already.
    folds : bool
        The summary stands first, and layers that differ in their number alone are one row.
    drawn : str
        A picture for the page, as HTML.
    """
    if arguments.html and title:  # without --html there is no page
        from ..report.files import write_text  # 5 ms

        write_text(arguments.html, _page(title, summary, columns, rows, drawn))
    cells = [{column.key: _cell(row, column) for column in columns} for row in rows]
    plain = [column._replace(write=str) for column in columns]
    if folds:
        for line in summary:
            print_words(line)
        print_line("")
        cells = folded(cells)
        if len(cells) < len(rows):
            plain.insert(1, Column("layers", "layers"))
    print_table(plain, cells, more=MORE)
    if folds and len(cells) < len(rows):
        print_words(f"{len(rows)} layers, of which equal ones are one row: figures of each; --json lists all")
    for line in () if folds else summary:
        print_words(line)
    return 0


def folded(cells: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """Return one row for all that differ only in the numbers in their names, with their count as ``layers``.

    Examples
    --------
    >>> [row["layers"] for row in folded([{"name": "block0.fc"}, {"name": "block1.fc"}, {"name": "head"}])]
    ['2', '1']
    """
    groups: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for row in cells:
        others = (value for key, value in row.items() if key != "name")
        groups.setdefault((NUMBER.sub("#", row["name"]), *others), []).append(row)
    return [{**rows[0], "layers": f"{len(rows)}"} for rows in groups.values()]


def _page(title: str, summary: Sequence[str], columns: Sequence[Column], rows: list[dict[str, Any]], drawn: str) -> str:
    from ..report.page import page, section, table  # 20 ms

    numbers = [any(isinstance(row[column.key], (int, float)) for row in rows) for column in columns]
    texts = [i for i, numeric in enumerate(numbers) if not numeric]
    lines = [
        [(_cell(row, column), "" if row[column.key] is None else row[column.key]) for column in columns] for row in rows
    ]
    words = "; ".join(line.rstrip(".") for line in summary)
    shown = table([column.title for column in columns], lines, texts)
    return page(title, section("", words, drawn) + section("", "", shown) if drawn else section("", words, shown))


def _cell(row: dict[str, Any], column: Column) -> str:
    return column.write(row[column.key]) + ("?" if column.key in row.get("marked", ()) else "")


def _plain(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def _tera(value: float | None) -> str:
    return "-" if value is None else f"{value / 1e12:.4g}"


def _giga(value: float | None) -> str:
    return "-" if value is None else f"{value / 1e9:.4g}"


def _gib(value: float | None) -> str:
    return "-" if value is None else f"{value / 2**30:.4g}"


def _figure_text(figure: str, value: float) -> str:
    kind = figure.split(".")[0]
    if kind in ("peak", "sparse"):
        return f"{value / 1e12:.6g}e12 operations/s"
    if kind in ("bandwidth", "links"):
        return f"{value / 1e9:.6g} GB/s"
    if kind in ("memory", "on_chip"):
        gib = value / 2**30
        return f"{gib:.4g} GiB" if gib >= 1 and math.isclose(gib, round(gib)) else f"{value:,.0f} B"
    return f"{value:g} {'W' if kind == 'tdp' else 'mm2'}"
