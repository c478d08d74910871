"""Measurements are cached, and nothing breaks if they cannot be."""

import json
from pathlib import Path

import pytest

from st3 import processor as room
from st3.engine.plan.assemble import Alternative
from st3.engine.plan.tune import VERSION, Tuner, cache_file, read_cache

WAYS = [Alternative(f"sparse {number}", float(number), lambda binding: [], 0) for number in range(3)]


def slowest_guess_is_fastest(candidates):
    return [1.0 / (1 + each.cost) for each in candidates]


def test_the_fastest_is_chosen_and_cached_in_the_file(tmp_path):
    file = tmp_path / "deep" / "tuning.json"
    tuner = Tuner(file)
    chosen, measured = tuner.choose("layer", WAYS, slowest_guess_is_fastest)
    assert chosen is WAYS[2]
    assert set(measured) == {"sparse 0", "sparse 1", "sparse 2"}
    tuner.save()

    def never(candidates):
        raise AssertionError("measured again")

    assert Tuner(file).choose("layer", WAYS, never) == (WAYS[2], {})


def test_some_of_every_kind_are_measured_unless_their_estimates_are_far_too_high():
    def ways(kind, *costs):
        return [Alternative(f"{kind} {cost}", cost, lambda binding: [], 0) for cost in costs]

    sparse = ways("sparse", *(1 + 0.01 * number for number in range(20)))
    dense, apart = ways("dense", 1.9, 2.0, 2.1, 2.2, 2.6), ways("sparse apart", 2.4, 2.7)
    _, measured = Tuner(None).choose("layer", [*dense, *apart, *sparse], slowest_guess_is_fastest)
    assert set(measured) == {each.label for each in [*sparse[:16], *dense[:4], apart[0]]}


def test_a_cached_alternative_that_no_longer_exists_is_measured_again(tmp_path):
    file = tmp_path / "tuning.json"
    file.write_text(json.dumps({"version": VERSION, "fastest": {"layer": "sparse 7"}}), encoding="utf-8")
    assert Tuner(file).choose("layer", WAYS, slowest_guess_is_fastest)[0] is WAYS[2]


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "[" * 100_000, '{"version": 0, "fastest": {"a": "b"}}', f'{{"version": {VERSION}}}'],
)
def test_a_damaged_or_old_file_is_ignored(tmp_path, content):
    file = tmp_path / "tuning.json"
    file.write_text(content, encoding="utf-8")
    assert read_cache(file) == {}


def test_two_processes_add_to_one_file(tmp_path):
    file = tmp_path / "tuning.json"
    one, two = Tuner(file), Tuner(file)
    one.choose("a", WAYS, slowest_guess_is_fastest)
    two.choose("b", WAYS, slowest_guess_is_fastest)
    one.save()
    two.save()
    assert set(read_cache(file)) == {"a", "b"}
    assert [path.name for path in tmp_path.iterdir()] == ["tuning.json"]


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    tuner = Tuner(tmp_path / "file" / "tuning.json")
    tuner.choose("a", WAYS, slowest_guess_is_fastest)
    tuner.save()


def test_the_environment_names_the_file_or_turns_it_off(tmp_path, monkeypatch):
    monkeypatch.setenv("ST3_TUNING", "off")
    assert cache_file() is None
    monkeypatch.setenv("ST3_TUNING", str(tmp_path / "mine.json"))
    assert cache_file() == tmp_path / "mine.json"


def test_without_a_home_nothing_is_cached(monkeypatch):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    for name in ("ST3_TUNING", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert cache_file() is None


def test_processors_that_differ_in_model_or_instructions_share_no_file(tmp_path, monkeypatch):
    def file_of(model, stepping, flags):
        text = f"model\t: {model}\nmodel name\t: Intel(R) Xeon(R)\nstepping\t: {stepping}\nflags\t: {flags}\n"
        (tmp_path / "cpuinfo").write_text(text)
        return cache_file()

    monkeypatch.setattr(room, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.delenv("ST3_TUNING", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    this = file_of(207, 2, "sse4_2 avx2 avx512f")
    assert this == file_of(207, 2, "avx512f avx2 sse4_2 hypervisor")  # the order says nothing
    others = [
        file_of(143, 2, "sse4_2 avx2 avx512f"),
        file_of(207, 3, "sse4_2 avx2 avx512f"),
        file_of(207, 2, "sse4_2 avx2 avx512f amx_bf16"),  # hidden by some virtual machines
    ]
    assert len({this, *others}) == 4
    assert all(other.parent == tmp_path / "st3" for other in others)
