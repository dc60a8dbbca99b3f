"""The part of Timeloop v4's files that is modelled here; everything else is refused with its name.

Read: the nodes Container and Component, also flattened as the front end writes them; shapes, instances and the
densities fixed-structured and hypergeometric; mappings with perfect factors; representation formats, gating and
skipping of the level that feeds the multipliers; the energies of Accelergy's ERT. Grammar: the exercises in
Accelergy-Project/timeloop-accelergy-exercises and the Timeloop v4 front end.
"""

from __future__ import annotations

import math
import re
from typing import Any

from ...base.errors import WrongValue, shown
from .arch import MAX_AMOUNT, Arch, Level
from .mapping import Mapping
from .problem import MAX_COUNT, Axis, Density, Problem, whole
from .yaml_text import KIND, keyed, listed

#: Settings of mapper and estimators, which do not change counts.
LEFT_ASIDE = (
    "mapper",
    "mapspace",
    "globals",
    "variables",
    "components",
    "compound_components",
    "ART",
)
DUMPED = "dumped_by_timeloop_front_end"
KNOWN = ("architecture", "problem", "mapping", "sparse_optimizations", "ERT", DUMPED, *LEFT_ASIDE)

# Attributes that change counts, those that change none, and those of which only one value is modelled.
COUNTED = {"depth", "width", "datawidth", "block_size", "cluster_size", "multiple_buffering", "meshX", "meshY"}
COUNTED |= {"read_bandwidth", "write_bandwidth", "shared_bandwidth"}
SILENT = {"technology", "global_cycle_seconds", "n_banks", "power_gated_at", "version", "latency", "n_rdwr_ports"}
SILENT |= {"n_rd_ports", "n_wr_ports", "type", "memory_type", "metadata_storage_width", "metadata_storage_depth"}
SILENT |= {"metadata_datawidth", "metadata_block_size", "subclass"}
#: Attributes for the estimators of energy and area, whose results are in the ERT.
NOTED = {"multiplier_width", "adder_width", "update_fifo_depth", "nports", "num_ports", "n_rw_ports"}
#: Of an instance: the input's size and its border, which follow from P, Q, R, S and do not change counts.
IMAGE = ("H", "W", "Hpad", "Wpad")
ONLY = {"has_power_gating": False, "reduction_supported": True, "min_utilization": 0, "allow_overbooking": False}


def outside(where: str) -> ValueError:
    """Return the message for a key that is not modelled."""
    return WrongValue(f"{where} is outside the part of Timeloop v4 that is modelled")


def from_timeloop(found: dict[str, Any]) -> tuple[Problem | None, Arch | None, Mapping | None, list[str]]:
    """Convert the keys of Timeloop's files to ours, with notes on ignored keys."""
    notes: list[str] = []
    fixed: dict[str, frozenset[str]] = {}
    for key, value in found.items():
        if key.endswith("constraints"):
            _constraints(key, value, fixed, notes)
            continue
        if key not in KNOWN:
            raise outside(f"{shown(key)}")
        if key in LEFT_ASIDE:
            notes.append(f"{key}: left aside, it changes no count")
    problem = _problem(found["problem"], notes) if "problem" in found else None
    arch = parts = mapping = None
    if "architecture" in found:
        nodes = _nodes(keyed(found["architecture"], "architecture"))
        zeros = _zeros(found.get("sparse_optimizations"), notes)
        arch, parts = _arch(nodes, _energies(found.get("ERT")), zeros, fixed, notes)
    elif "sparse_optimizations" in found or "ERT" in found:
        raise WrongValue("sparse_optimizations and ERT need the architecture next to them")
    if found.get("mapping") or ("mapping" in found and DUMPED not in found):
        mapping = _mapping(found["mapping"], problem, arch, parts or {})
    return problem, arch, mapping, notes


def _version(value: dict[str, Any], where: str) -> None:
    if str(value.get("version", "0.4")) != "0.4":
        raise outside(f"{where}.version {value['version']}")


# Problems.


