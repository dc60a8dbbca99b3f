"""Hugging Face transformers: a quantization config, by which `from_pretrained` packs a model as it reads its file.

>>> from heterocompute.interop.transformers import HeteroConfig
>>> config = HeteroConfig("vsq4-g16-s4", activations="int8")
>>> model = AutoModel.from_pretrained("model-folder", quantization_config=config)  # doctest: +SKIP

Each weight is packed when it is read, before the next is read. `save_pretrained` writes codes and scales, and
`from_pretrained` reads them back unchanged, in a process that has imported this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from transformers.core_model_loading import ConversionOps
from transformers.quantizers import HfQuantizer, register_quantization_config, register_quantizer
from transformers.quantizers.base import get_keys_to_not_convert
from transformers.utils.quantization_config import QuantizationConfigMixin

from ..arrays.components import component_layout
from ..base.errors import Unsupported, WrongType, WrongValue, shown
from ..base.texts import quoted
from ..files.recipes import parse_recipe
from ..files.selection import patterns
from ..formats import Format
from ..formats.defining import carried
from ..products.arguments import as_format
from .torch.forms import form_axis, packed_of, packed_shape, replaced
from .torch.modules import PackedLinear
from .torch.walk import Layer, check_matches, every_layer, matching
from .torch.weights import PackedWeight, restored

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["HeteroConfig", "HeteroQuantizer", "lora_on_packed"]

METHOD = "heterocompute"


def __dir__() -> list[str]:
    return __all__


@register_quantization_config(METHOD)
class HeteroConfig(QuantizationConfigMixin):
    """Configure how `from_pretrained` packs a model.

    Parameters
    ----------
    format : Format, str or mapping
        One format, or a recipe: pattern of names of weights or modules -> format. The first match applies; None or
        ``"skip"`` leaves a layer unchanged.
    activations : Format or str, optional
        Round the inputs of each packed layer to this format.
    include : str or iterable of str, optional
        Patterns. Only matching layers are packed.
    exclude : str or iterable of str, optional
        Patterns of layers that stay float. Default: the output layer and embedding tables, as for other quantizers of
        transformers. Pass ``[]`` to pack these too. Tied weights and weights that parametrizations compute stay float.

    Raises
    ------
    TypeError, ValueError
        A format or pattern is invalid.

    Examples
    --------
    >>> HeteroConfig({"*.mlp.*": "int4-g32", "*": "int8"}, exclude=["*lm_head"]).to_dict()["format"]
    {'*.mlp.*': 'int4-g32', '*': 'int8'}
    """

    def __init__(
        self,
        format: Format | str | Mapping[str, Format | str | None] = "vsq4-g16-s4",
        activations: Format | str | None = None,
        include: str | Iterable[str] | None = None,
        exclude: str | Iterable[str] | None = None,
        **more: object,
    ) -> None:
        if unknown := sorted(set(more) - {"quant_method"}):
            wanted = "expected format, activations, include or exclude"
            raise WrongType(f"HeteroConfig: there is no option {shown(unknown[0])}, {wanted}")
        self.quant_method = METHOD
        if isinstance(format, Mapping):
            patterns(format)
            self.format: Any = {
                pattern: None if fmt is None else carried(as_format(fmt, "HeteroConfig: format"))
                for pattern, fmt in parse_recipe(format).items()
            }
        else:
            self.format = carried(as_format(format, "HeteroConfig: format"))
        self.activations = None if activations is None else carried(as_format(activations, "HeteroConfig: activations"))
        self.include = None if include is None else list(patterns(include))
        self.exclude = None if exclude is None else list(patterns(exclude))


@register_quantizer(METHOD)
class HeteroQuantizer(HfQuantizer):
    """Pack weights while `from_pretrained` reads them, and read packed weights; see `HeteroConfig`."""

    quantization_config: HeteroConfig

    def __init__(self, quantization_config: HeteroConfig, **more: object) -> None:
        super().__init__(quantization_config, **more)
        self._chosen: dict[str, tuple[Layer, Format]] = {}

    def validate_environment(self, *_: object, **options: object) -> None:
        """Reject a device map with layers on another device than the CPU."""
        devices = options.get("device_map")
        found = devices.values() if isinstance(devices, Mapping) else [devices]
        for place in found:
            if place is not None and str(place) not in ("cpu", "auto"):
                raise WrongValue(
                    f"from_pretrained: device_map has {shown(str(place))}, expected 'cpu': packed layers run there"
                )

    def update_device_map(self, device_map: object) -> Any:
        """Set the device of everything to the CPU."""
        return {"": "cpu"} if device_map is None or device_map == "auto" else device_map

    def _process_model_before_weight_loading(self, model: PreTrainedModel, **_: object) -> None:
        self._chosen = chosen(model, self.quantization_config)

    def _process_model_after_weight_loading(self, model: PreTrainedModel, **_: object) -> PreTrainedModel:
        """Drop the record of how packed weights were read: they are written unchanged."""
        packed = [f"{name}.format" for name in self._chosen]
        model._weight_conversions = [
            one for one in getattr(model, "_weight_conversions", None) or [] if not _changes(one, packed)
        ]
        for name, (layer, _fmt) in self._chosen.items():
            if not isinstance(getattr(model.get_submodule(layer.path), layer.attribute), PackedWeight):
                raise WrongValue(f"from_pretrained: the file holds no {'packed ' * self.pre_quantized}{quoted(name)}")
        return model

    def param_needs_quantization(self, model: PreTrainedModel, param_name: str, **_: object) -> bool:
        """Tell whether a weight is packed when it is read."""
        return param_name in self._chosen

    def get_quantize_ops(self) -> ConversionOps:
        """Return the operation that packs a weight."""
        return _Pack(self)

    @property
    def serialized_names(self) -> dict[str, list[str]]:
        """Return the names of the components of each attribute in a packed file."""
        found: dict[str, dict[str, None]] = {}
        for layer, fmt in self._chosen.values() if self.pre_quantized else ():
            parts = {"format": None, **dict.fromkeys(component_layout(fmt, packed_shape(layer), form_axis(layer)))}
            found.setdefault(layer.attribute, {}).update(parts)
        return {name: [f"{name}.{part}" for part in parts] for name, parts in found.items()}

    def get_load_operations(self) -> dict[str, Any]:
        """Return the operations that build a packed weight from its components."""
        return {"deserialize": _Unpack}

    def is_serializable(self) -> bool:
        """Return True."""
        return True

    @property
    def is_trainable(self) -> bool:
        """Return True: adapters can be trained; the packed weights are frozen."""
        return True

    @property
    def is_compileable(self) -> bool:
        """Return True."""
        return True

    def put(self, model: Any, name: str, weight: PackedWeight, missing: Any) -> None:
        """Replace a layer by one with a packed weight."""
        layer, _ = self._chosen[name]
        replaced(model, [layer], [weight])
        missing.discard(name)
        holder = model.get_submodule(layer.path)
        for one in (holder, weight, *weight.parts()):
            one._is_hf_initialized = True


class _Pack(ConversionOps):
    """Converts a tensor of a file to a packed weight in its layer."""

    def __init__(self, hf_quantizer: HeteroQuantizer) -> None:
        self.hf_quantizer = hf_quantizer

    def convert(
        self, input_dict: Any, model: object = None, full_layer_name: str = "", missing_keys: object = None, **_: object
    ) -> Any:
        left = {}
        for key, value in input_dict.items():
            name = full_layer_name if len(input_dict) == 1 else key
            tensor = value[0] if isinstance(value, list) else value
            if name not in self.hf_quantizer._chosen:
                left[name] = tensor
                continue
            layer, fmt = self.hf_quantizer._chosen[name]
            try:
                q = packed_of(layer, tensor.detach(), fmt)
            except ValueError as problem:
                raise WrongValue(f"from_pretrained: {quoted(name)}: {problem}") from None
            activations = self.hf_quantizer.quantization_config.activations
            self.hf_quantizer.put(model, name, PackedWeight(q, activations), missing_keys)
        return left


class _Unpack(ConversionOps):
    """Converts the components of a packed weight in a file to the packed weight in its layer."""

    def __init__(self, hf_quantizer: HeteroQuantizer) -> None:
        self.hf_quantizer = hf_quantizer

    def convert(
        self, input_dict: Any, model: object = None, full_layer_name: str = "", missing_keys: object = None, **_: object
    ) -> Any:
        parts = {key.rpartition(".")[2]: value[0] for key, value in input_dict.items()}
        q, activations = restored(parts, full_layer_name)
        layer, _fmt = self.hf_quantizer._chosen[full_layer_name]
        if tuple(q.shape) != packed_shape(layer):
            raise WrongValue(
                f"from_pretrained: {quoted(full_layer_name)} has shape {q.shape}, expected {packed_shape(layer)}"
            )
        self.hf_quantizer.put(model, full_layer_name, PackedWeight(q, activations), missing_keys)
        return {}

    @property
    def reverse_op(self) -> ConversionOps:
        raise Unsupported("packed weights are written as they are")


def _changes(conversion: Any, names: list[str]) -> bool:
    """Tell whether saving would undo a conversion of floats, such as experts in one tensor, on packed weights."""
    steps = getattr(conversion, "operations", ())
    if any(isinstance(step, _Unpack) for step in steps):
        return True
    try:
        undone = conversion.reverse_transform() if steps else None
    except (NotImplementedError, ValueError):  # saving raises it again, for the tensors that it is about
        return False
    return undone is not None and any(undone.rename_source_key(name)[1] is not None for name in names)


def chosen(model: PreTrainedModel, config: HeteroConfig) -> dict[str, tuple[Layer, Format]]:
    """Return the layers of a model that a config packs, by the name of the weight, and their formats.

    Raises
    ------
    ValueError
        A pattern matches nothing, or no layer is left.
    """
    layers = every_layer(model, "from_pretrained")
    recipe = parse_recipe(config.format if isinstance(config.format, Mapping) else {"*": config.format})
    wanted, unwanted = config.include or (), config.exclude or ()
    named = recipe if isinstance(config.format, Mapping) else ()
    check_matches(model, layers, (*wanted, *unwanted, *named), "from_pretrained")
    tied = {*model.all_tied_weights_keys.keys(), *model.all_tied_weights_keys.values()}
    heads = set(get_keys_to_not_convert(model))
    included, excluded = (matching(dict.fromkeys(some, True)) for some in (wanted, unwanted))
    of_layer = matching({pattern: (fmt,) for pattern, fmt in recipe.items()})
    found = {}
    for layer in layers:
        fmt = (of_layer(layer) or (None,))[0]
        if fmt is None or layer.problem or layer.name in tied or excluded(layer):
            continue
        if layer.module._parameters.get(layer.attribute) is None:  # the file holds what the weight is computed from
            continue
        if config.exclude is None and (layer.path in heads or layer.kind.startswith("embedding")):
            continue
        if not wanted or included(layer):
            found[layer.name] = layer, fmt
    if not found:
        why = next((f": {quoted(layer.name)}: {layer.problem}" for layer in layers if layer.problem), "")
        raise WrongValue(f"from_pretrained: HeteroConfig leaves no layer to pack{why}")
    return found


def lora_on_packed(config: Any) -> Any:
    """Enable LoRA adapters of PEFT on packed linear layers and return the config.

    Parameters
    ----------
    config : peft.LoraConfig

    Returns
    -------
    peft.LoraConfig
        The same object.

    Examples
    --------
    >>> model = get_peft_model(model, lora_on_packed(LoraConfig(target_modules=["q_proj"])))  # doctest: +SKIP
    """
    from peft.tuners.lora import Linear  # optional

    config._register_custom_module({PackedLinear: Linear})
    return config
