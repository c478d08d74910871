"""Which weights a user means: globs, regular expressions, types and predicates."""

import re
from functools import partial

import pytest
from torch import nn

from st3.core.layers.patterns import (
    FIRST,
    LAST,
    USUAL,
    as_patterns,
    describe,
    matches,
    means_itself,
    nearest_names,
)

LINEAR, CONV = nn.Linear(1, 1), nn.Conv2d(1, 1, 1)


@pytest.mark.parametrize(
    ("glob", "name", "expected"),
    [
        ("conv1.weight", "conv1.weight", True),
        ("conv1", "conv1.weight", True),  # a module means the weights below it ...
        ("layer1", "layer1.0.conv2.weight", True),  # ... however deep
        ("layer1.0", "layer1.0.conv2.weight", True),
        ("layer1", "layer10.0.weight", False),  # a name is not a prefix of characters
        ("conv", "conv1.weight", False),
        ("conv2", "layer1.0.conv2.weight", False),  # it starts at the top
        ("*.conv2", "layer1.0.conv2.weight", True),
        ("*conv2*", "layer1.0.conv2.weight", True),
        ("layer?.0", "layer1.0.conv2.weight", True),
        ("layer[12].*", "layer2.5.conv2.weight", True),
        ("layer[12].*", "layer3.5.conv2.weight", False),
        ("*.weight", "fc.weight", True),
        ("*.weight", "weight", False),
        ("*", "weight", True),
        ("Conv1", "conv1.weight", False),  # case counts
    ],
)
def test_a_glob_matches_a_name_from_its_beginning_up_to_a_dot(glob, name, expected):
    assert matches(glob, name, LINEAR) is expected


@pytest.mark.parametrize(
    ("expression", "name", "expected"),
    [
        (r"conv\d", "layer1.0.conv2.weight", True),  # anywhere in the name
        (r"^conv\d", "layer1.0.conv2.weight", False),
        (r"^layer\d\.0", "layer1.0.conv2.weight", True),
        (r"fc|head", "head.weight", True),
        (r"CONV", "conv1.weight", False),
        (r"(?i)CONV", "conv1.weight", True),
    ],
)
def test_a_regular_expression_is_searched_for_in_the_whole_name(expression, name, expected):
    assert matches(re.compile(expression), name, LINEAR) is expected


def test_a_type_means_the_weights_of_its_modules():
    assert matches(nn.Conv2d, "any.weight", CONV) is True
    assert matches(nn.Conv2d, "any.weight", LINEAR) is False


def test_a_type_means_its_subclasses_too():
    class Own(nn.Linear):
        pass

    assert matches(nn.Linear, "any.weight", Own(1, 1)) is True
    assert matches(Own, "any.weight", LINEAR) is False


def test_a_predicate_is_asked_with_name_and_module():
    asked = []

    def is_wide(name, module):
        asked.append((name, module))
        return module.out_features  # any true value will do

    assert matches(is_wide, "fc.weight", LINEAR) is True
    assert asked == [("fc.weight", LINEAR)]


# ---------------------------------------------------------------- one or many


@pytest.mark.parametrize(
    "pattern", ["conv1", re.compile("conv"), nn.Linear, lambda name, module: True, FIRST]
)
def test_one_pattern_may_stand_alone(pattern):
    assert as_patterns(pattern, "exclude") == (pattern,)


def test_many_patterns_may_be_mixed_and_come_in_any_collection():
    def predicate(name, module):
        return False

    patterns = ["conv1", re.compile("conv"), nn.Linear, predicate]
    assert as_patterns(patterns, "exclude") == tuple(patterns)
    assert as_patterns(iter(patterns), "exclude") == tuple(patterns)
    assert as_patterns(partial(predicate, "name"), "exclude")[0].func is predicate


@pytest.mark.parametrize("nothing", [None, (), []])
def test_no_pattern_at_all(nothing):
    assert as_patterns(nothing, "exclude") == ()


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (["conv1", 5], "5"),
        (5, "5"),
        ([None], "None"),
        (LINEAR, repr(LINEAR)),  # a module, where its type or name was meant
        (int, "<class 'int'>"),
        ([nn.Linear, dict], "<class 'dict'>"),
    ],
    ids=["number in a list", "number", "None in a list", "module", "type", "type in a list"],
)
def test_what_is_no_pattern_is_refused(given, shown):
    with pytest.raises(TypeError) as error:
        as_patterns(given, "include")
    assert str(error.value) == (
        "include takes names, globs, compiled regular expressions, nn.Module types or functions "
        f"(name, module) -> bool; got {shown}"
    )


# ---------------------------------------------------------------- near misses and words

NAMES = ["conv1.weight", "layer1.0.conv1.weight", "layer1.0.conv2.weight", "head.fc.weight"]


@pytest.mark.parametrize(
    ("pattern", "best"),
    [
        ("conv", "conv1"),
        ("covn1", "conv1"),
        ("*conv1x*", "conv1"),  # stars and dots at the ends are not part of the name
        ("head.fd", "head.fc"),
        ("layer1.0.conv3", "layer1.0.conv2"),
        ("hed", "head"),
    ],
)
def test_near_misses_are_names_of_weights_or_modules_that_look_alike(pattern, best):
    assert best in nearest_names(pattern, NAMES)


def test_at_most_three_near_misses_are_named():
    assert len(nearest_names("conv", [f"conv{i}.weight" for i in range(20)])) == 3


@pytest.mark.parametrize("pattern", ["xyz", re.compile("conv"), nn.Conv2d, lambda name, module: False])
def test_there_may_be_no_near_miss(pattern):
    assert nearest_names(pattern, NAMES) == []


def own_predicate(name, module):
    return True


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("layer*", "'layer*'"),
        (re.compile(r"layer\d"), r"re.compile('layer\\d')"),
        (nn.Conv2d, "Conv2d"),
        (own_predicate, "own_predicate"),
        (USUAL, "st3.USUAL"),
    ],
)
def test_a_pattern_is_described_as_the_user_wrote_it(pattern, words):
    assert describe(pattern) == words


def test_the_constants_cannot_be_the_name_of_a_module():
    for constant in (FIRST, LAST, USUAL):
        assert " " in constant
    assert len({FIRST, LAST, USUAL}) == 3


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("rnn.lstm.weight_hh_l0", True),
        ("rnn.lstm", True),  # the module that holds it
        ("*lstm*", True),
        ("rnn", False),  # a module above
        (re.compile("rnn"), True),
        (nn.LSTM, True),
        (own_predicate, True),
    ],
)
def test_a_pattern_means_a_weight_itself_or_only_something_above_it(pattern, expected):
    assert means_itself(pattern, ["rnn.lstm.weight_hh_l0", "rnn.lstm"]) is expected