def _problem(value: object, notes: list[str]) -> Problem:
    keys = keyed(value, "problem", {"shape", "instance"}, {"version"})
    _version(keys, "problem")
    shape = keyed(_underscored(keys["shape"], "problem.shape"), "problem.shape", {"dimensions", "data_spaces"},
                  {"name", "coefficients"})  # fmt: skip
    instance = dict(keyed(keys["instance"], "problem.instance"))
    densities = instance.pop("densities", {}) or {}
    coefficients = {}
    for i, entry in enumerate(listed(shape.get("coefficients") or [], "problem.shape.coefficients")):
        known = keyed(entry, f"problem.shape.coefficients[{i}]", {"name"}, {"default"})
        coefficients[known["name"]] = instance.pop(known["name"], known.get("default"))
    dims = listed(shape["dimensions"], "problem.shape.dimensions")
    aside = [name for name in IMAGE if name in instance and name not in dims]
    if aside:
        notes.append(f"problem.instance: left aside, they change no count: {', '.join(aside)}")
    for name in instance:
        if name not in dims and name not in IMAGE:
            raise WrongValue(f"problem.instance.{name} is neither a dimension nor a coefficient")
    tensors: dict[str, list[Axis]] = {}
    outputs = []
    for i, entry in enumerate(listed(shape["data_spaces"], "problem.shape.data_spaces")):
        where = f"problem.shape.data_spaces[{i}]"
        known = keyed(_underscored(entry, where), where, {"name", "projection"}, {"read_write"})
        axes = listed(known["projection"], f"{where}.projection")
        tensors[known["name"]] = [_axis(axis, coefficients, f"{where}.projection") for axis in axes]
        if known.get("read_write", False):
            outputs.append(known["name"])
    if len(outputs) != 1:
        raise outside(f"problem.shape: {len(outputs)} data spaces with read_write, where one is")
    for dim in dims:
        if dim not in instance:
            raise WrongValue(f"problem.instance lacks {shown(dim)}")
    density = {t: d for t, d in ((t, _density(d, t)) for t, d in keyed(densities, "densities").items()) if d.share < 1}
    return Problem({dim: instance[dim] for dim in dims}, tensors, outputs[0], density)


def _axis(terms: object, coefficients: dict[str, Any], where: str) -> Axis:
    axis: Axis = {}
    for term in listed(terms, where):
        parts = listed(term, where)
        if not 1 <= len(parts) <= 2 or not all(isinstance(part, (str, int)) for part in parts):
            raise WrongValue(f"{where}: a term is {shown(term, 60)}, expected [dimension] or [dimension, coefficient]")
        factor = parts[1] if len(parts) == 2 else 1
        if isinstance(factor, str):
            if coefficients.get(factor) is None:
                raise WrongValue(f"{where}: the coefficient {shown(factor)} has no value")
            factor = coefficients[factor]
        if parts[0] in axis:
            raise outside(f"{where}: {parts[0]} twice in one axis")
        axis[parts[0]] = factor
    return axis


def _density(value: object, tensor: str) -> Density:
    where = f"problem.instance.densities.{tensor}"
    # Keys of other distributions; the front end writes them with empty values.
    known = {k: v for k, v in keyed(value, where).items() if v or k not in ("band_width", "workload_tensor_size")}
    keyed(known, where, {"distribution", "density"}, set())
    kinds = {"fixed-structured": "fixed", "fixed_structured": "fixed", "hypergeometric": "uniform"}
    if known["distribution"] not in kinds:
        raise outside(f"{where}.distribution {shown(known['distribution'])}")
    return Density(_number(known["density"], f"{where}.density"), kinds[known["distribution"]])


# Machines.


