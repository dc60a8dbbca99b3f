"""YAML from untrusted files: read without running anything, within limits of size, depth and repetition.

A file may have 256 KiB, 24 levels and 20,000 nodes with aliases expanded, so that a few lines of aliases cannot grow
into gigabytes.
"""

from __future__ import annotations

from typing import Any

from ...base.errors import WrongValue, printable, shown
from ...base.texts import shortened

MAX_BYTES = 256 * 1024
MAX_DEPTH = 24
MAX_NODES = 20_000

MERGE = "tag:yaml.org,2002:merge"

#: Tags of Timeloop v4 for a kind of node; the kind is stored under this key.
KIND = "!kind"
TAGS = ("Container", "Component", "Hierarchical", "Parallel", "Pipelined", "Nothing", "ArrayContainer")


def yaml_module() -> Any:
    """Return PyYAML; ImportError says how to install it."""
    try:
        import yaml  # optional
    except ImportError:
        raise ImportError(
            "YAML files need PyYAML: pip install 'heterocompute[yaml]'; TOML files need nothing"
        ) from None
    return yaml


def parse(text: str) -> Any:
    """Read one document.

    Returns
    -------
    dict, list, str, int, float, bool or None

    Raises
    ------
    ValueError
        The text is not YAML, a tag is unknown, or a limit is exceeded.
    ImportError
        PyYAML is not installed.
    """
    yaml = yaml_module()
    if len(text) > MAX_BYTES:
        raise WrongValue(f"more than {MAX_BYTES} characters")
    if "{{" in text:
        raise WrongValue("templates ({{ ... }}) are outside the part of Timeloop that is modelled; render them first")
    try:
        _check_events(yaml, text)
        loader = _loader(yaml)(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            _check_size(yaml, node)
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1}: " if mark else ""
        raise WrongValue(f"{place}{getattr(error, 'problem', None) or error}") from None


def _check_events(yaml: Any, text: str) -> None:
    """Count nodes and depth before anything is built, which would recurse."""
    depth = nodes = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        nodes += isinstance(event, yaml.NodeEvent)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            raise WrongValue(f"line {event.start_mark.line + 1}: nested more than {MAX_DEPTH} deep")
        if nodes > MAX_NODES:
            raise WrongValue(f"line {event.start_mark.line + 1}: more than {MAX_NODES} nodes")


def _check_size(yaml: Any, root: object) -> None:
    """Count nodes with aliases expanded; refuse an alias of a node that contains it."""
    sizes: dict[int, int] = {}
    open_nodes: set[int] = set()

    def size(node: Any, depth: int) -> int:
        if id(node) in open_nodes:
            raise WrongValue(f"line {node.start_mark.line + 1}: an alias refers to a node that contains it")
        if depth > MAX_DEPTH:
            raise WrongValue(f"line {node.start_mark.line + 1}: aliases nest more than {MAX_DEPTH} deep")
        if id(node) not in sizes:
            open_nodes.add(id(node))
            if isinstance(node, yaml.MappingNode):
                _check_keys(yaml, node)
                children = [child for pair in node.value for child in pair]
            else:
                children = node.value if isinstance(node, yaml.SequenceNode) else []
            sizes[id(node)] = 1 + sum(size(child, depth + 1) for child in children)
            open_nodes.discard(id(node))
        if sizes[id(node)] > MAX_NODES:
            raise WrongValue(f"more than {MAX_NODES} nodes once aliases are written out")
        return sizes[id(node)]

    size(root, 0)


def _check_keys(yaml: Any, node: Any) -> None:
    seen = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise WrongValue(f"line {key.start_mark.line + 1}: a key is not a plain value")
        if (key.tag, key.value) in seen:
            raise WrongValue(f"line {key.start_mark.line + 1}: {shown(key.value)} appears twice")
        seen.add((key.tag, key.value))


def _loader(yaml: Any) -> Any:
    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        """SafeLoader that knows the kinds of node of Timeloop v4."""

        def flatten_mapping(self, node: Any) -> None:
            """Merge the tables that ``<<`` names: keys of the table itself win, then the first merged table.

            PyYAML 6.0.4 loses the table's own keys where such a table is merged in turn: it compares the identity of
            texts, which short ones share.
            """
            merged: dict[Any, Any] = {}
            own: dict[Any, Any] = {}
            for key, value in node.value:
                if key.tag != MERGE:
                    key.tag = "tag:yaml.org,2002:str" if key.tag == "tag:yaml.org,2002:value" else key.tag
                    own[key.tag, key.value] = key, value
                    continue
                for table in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                    if not isinstance(table, yaml.MappingNode):
                        raise WrongValue(f"line {table.start_mark.line + 1}: << does not name a table")
                    self.flatten_mapping(table)
                    merged = {(k.tag, k.value): (k, v) for k, v in table.value} | merged
            node.value = list({**merged, **own}.values())

    def kind(loader: Any, tag: str, node: Any) -> dict[str, Any]:
        if tag not in TAGS:
            raise WrongValue(f"line {node.start_mark.line + 1}: the tag !{tag} is not known")
        values = loader.construct_mapping(node, deep=True) if isinstance(node, yaml.MappingNode) else {}
        return {KIND: tag, **values}

    Loader.add_multi_constructor("!", kind)
    return Loader


def keyed(value: object, where: str, needed: set[str] | None = None, allowed: set[str] | None = None) -> dict[str, Any]:
    """Return a table with text keys: all of `needed`, and, if `allowed` is given, only keys of these two."""
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise WrongValue(f"{where} is {shown(value)}, expected a table of names")
    for key in sorted((needed or set()) - set(value)):
        raise WrongValue(f"{where} lacks {shown(key)}")
    if allowed is not None:
        for key in value:
            if key not in allowed | (needed or set()):
                known = ", ".join(sorted(allowed | (needed or set())))
                raise WrongValue(f"{where}.{printable(shortened(key))} is not known, there are {known}")
    return value


def listed(value: object, where: str) -> list[Any]:
    """Return a list."""
    if not isinstance(value, list):
        raise WrongValue(f"{where} is {shown(value)}, expected a list")
    return value
