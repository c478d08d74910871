"""A registry finds things by name, and suggests the right name for a misspelt one."""

import pytest

from st3.registry import Registry, closest, suggest


@pytest.fixture
def fruits() -> Registry[str]:
    fruits: Registry[str] = Registry("fruit")
    for name in ("pear", "apple", "cherry"):
        fruits.register(name)(name.upper())
    return fruits


def test_a_registered_thing_is_found_by_its_name(fruits):
    assert fruits["apple"] == "APPLE"
    assert "apple" in fruits
    assert "plum" not in fruits


def test_the_decorator_returns_the_thing_unchanged():
    makers: Registry[type] = Registry("maker")

    @makers.register("maker")
    class Maker:
        pass

    assert makers["maker"] is Maker


def test_names_come_in_alphabetical_order(fruits):
    assert list(fruits) == ["apple", "cherry", "pear"]


def test_a_misspelt_name_is_answered_with_the_nearest_one(fruits):
    with pytest.raises(LookupError) as error:
        fruits["aple"]
    assert str(error.value) == "unknown fruit 'aple'; did you mean 'apple'? (known: apple, cherry, pear)"


def test_a_name_unlike_all_others_is_answered_with_the_known_names(fruits):
    with pytest.raises(LookupError) as error:
        fruits["xyz"]
    assert str(error.value) == "unknown fruit 'xyz' (known: apple, cherry, pear)"


def test_an_empty_registry_knows_no_names():
    with pytest.raises(LookupError) as error:
        Registry("fruit")["apple"]
    assert str(error.value) == "unknown fruit 'apple' (known: none)"


def test_a_hint_is_given_instead_of_the_nearest_name(fruits):
    fruits.hint("apples", "one 'apple' at a time")
    with pytest.raises(LookupError) as error:
        fruits["apples"]
    assert str(error.value) == "unknown fruit 'apples'; one 'apple' at a time (known: apple, cherry, pear)"


def test_a_hinted_name_is_not_a_registered_one(fruits):
    fruits.hint("apples", "one 'apple' at a time")
    assert "apples" not in fruits
    assert list(fruits) == ["apple", "cherry", "pear"]


def test_a_name_registered_twice_is_refused_and_the_first_thing_stays(fruits):
    with pytest.raises(ValueError, match=r"^fruit 'apple' is registered twice$"):
        fruits.register("apple")("another")
    assert fruits["apple"] == "APPLE"


def test_one_decorator_cannot_register_two_things(fruits):
    file = fruits.register("plum")
    file("first")
    with pytest.raises(ValueError, match=r"^fruit 'plum' is registered twice$"):
        file("second")


def test_registries_do_not_share_their_things(fruits):
    assert list(Registry("fruit")) == []


def test_the_closest_names_come_best_first_up_to_a_number():
    known = ["global", "globe", "local", "sigma"]
    assert closest("globl", known) == ["global", "globe", "local"]
    assert closest("globl", known, most=1) == ["global"]
    assert closest("xyz", known) == []


def test_of_equally_close_names_one_with_a_digit_in_the_same_place_wins():
    assert closest("st4", ["str", "st3", "set"], most=1) == ["st3"]
    assert closest("ST-4", ["str", "st3", "set"], most=1) == ["st3"]
    assert closest("resnet30", ["resnet_a", "resnet20"], most=1) == ["resnet20"]


def test_a_suggestion_is_the_end_of_a_sentence_or_nothing():
    assert suggest("globl", ["local", "global"]) == "; did you mean 'global'?"
    assert suggest("globl", ["local", "global"], spell=str.upper) == "; did you mean 'GLOBAL'?"
    assert suggest("xyz", ["local", "global"]) == ""
    assert suggest("globl", []) == ""