def _nodes(value: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the nodes in a row, from outer to inner, each with its kind, which the front end has dropped."""
    _version(value, "architecture")
    if "nodes" in value:
        keyed(value, "architecture", {"nodes"}, {"version"})
        return [_node(node, f"architecture.nodes[{i}]") for i, node in enumerate(listed(value["nodes"], "nodes"))]
    keyed(value, "architecture", {"subtree"}, {"version"})
    found: list[dict[str, Any]] = []
    tree = value["subtree"]
    while tree:
        if len(listed(tree, "architecture.subtree")) != 1:
            raise outside(f"architecture.subtree with {len(tree)} branches")
        branch = keyed(tree[0], "architecture.subtree[0]", {"name"}, {"attributes", "local", "subtree"})
        local = [keyed(node, "architecture.local", {"name"}) for node in branch.get("local") or []]
        found += [{KIND: "Component", **node} for node in local]
        tree = branch.get("subtree")
    return found


def _node(node: object, where: str) -> dict[str, Any]:
    known = keyed(node, where, {"name"})
    if known.get(KIND) not in ("Container", "Component"):
        raise outside(f"{where}: a node of kind {known.get(KIND) or 'none'} ({known['name']})")
    return known


def _arch(
    nodes: list[dict[str, Any]], energies: dict[str, dict[str, float]], zeros: dict[str, dict[str, Any]],
    fixed: dict[str, frozenset[str]], notes: list[str],
) -> tuple[Arch, dict[str, str]]:  # fmt: skip
    """Return the levels, and the position of loops in space for a target with its own fan-out."""
    levels: list[Level] = []
    spread: dict[str, str] = {}
    aside: set[str] = set()
    count = 1
    last = max((i for i, node in enumerate(nodes) if node[KIND] == "Component"), default=-1)
    if last < 1:
        raise WrongValue("architecture: expected storage and, as the last component, what multiplies")
    for i, node in enumerate(nodes[: last + 1]):
        where = f"architecture: {node['name']}"
        allowed = {KIND, "class", "subclass", "attributes", "spatial", "constraints", "enabled", "required_actions"}
        keyed(node, where, {"name"}, allowed)
        if node.get("enabled", True) is not True:
            raise outside(f"{where}: enabled {shown(node['enabled'])}")
        name, listed_count = _instances(node["name"])
        attributes = _attributes(node.get("attributes") or {}, where, aside)
        fan = _fan(node.get("spatial") or {}, where)
        keeps = _keeps(node.get("constraints") or {}, where)
        keeps = fixed.get(name) if keeps is None else keeps
        if fan > 1 or node[KIND] == "Container":
            holder = name if node[KIND] == "Container" else f"inter_{name}_spatial"
            if fan > 1:
                levels.append(Level(holder, keeps=set(), instances=count))
                spread[name] = holder
            count *= fan
        if node[KIND] == "Container":
            continue
        if listed_count is not None:
            count = listed_count
        if i == last:
            mac = energies.get(name, {}).get("compute")
            if mac is None:
                notes.append(f"{name}: no energy of a compute in an ERT, a multiply-add costs 0")
            if aside:
                notes.append(f"architecture: left aside, they change no count: {', '.join(sorted(aside))}")
            unknown = set(zeros) - {level.name for level in levels}
            if unknown:
                raise WrongValue(f"sparse_optimizations: no level is called {shown(sorted(unknown)[0])}")
            return Arch(levels, mac=mac or 0.0, macs=count), spread
        if node.get("class") == "dummy_storage":
            levels.append(Level(name, keeps=set(), instances=count))
            continue
        if name not in energies:
            notes.append(f"{name}: no energies in an ERT, its accesses cost 0")
        levels.append(_storage(name, attributes, keeps, count, energies.get(name, {}), zeros.get(name, {}), where))
    raise WrongValue("architecture: no component multiplies")


def _storage(
    name: str, attributes: dict[str, Any], keeps: frozenset[str] | None, count: int, energy: dict[str, float],
    zeros: dict[str, Any], where: str,
) -> Level:  # fmt: skip
    if not {"width", "datawidth"} & set(attributes):
        raise outside(f"{where}: a component without width and datawidth, no storage")
    word = _number(attributes.get("datawidth", attributes.get("width")), f"{where}: datawidth")
    width = _number(attributes.get("width", word), f"{where}: width")
    if word <= 0 or width <= 0:
        raise WrongValue(f"{where}: width is {width} and datawidth {word}, expected more than 0")
    cluster = whole(attributes.get("cluster_size", 1), f"{where}: cluster_size")
    # The instances of a cluster share the width: each stores its part of a vector.
    block = _number(attributes.get("block_size", width / (word * cluster)), f"{where}: block_size")
    if not 1 <= block <= MAX_COUNT or block != int(block):
        raise WrongValue(
            f"{where}: a vector of {width} bits holds, for each of {cluster} instances, {block} words of {word} bits, "
            "expected a whole number"
        )
    words = None
    if attributes.get("depth") is not None:
        words = int(_number(attributes["depth"], f"{where}: depth") * block)
        copies = _number(attributes.get("multiple_buffering", 1), f"{where}: multiple_buffering")
        if copies < 1:
            raise WrongValue(f"{where}: multiple_buffering is {copies}, expected at least 1")
        words = int(words // copies)
    limits: dict[str, Any] = {}
    for kind in ("read", "write", "shared"):
        if (given := attributes.get(f"{kind}_bandwidth")) is not None:
            ours = "bandwidth" if kind == "shared" else f"{kind}_bandwidth"
            limits[ours] = _number(given, f"{where}: {kind}_bandwidth")
    costs: dict[str, Any] = {key: energy.get(key, 0.0) for key in ("read", "write", "update", "leak")}
    return Level(name, words, keeps, block=int(block), instances=count, cluster=cluster, **costs, **limits, **zeros)


def _instances(name: object) -> tuple[str, int | None]:
    """`Buffer[1..16]`, as the front end writes it, is 16 instances."""
    match = re.fullmatch(r"([^\[\]]+)(?:\[(\d+)\.\.(\d+)\])?", str(name))
    if not match:
        raise WrongValue(f"architecture: a component is called {shown(name, 60)}")
    return match[1], int(match[3]) - int(match[2]) + 1 if match[2] else None


def _attributes(value: object, where: str, aside: set[str]) -> dict[str, Any]:
    attributes = keyed(value, f"{where}: attributes")
    for key, given in attributes.items():
        if key in ONLY:
            if given != ONLY[key]:
                raise outside(f"{where}: {key} {shown(given)}")
        elif key in NOTED:
            aside.add(key)
        elif key not in COUNTED | SILENT:
            raise outside(f"{where}: the attribute {key}")
    return attributes


def _fan(value: object, where: str) -> int:
    mesh = keyed(value, f"{where}: spatial", set(), {"meshX", "meshY", "mesh"})
    fan = 1
    for key, number in mesh.items():
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise WrongValue(f"{where}: {key} is {shown(number)}, expected a whole number of at least 1")
        fan *= number
    return fan


def _keeps(value: Any, where: str) -> frozenset[str] | None:
    for key, given in keyed(value, f"{where}: constraints").items():
        if key != "dataspace" and given:
            raise outside(f"{where}: constraints.{key}")
    given = keyed(value.get("dataspace") or {}, f"{where}: constraints.dataspace", set(), {"keep", "bypass"})
    if not given:
        return None
    if given.get("bypass") and not given.get("keep"):
        raise outside(f"{where}: a bypass that leaves the choice of what to keep")
    return frozenset(listed(given["keep"], f"{where}: keep"))


def _constraints(key: str, value: object, fixed: dict[str, frozenset[str]], notes: list[str]) -> None:
    """Read the tensors of each level; limits of loops only concern Timeloop's mapper and are ignored."""
    known = keyed(value or {}, key, set(), {"targets", "version"})
    for i, entry in enumerate(listed(known.get("targets") or [], f"{key}.targets")):
        where = f"{key}.targets[{i}]"
        target = keyed(entry, where, {"target", "type"})
        if target["type"] in ("dataspace", "datatype", "bypass"):
            if target.get("keep") and target.get("bypass"):
                fixed[str(target["target"])] = frozenset(listed(target["keep"], f"{where}.keep"))
        elif target["type"] not in ("temporal", "spatial"):
            raise outside(f"{where}: a constraint of type {shown(target['type'])}")
        elif f"{key}: limits of loops are left aside" not in notes:
            notes.append(f"{key}: limits of loops are left aside")


def _energies(value: object) -> dict[str, dict[str, float]]:
    if value is None:
        return {}
    keys = keyed(value, "ERT", {"tables"}, {"version"})
    _version(keys, "ERT")
    found: dict[str, dict[str, float]] = {}
    for i, table in enumerate(listed(keys["tables"], "ERT.tables")):
        where = f"ERT.tables[{i}]"
        known = keyed(table, where, {"name", "actions"})
        name = re.sub(r"\[\d+\.\.\d+\]$", "", str(known["name"])).rsplit(".", 1)[-1]
        actions = found.setdefault(name, {})
        for action in listed(known["actions"], f"{where}.actions"):
            entry = keyed(action, f"{where}.actions", {"name", "energy"})
            actions[str(entry["name"])] = _number(entry["energy"], f"{where}: energy of {entry['name']}")
    return found


def _zeros(value: object, notes: list[str]) -> dict[str, dict[str, Any]]:
    """Return the compressed, gated and skipped tensors of each level."""
    if value is None:
        return {}
    found: dict[str, dict[str, Any]] = {}
    keys = keyed(value, "sparse_optimizations", {"targets"}, {"version"})
    _version(keys, "sparse_optimizations")
    for i, target in enumerate(listed(keys["targets"], "sparse_optimizations.targets")):
        where = f"sparse_optimizations.targets[{i}]"
        known = _underscored(target, where)
        keyed(known, where, set(), {"name", "target", "representation_format", "action_optimization"})
        zeros = found.setdefault(str(known.get("name", known.get("target"))), {"compress": {}, "gate": {}, "skip": {}})
        formats = keyed(_underscored(known.get("representation_format") or {}, where), where, set(), {"data_spaces"})
        for entry in formats.get("data_spaces") or []:
            data = keyed(entry, f"{where}.representation_format", {"name"}, {"ranks"})
            zeros["compress"][data["name"]] = 0
            notes.append(f"{data['name']}: stored without zeros, indices are not counted")
        for entry in known.get("action_optimization") or []:
            action = keyed(_underscored(entry, where), f"{where}.action_optimization", {"type"})
            if action["type"] not in ("gating", "skipping"):
                raise outside(f"{where}: an action of type {shown(action['type'])}")
            verb = {"gating": "gate", "skipping": "skip"}[action["type"]]
            options = action.get("options") or [{k: v for k, v in action.items() if k != "type"}]
            for option in options:
                rule = keyed(
                    _underscored(option, where), f"{where}.action_optimization", {"target", "condition_on"}, set()
                )
                if rule["target"] in zeros[verb]:
                    raise outside(f"{where}: two rules for {rule['target']}")
                zeros[verb][rule["target"]] = frozenset(listed(rule["condition_on"], f"{where}: condition_on"))
    return found


# Mappings.


def _mapping(value: object, problem: Problem | None, arch: Arch | None, parts: dict[str, str]) -> Mapping:
    if problem is None or arch is None:
        raise WrongValue("mapping: it needs the problem and the architecture next to it")
    everything = frozenset(problem.tensors)
    temporal: dict[str, list[tuple[str, int]]] = {}
    spatial: dict[str, list[tuple[str, int]]] = {}
    keeps: dict[str, frozenset[str]] = {}
    for i, entry in enumerate(listed(value, "mapping")):
        where = f"mapping[{i}]"
        known = keyed(entry, where, {"target", "type"}, {"factors", "permutation", "split", "keep", "bypass"})
        kind, target = known["type"], str(known["target"])
        if kind in ("datatype", "bypass", "dataspace"):
            keep = frozenset(listed(known.get("keep") or [], f"{where}.keep"))
            bypass = frozenset(listed(known.get("bypass") or [], f"{where}.bypass"))
            if keep & bypass or not keep | bypass <= everything:
                raise WrongValue(f"{where}: keep {sorted(keep)} and bypass {sorted(bypass)} of {sorted(everything)}")
            if target in arch.names:
                before = keeps.get(target, arch.levels[arch.names.index(target)].keeps)
                keeps[target] = frozenset(everything if before is None else before) - bypass | keep
            continue
        if kind not in ("temporal", "spatial"):
            raise outside(f"{where}: a directive of type {shown(kind)}")
        loops = _loops(known, problem, where)
        level = parts.get(target, target) if kind == "spatial" else target
        if level not in arch.names:
            if all(bound == 1 for _, bound in loops):  # a container without a fan-out
                continue
            raise WrongValue(f"{where}: no level is called {shown(target)}, there are {', '.join(arch.names)}")
        into = temporal if kind == "temporal" else spatial
        if level in into:
            raise WrongValue(f"{where}: {target} has two directives of type {kind}")
        into[level] = loops
    _fill_rest(problem, [*temporal.values(), *spatial.values()])
    for container in arch.levels:
        if container.keeps == frozenset() and keeps.get(container.name) == frozenset():
            del keeps[container.name]  # a later directive keeps nothing
    return Mapping(temporal, spatial, keeps)  # type: ignore[arg-type]


def _loops(known: dict[str, Any], problem: Problem, where: str) -> list[tuple[str, int]]:
    """Outer to inner; a permutation lists them inner to outer."""
    given = known.get("factors") or []
    if isinstance(given, dict):
        given = [f"{dim}={bound}" for dim, bound in given.items()]
    words = re.split(r"[\s,]+", given.strip()) if isinstance(given, str) else listed(given, f"{where}.factors")
    factors: dict[str, int] = {}
    for word in filter(None, words):
        match = re.fullmatch(r"([A-Za-z_]\w*?)\s*=?\s*(\d+)", str(word))
        if not match:
            raise outside(f"{where}: the factor {shown(word, 40)}")
        if match[1] not in problem.dims:
            raise WrongValue(f"{where}: a factor of {shown(match[1])}, the problem has {', '.join(problem.dims)}")
        if match[1] in factors:
            raise WrongValue(f"{where}: two factors of {match[1]}")
        factors[match[1]] = int(match[2])
    order = known.get("permutation") or []
    if isinstance(order, str):
        order = re.split(r"[\s,]+", order.strip()) if re.search(r"[\s,]", order.strip()) else list(order.strip())
    order = [str(dim) for dim in listed(order, f"{where}.permutation")]
    unknown = [dim for dim in order if dim not in problem.dims]
    if unknown or len(set(order)) < len(order):
        raise WrongValue(f"{where}: the permutation is {order}, the problem has {', '.join(problem.dims)}")
    loose = [dim for dim, bound in factors.items() if bound != 1 and dim not in order]
    if len(loose) > 1 or (loose and any(factors.get(dim, 1) != 1 for dim in order)):
        raise outside(f"{where}: loops {loose} that the permutation does not place")
    return [(dim, factors[dim]) for dim in [*loose, *reversed(order)] if factors.get(dim, 1) != 1]


def _fill_rest(problem: Problem, nests: list[list[tuple[str, int]]]) -> None:
    """Replace a factor of 0 by the quotient that the other factors leave."""
    for dim, bound in problem.dims.items():
        open_at = [(loops, i) for loops in nests for i, (d, factor) in enumerate(loops) if d == dim and factor == 0]
        if not open_at:
            continue
        product_of_bounds = 1
        for loops in nests:
            for d, factor in loops:
                product_of_bounds *= factor if d == dim and factor else 1
        if len(open_at) > 1 or bound % product_of_bounds:
            raise WrongValue(
                f"mapping: the factor 0 of {dim} stands for {bound} / {product_of_bounds}, expected once, and whole"
            )
        loops, i = open_at[0]
        loops[i] = (dim, bound // product_of_bounds)


def _underscored(value: object, where: str) -> dict[str, Any]:
    """Return keys with underscores: the exercises have both data-spaces and data_spaces."""
    return {key.replace("-", "_"): entry for key, entry in keyed(value, where).items()}


def _number(value: Any, where: str) -> float:
    """Return a number; YAML 1.1 reads 1e-9 as text."""
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not abs(number) <= MAX_AMOUNT:
        raise WrongValue(f"{where} is {shown(value)}, expected a number")
    return number
