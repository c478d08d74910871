"""Budgets: how large the runs of a study are, from minutes on embedded data to exactly the paper's."""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...registry import Registry

__all__ = ["BUDGETS", "Budget", "Setting", "budget_named"]


@dataclass(frozen=True)
class Setting:
    """The data, network and recipe that stand for one of the paper's settings."""

    data: str
    model: str
    recipe: str | None  # None: the usual one of the data set
    sparsities: tuple[float, ...]
    epochs: int | None = None  # None: as many as the recipe has
    recipes: Mapping[str, str] = field(default_factory=dict)  # of methods that are trained by their own


@dataclass(frozen=True)
class Budget:
    """What is trained for each of the paper's settings, which are known by their networks."""

    name: str
    about: str
    settings: Mapping[str, Setting]
    seeds: tuple[int, ...]
    methods: tuple[str, ...] | None = None  # only these curves; None: all of them

    def narrow(
        self,
        *,
        epochs: int | None = None,
        seeds: int | None = None,
        sparsities: Sequence[float] | None = None,
        methods: Sequence[str] | None = None,
    ) -> "Budget":
        """Return this budget with other epochs, the first `seeds` seeds, other sparsities, or only some curves.

        Other epochs are another budget, with a name of its own; all else is a part of the same, or more of it.

        >>> Budget("own", "", {}, seeds=(5, 6)).narrow(seeds=3).seeds
        (5, 6, 0)
        """
        settings = {
            network: replace(
                setting,
                epochs=setting.epochs if epochs is None else epochs,
                sparsities=setting.sparsities if sparsities is None else tuple(sparsities),
            )
            for network, setting in self.settings.items()
        }
        others = (seed for seed in itertools.count() if seed not in self.seeds)
        return replace(
            self,
            name=self.name if epochs is None else f"{self.name}-{epochs}-epochs",
            about=self.about if epochs is None else f"{self.about}; here {epochs} epochs",
            settings=settings,
            seeds=tuple(itertools.islice(itertools.chain(self.seeds, others), seeds or len(self.seeds))),
            methods=self.methods if methods is None else tuple(methods),
        )


BUDGETS: Registry[Budget] = Registry("budget")


def budget_named(name: str) -> Budget:
    """Return a budget by its name, one with other epochs too.

    >>> budget_named("digits-96-epochs").settings["resnet20"].epochs
    96
    """
    other = re.fullmatch(r"(.+)-(\d+)-epochs", name)
    return BUDGETS[other[1]].narrow(epochs=int(other[2])) if other else BUDGETS[name]


_CIFAR = (0.6723, 0.8, 0.9, 0.95, 0.98, 0.99)
_PROBMASK = {"probmask": "cifar-probmask"}  # its authors' batch size


def _add(budget: Budget) -> None:
    BUDGETS.register(budget.name)(budget)


_add(
    Budget(
        "digits",
        "a small network on the embedded digits, 24 epochs: minutes, no download",
        {"resnet20": Setting("digits", "digits_cnn", "digits", (0.9, 0.95, 0.98, 0.99), epochs=24)},
        seeds=(0, 1, 2),
    )
)
_add(
    Budget(
        "text",
        "a small GPT on the embedded book: an hour in all on two cores, no download",
        {"gpt": Setting("text", "gpt", "text", (0.8, 0.9, 0.95))},
        seeds=(0, 1, 2),
    )
)
_add(
    Budget(
        "cifar-short",
        "ResNet-20 on CIFAR-10, the paper's recipe scaled to 8 epochs: about half an hour per run on one core",
        {"resnet20": Setting("cifar10", "resnet20", "cifar", (0.95, 0.98, 0.99), 8, _PROBMASK)},
        seeds=(0, 1, 2),
    )
)
_add(
    Budget(
        "paper",
        "the paper's networks, data, epochs, seeds and sparsities",
        {
            "resnet20": Setting("cifar10", "resnet20", "cifar", _CIFAR, None, _PROBMASK),
            "vgg11": Setting("cifar10", "vgg11_st3", "cifar", _CIFAR, None, _PROBMASK),
            "wrn34x2": Setting("cifar100", "wrn34x2", "cifar", _CIFAR, None, _PROBMASK),
            "resnet50": Setting("imagenet", "resnet50", "imagenet", (0.8, 0.9, 0.95, 0.965, 0.98, 0.99)),
            "mobilenet_v1": Setting("imagenet", "mobilenet_v1", "imagenet-mobilenet", (0.8, 0.89, 0.941)),
        },
        seeds=(0, 1, 2),
    )
)
