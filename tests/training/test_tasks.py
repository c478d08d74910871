"""Tasks: what is lost and scored, which score is better, and that records tell the task."""

import math

import pytest
import torch

from st3.training.tasks import TASKS, name_of, task_of


@pytest.fixture(params=[*TASKS])
def task(request):
    return TASKS[request.param]


def test_each_task_has_a_score_and_examples_of_its_own():
    assert len({TASKS[name].score.name for name in TASKS}) == len([*TASKS])
    assert len({TASKS[name].examples for name in TASKS}) == len([*TASKS])


def test_inputs_and_scores_fit_together(task):
    inputs = task.make_inputs(3, task.usual_shape, 7, torch.Generator().manual_seed(0))
    assert inputs.shape == task.blank(3, task.usual_shape).shape
    assert inputs.dtype == task.blank(3, task.usual_shape).dtype == task.dtype
    shape = task.output_shape(3, task.usual_shape, 7)
    targets = torch.zeros(shape[:-1], dtype=torch.int64)
    assert task.summed_loss(torch.zeros(shape), targets).item() == pytest.approx(
        targets.numel() * math.log(7)
    )


def test_a_sum_over_predictions_does_not_depend_on_the_batches(task):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(task.output_shape(4, (5,), 3), generator=generator)
    targets = torch.randint(3, scores.shape[:-1], generator=generator)
    for total in (task.summed_loss, task.summed_score):
        parts = total(scores[:1], targets[:1]) + total(scores[1:], targets[1:])
        assert float(total(scores, targets)) == pytest.approx(float(parts))


def test_the_score_of_classification_counts_right_answers():
    scores = torch.tensor([[2.0, 1.0], [0.0, 1.0], [5.0, 1.0]])
    right = TASKS["classification"].summed_score(scores, torch.tensor([0, 1, 1]))
    assert TASKS["classification"].metrics(0.6, right.item(), 3) == {"loss": 0.6 / 3, "accuracy": 2 / 3}


def test_the_score_of_language_is_the_bits_of_the_right_characters():
    """Scores of (log 1/2, log 1/4, log 1/4): the first costs one bit, the others two."""
    scores = torch.tensor([0.5, 0.25, 0.25]).log().expand(1, 3, 3)
    bits = TASKS["language"].summed_score(scores, torch.tensor([[0, 1, 2]]))
    assert TASKS["language"].metrics(3.0, bits.item(), 3) == {"loss": 1.0, "bits": pytest.approx(5 / 3)}


def test_label_smoothing_changes_the_loss_and_not_the_score(task):
    scores = torch.randn(task.output_shape(4, (5,), 3), generator=torch.Generator().manual_seed(0))
    targets = torch.zeros(scores.shape[:-1], dtype=torch.int64)
    assert task.summed_loss(scores, targets, 0.1) != task.summed_loss(scores, targets)


def test_more_accuracy_and_fewer_bits_are_better():
    assert TASKS["classification"].score.gain(0.9, 0.8) == pytest.approx(0.1)
    assert TASKS["language"].score.gain(2.5, 2.75) == 0.25
    assert TASKS["language"].score.is_better(2.5, 2.75)
    assert not TASKS["classification"].score.is_better(0.8, 0.8)


def test_the_first_score_is_the_best_so_far_unless_it_is_not_a_number(task):
    assert task.score.is_better(0.5, None)
    assert not task.score.is_better(float("nan"), None)
    assert not task.score.is_better(float("nan"), 0.5)


def test_scores_are_shown_with_their_units():
    assert TASKS["classification"].score.show(0.9123) == "91.23 %"
    assert TASKS["language"].score.show(2.3456) == "2.346"
    assert TASKS["classification"].score.axis == "accuracy (%)"
    assert TASKS["language"].score.axis == "bits per character"
    assert TASKS["language"].score.show_step(-0.25) == "0.250 bits per character"


def test_a_record_tells_its_task(task):
    assert task_of(task.metrics(1.0, 1.0, 2.0)) is task
    assert TASKS[name_of(task)] is task
    assert task_of({}) is task_of(None) is TASKS["classification"]
