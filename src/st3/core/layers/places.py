"""Every parameter of a model with its place: the names and modules as the user wrote them, without wrappers."""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

__all__ = ["Place", "named_weights", "placed_weights", "unwrap"]

# Class -> the attribute that holds the user's model. By name: none of these packages need be installed.
_WRAPPERS = {
    "DistributedDataParallel": "module",
    "DataParallel": "module",
    "AveragedModel": "module",
    "OptimizedModule": "_orig_mod",  # torch.compile
    "_FabricModule": "_forward_module",  # Lightning Fabric
    "GradSampleModule": "_module",  # Opacus
    "AbstractGradSampleModule": "_module",
}


@dataclass(frozen=True)
class Place:
    """One place of a parameter; a tied one has several.

    weight_norm splits a weight into g * v / |v|. There v, the direction, stands for the weight; g is the magnitude.

    >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 2, bias=False))
    >>> [(place.name, place.key) for _, (place,) in placed_weights(layer) if not place.is_magnitude]
    [('parametrizations.weight.original1', 'weight')]
    """

    name: str  # of the parameter: "head.0.weight"
    path: str  # of the module that it belongs to: "head.0"
    key: str  # what that module calls it: "weight"
    module: nn.Module
    is_magnitude: bool = False  # of weight_norm
    is_direction: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The parameter's name and, where weight_norm has renamed it, the name of the weight."""
        plain = _join(self.path, self.key)
        return (self.name,) if plain == self.name else (self.name, plain)


def placed_weights(model: nn.Module) -> Iterator[tuple[nn.Parameter, list[Place]]]:
    """Yield every parameter once, with all its places: more than one where it is tied."""
    found: dict[int, tuple[nn.Parameter, list[Place]]] = {}
    modules = list(_walk(unwrap(model), ""))
    owners = dict(modules)
    for path, module in modules:
        for key, parameter in module._parameters.items():
            if parameter is not None:
                place = _place(path, key, module, owners)
                found.setdefault(id(parameter), (parameter, []))[1].append(place)
    yield from found.values()


def named_weights(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield every parameter once, under its first name in the user's model."""
    for parameter, places in placed_weights(model):
        yield places[0].name, parameter


def unwrap(model: nn.Module) -> nn.Module:
    """Return the user's model inside DistributedDataParallel, torch.compile, an average, Fabric or Opacus."""
    while True:
        held = (_WRAPPERS.get(cls.__name__) for cls in type(model).__mro__)
        inner = next((getattr(model, attribute, None) for attribute in held if attribute), None)
        if not isinstance(inner, nn.Module):
            return model
        model = inner


def _walk(module: nn.Module, path: str) -> Iterator[tuple[str, nn.Module]]:
    yield path, module
    for name, child in module._modules.items():
        if child is not None:
            yield from _walk(unwrap(child), _join(path, name))


def _place(path: str, key: str, module: nn.Module, owners: dict[str, nn.Module]) -> Place:
    name = _join(path, key)
    if type(module).__name__ == "ParametrizationList":  # at OWNER.parametrizations.KEY
        owner, _, plain = f".{path}".rpartition(".parametrizations.")
        owner = owner.removeprefix(".")
        if any(type(step).__name__ == "_WeightNorm" for step in module.children()):
            is_direction = key == "original1"
            key = plain if is_direction else f"{plain}_g"
            return Place(name, owner, key, owners[owner], not is_direction, is_direction)
        return Place(name, owner, name.removeprefix(f"{owner}."), owners[owner])
    for hook in module._forward_pre_hooks.values():  # torch.nn.utils.weight_norm, the older form
        plain = getattr(hook, "name", "")
        if type(hook).__name__ == "WeightNorm" and key in (f"{plain}_g", f"{plain}_v"):
            is_direction = key.endswith("_v")
            return Place(name, path, plain if is_direction else key, module, not is_direction, is_direction)
    return Place(name, path, key, module)


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
