"""The data sets by name. A separate file, because every data set imports it and `__init__` imports every data set."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..registry import Registry
from .examples import Splits

__all__ = ["DATASETS", "DataSets", "Declaration"]

# Called as read(directory, download=False, **options); an embedded data set as read(**options).
Read = Callable[..., Splits]


@dataclass(frozen=True)
class Declaration:
    """What a data set says about itself; names are those of the catalogues of networks and recipes."""

    model: str | None = None  # the network to train on it unless the user names another
    recipe: str | None = None  # the recipe to train with unless the user names another
    recipes: Mapping[str, str] = field(
        default_factory=dict
    )  # network -> its recipe, where `recipe` does not fit
    embedded: bool = False  # needs no files: `read` takes neither a directory nor `download`
    dense_twin: bool = False  # so quick to train that a sparse run trains its dense twin as well

    def recipe_for(self, model: object) -> str | None:
        """Return the recipe for the network called `model`."""
        return self.recipes.get(str(model), self.recipe)


class DataSets(Registry[Read]):
    """Functions that read a data set, by name, with what each declares.

    >>> DATASETS.declaration("cifar10").model
    'resnet20'
    """

    def __init__(self) -> None:
        super().__init__("data set")
        self._declarations: dict[str, Declaration] = {}

    def register(
        self,
        name: str,
        *,
        model: str | None = None,
        recipe: str | None = None,
        recipes: Mapping[str, str] | None = None,
        embedded: bool = False,
        dense_twin: bool = False,
    ) -> Callable[[Read], Read]:
        """Return a decorator that files its argument under `name`; the rest is its `Declaration`."""
        file = super().register(name)

        def file_and_declare(read: Read) -> Read:
            file(read)
            self._declarations[name] = Declaration(model, recipe, recipes or {}, embedded, dense_twin)
            return read

        return file_and_declare

    def declaration(self, name: str) -> Declaration:
        """Return what the data set `name` says about itself."""
        self[name]  # a misspelt name is answered with a suggestion
        return self._declarations[name]


DATASETS = DataSets()
