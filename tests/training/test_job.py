"""The rate and the scale of gradients that a job takes from its recipe, its model and its sparsifier."""

import pytest
import torch
from torch import nn

import st3
from st3.training.job import Job
from st3.training.process import Process
from st3.training.recipe import load_recipe
from st3.training.tasks import TASKS


class Batches:
    """Twenty epochs of five batches; only their number matters here."""

    def __len__(self):
        return 5


def job(name, *, is_sparse=True):
    recipe = load_recipe(name)
    torch.manual_seed(0)
    model = nn.Linear(30, 20)
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.optimizer.lr)
    choice = {"sparsity": 63 / 64, "total_steps": 100, "method": "topk"}
    sparsifier = st3.sparsify(model, optimizer, **choice) if is_sparse else None
    return Job(
        task=TASKS["language"],
        model=model,
        optimizer=optimizer,
        sparsifier=sparsifier,
        train=Batches(),
        validation=Batches(),
        recipe=recipe,
        process=Process(0, 1, torch.device("cpu")),
    )


def test_by_density_the_rate_is_divided_by_the_root_of_what_the_ramp_leaves():
    with_density, without = job("language-topk"), load_recipe("language-topk")
    for step in range(100):
        left = 1 - 63 / 64 * min(1.0, max(0, step) / 49)  # from step 1 to 50, after the step
        plain = without.optimizer.lr * without.rate.factor(step, 5, 20)
        assert with_density.rate(step) == pytest.approx(plain / left**0.5)
    assert with_density.rate(60) == pytest.approx(8 * without.optimizer.lr * without.rate.factor(60, 5, 20))


@pytest.mark.parametrize(("name", "is_sparse"), [("language", True), ("language-topk", False)])
def test_without_it_or_in_a_dense_run_the_rate_is_the_recipes(name, is_sparse):
    work = job(name, is_sparse=is_sparse)
    for step in (0, 30, 60):
        assert work.rate(step) == work.recipe.optimizer.lr * work.recipe.rate.factor(step, 5, 20)


@pytest.mark.parametrize(("gradient", "scaled"), [(3.0, 1.0), (1e-3, 100 / 101), (1e-5, 0.5), (0.0, 0.0)])
def test_gradients_are_scaled_to_a_root_mean_square_unless_they_are_tiny(gradient, scaled):
    work = job("language-topk")
    for parameter in work.model.parameters():
        parameter.grad = torch.full_like(parameter, gradient)
    seen = []
    work.optimizer.register_step_pre_hook(
        lambda *_: seen.extend(p.grad.clone() for p in work.model.parameters())
    )
    assert float(work.update()) == pytest.approx(gradient * 620**0.5)
    for grad in seen:
        assert torch.allclose(grad, torch.full_like(grad, scaled), rtol=1e-4)
