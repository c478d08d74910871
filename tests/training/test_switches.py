"""Switches of single weights: counted at every step, in windows of the run, and saved with it."""

import copy

import torch
from torch import nn

import st3
from st3.training.switches import SwitchCounter


def make_layers(weights):
    model = nn.Linear(4, 1, bias=False)
    model.weight.data.copy_(torch.tensor([weights]))
    return model, st3.layers(model)


def set_weights(model, weights):
    model.weight.data.copy_(torch.tensor([weights]))


def test_every_change_of_every_weight_is_counted_in_its_window():
    model, layers = make_layers([1.0, 1.0, 1.0, 0.0])
    counter = SwitchCounter(layers, windows=2, epochs=4)
    course = [[0.0, 1.0, 1.0, 0.0], [1.0, 1.0, 0.0, 0.0], [0.0, 1.0, 0.0, 1.0], [0.0, 2.0, 0.0, 1.0]]
    for epoch, weights in enumerate(course):
        set_weights(model, weights)
        counter.count(epoch)
    assert counter.histograms() == {
        "windows": [
            {"first_epoch": 1, "last_epoch": 2, "active": {"0": 2}, "zeroed": {"1": 1, "2": 1}},
            {"first_epoch": 3, "last_epoch": 4, "active": {"0": 1, "1": 1}, "zeroed": {"0": 1, "1": 1}},
        ]
    }


def test_windows_that_do_not_divide_the_epochs_cover_all_of_them_once():
    model, layers = make_layers([1.0, 1.0, 1.0, 1.0])
    counter = SwitchCounter(layers, windows=4, epochs=10)
    for epoch in range(10):
        set_weights(model, [float(epoch % 2), 1.0, 1.0, 1.0])  # the first weight switches in every epoch
        counter.count(epoch)
    windows = counter.histograms()["windows"]
    assert [(w["first_epoch"], w["last_epoch"]) for w in windows] == [(1, 3), (4, 5), (6, 8), (9, 10)]
    assert [w["active"] for w in windows] == [
        {"0": 3, "3": 1},
        {"0": 3, "2": 1},
        {"0": 3, "3": 1},
        {"0": 3, "2": 1},
    ]


def test_a_counter_continues_from_its_saved_state():
    model, layers = make_layers([1.0, 1.0, 0.0, 0.0])
    straight = SwitchCounter(layers, windows=1, epochs=2)
    set_weights(model, [0.0, 1.0, 1.0, 0.0])
    straight.count(0)
    state = copy.deepcopy(straight.state())
    set_weights(model, [1.0, 1.0, 1.0, 0.0])
    resumed = SwitchCounter(layers, windows=1, epochs=2)
    resumed.load_state(state)
    for counter in (straight, resumed):
        counter.count(1)
    assert straight.histograms() == resumed.histograms()
    assert straight.histograms()["windows"][0] == {
        "first_epoch": 1, "last_epoch": 2, "active": {"0": 1, "1": 1, "2": 1}, "zeroed": {"0": 1},
    }  # fmt: skip
