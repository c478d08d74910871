"""The front door: few names at the top, plug-ins by room, and a suggestion for a misspelt name."""

import pytest

import st3


def test_everything_at_the_top_is_there_and_there_is_little_of_it():
    assert len(st3.__all__) <= 20
    for name in st3.__all__:
        assert getattr(st3, name) is not None


@pytest.mark.parametrize(
    "room", [st3.methods, st3.allocations, st3.ramps, st3.errors], ids=lambda room: room.__name__
)
def test_every_public_name_of_a_room_is_there_once(room):
    assert len(room.__all__) == len(set(room.__all__))
    for name in room.__all__:
        assert getattr(room, name) is not None


def test_no_plug_in_is_at_the_top():
    plug_ins = {*st3.methods.__all__, *st3.allocations.__all__, *st3.ramps.__all__, *st3.errors.__all__}
    assert not plug_ins & set(dir(st3))


@pytest.mark.parametrize(
    ("room", "wrong", "right"),
    [
        (st3.methods, "Fether", "Feather"),
        (st3.methods, "RigLL", "RigL"),
        (st3.methods, "TresholdMethod", "ThresholdMethod"),
        (st3.allocations, "Unifrom", "Uniform"),
        (st3.ramps, "Cubik", "Cubic"),
    ],
)
def test_a_misspelt_name_is_answered_with_the_nearest_one(room, wrong, right):
    with pytest.raises(AttributeError) as error:
        getattr(room, wrong)
    assert str(error.value) == f"module {room.__name__!r} has no attribute {wrong!r}; did you mean {right!r}?"


@pytest.mark.parametrize(
    "room", [st3, st3.methods, st3.allocations, st3.ramps], ids=lambda room: room.__name__
)
@pytest.mark.parametrize("name", ["xyzzy", "__wrapped__"])
def test_a_name_unlike_all_others_gets_no_suggestion(room, name):
    with pytest.raises(AttributeError) as error:
        getattr(room, name)
    assert str(error.value) == f"module {room.__name__!r} has no attribute {name!r}"


def test_a_name_that_is_missing_cannot_be_imported():
    with pytest.raises(ImportError, match="cannot import name 'Fether'"):
        from st3.methods import Fether  # noqa: F401
