"""Files of compiled models: what they hold, what is refused, and that they compute what the model did."""

import ctypes
import pickle
import struct
import threading
from pathlib import Path

import pytest
import torch
from tests.engine.odd_models import randomise
from torch import Tensor, nn

import st3
from st3.engine import native, schema
from st3.engine.saving import checksum

pytestmark = pytest.mark.skipif(not native.is_built(), reason="the kernels are not built")


class Network(nn.Module):
    """A small network with a branch."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.body = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.depthwise, self.head = nn.Conv2d(8, 8, 3, stride=2, padding=1, groups=8), nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.stem(x))
        x = self.depthwise(torch.relu(self.body(x)) + x)
        return self.head(nn.functional.max_pool2d(x, 2).mean((2, 3)))


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    model = randomise(Network(), seed)
    with torch.no_grad():
        model.body.weight.mul_(torch.rand_like(model.body.weight) < 0.2)
    return model


@pytest.fixture
def x() -> Tensor:
    return torch.randn(2, 3, 11, 9, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def fast(x):
    return st3.engine.compile(network(), x, tune=False, threads=2)


@pytest.fixture
def file(fast, tmp_path) -> Path:
    return fast.save(tmp_path / "model.st3run")


def test_a_loaded_model_gives_the_same_numbers_bit_for_bit(fast, file, x):
    loaded = st3.engine.load(file)
    assert torch.equal(loaded(x), fast(x))
    assert torch.equal(loaded(x.permute(0, 1, 3, 2).contiguous().permute(0, 1, 3, 2)), fast(x))
    assert [(each.name, each.shape) for each in loaded.inputs] == [("x", (2, 3, 11, 9))]
    assert [(each.name, each.shape) for each in loaded.outputs] == [("output", (2, 10))]
    assert repr(loaded) == f"Loaded(model.st3run, 2x3x11x9, threads=2, {native.kernels().name})"
    assert torch.equal(pickle.loads(pickle.dumps(loaded))(x=x), fast(x))


@pytest.mark.parametrize("isa", ["avx512", "avx2", "baseline"])
def test_a_file_has_a_plan_for_every_instruction_set(fast, file, x, isa):
    if isa not in native.usable_instruction_sets():
        pytest.skip(f"{isa} is not available")
    loaded = st3.engine.load(file, isa=isa)
    assert loaded.isa == isa
    assert torch.allclose(loaded(x), network()(x), atol=1e-5)


@pytest.mark.parametrize("threads", [1, 3])
def test_a_file_runs_with_any_number_of_threads(fast, file, x, threads):
    assert torch.equal(st3.engine.load(file, threads=threads)(x), fast(x))


def test_the_tuned_plan_is_what_is_saved(x, tmp_path, monkeypatch):
    monkeypatch.setenv("ST3_TUNING", "off")
    fast = st3.engine.compile(network(), x, threads=1)
    loaded = st3.engine.load(fast.save(tmp_path / "tuned.st3run"))
    assert torch.allclose(loaded(x), fast(x), atol=1e-5)
    if hasattr(
        fast._last, "runner"
    ):  # otherwise torch was faster; the engine's program is saved all the same
        assert torch.equal(loaded(x), fast(x))


def test_a_batch_in_parts_is_saved_with_its_parts(tmp_path):
    x = torch.randn(6, 3, 70, 70)
    model = randomise(nn.Sequential(nn.Conv2d(3, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 4, 3)), 0)
    fast = st3.engine.compile(model, x, tune=False, threads=2)
    assert fast._last.runner.planned.plan.parts > 1
    path = fast.save(tmp_path / "parts.st3run")
    for threads in (1, 2, 5):
        assert torch.equal(st3.engine.load(path, threads=threads)(x), fast(x))


def test_equal_arrays_are_stored_once(file):
    content = file.read_bytes()
    header = schema.FileHeader.from_buffer_copy(content)
    places: dict[bytes, set[int]] = {}
    count = 0
    for number in range(header.plan_count):
        at = header.plans + number * ctypes.sizeof(schema.FilePlan)
        plan = schema.FilePlan.from_buffer_copy(content, at).plan
        for each in (schema.Constant * plan.constant_count).from_buffer_copy(content, plan.constants):
            assert each.address % 64 == 0
            places.setdefault(content[each.address : each.address + each.bytes], set()).add(each.address)
            count += 1
    assert all(len(found) == 1 for found in places.values())
    assert header.plan_count == 1 or len(places) < count  # plans share some


class Heads(nn.Module):
    """Named arguments, and outputs in a dict, one of them twice."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 5), nn.Linear(5, 3)

    def forward(self, left: Tensor, *, right: Tensor) -> dict[str, Tensor]:
        hidden = torch.relu(self.a(left) + right)
        return {"score": self.b(hidden), "hidden": hidden, "again": [hidden]}


def test_a_structure_becomes_a_flat_tuple_with_names(tmp_path):
    model, inputs = Heads().eval(), {"left": torch.randn(7, 6), "right": torch.randn(7, 5)}
    fast = st3.engine.compile(model, inputs, tune=False)
    loaded = st3.engine.load(fast.save(tmp_path / "heads.st3run"))
    assert [each.name for each in loaded.inputs] == ["left", "right"]
    assert [each.name for each in loaded.outputs] == ["score", "hidden", "again.0"]
    for outputs in (
        loaded(**inputs),
        loaded(*inputs.values()),
        loaded(inputs["left"], right=inputs["right"]),
    ):
        wanted = fast(**inputs)
        assert all(map(torch.equal, outputs, (wanted["score"], wanted["hidden"], wanted["again"][0])))


def message(kind: type[Exception], call, *args, **kwargs) -> str:
    with pytest.raises(kind) as fault:
        call(*args, **kwargs)
    return str(fault.value)


def test_calls_that_do_not_fit_are_refused(file, x):
    loaded = st3.engine.load(file)
    assert message(ValueError, loaded, x[:1]) == (
        "input 'x' has shape 1x3x11x9; model.st3run was made for 2x3x11x9: save a file for this shape"
    )
    assert message(ValueError, loaded, x.double()) == (
        "the input is torch.float64; the model was compiled for torch.float32"
    )
    assert message(ValueError, loaded, x[0]).startswith("the input has 3 dimensions, 3x11x9; ")
    assert message(TypeError, loaded, 3).startswith("the input is 3; the model was compiled for a tensor")
    assert message(ValueError, loaded, x, x) == "model.st3run was made for the inputs (x), got (..., ...)"
    assert message(ValueError, loaded, y=x) == "model.st3run was made for the inputs (x), got (y=...)"
    for threads in (5000, 0, -1, 1.5):
        assert message(ValueError, st3.engine.load, file, threads=threads) == (
            f"threads must be an integer from 1 to 1024, got {threads}"
        )
    assert message(native.NativeError, type(loaded._sessions[0]), loaded._model, 5000) == (
        "the number of threads must be from 1 to 1024, or 0 for that of the file; got 5000"
    )


def test_models_that_are_not_all_kernels_on_tensors_are_refused(tmp_path):
    path = tmp_path / "none.st3run"

    class Sorted(nn.Module):
        def forward(self, x: Tensor, by: int = 1) -> Tensor:
            return (x * by).sort(-1).values

    fast = st3.engine.compile(Sorted().eval(), torch.randn(3, 5), tune=False)
    found = message(ValueError, fast.save, path)
    assert found.startswith("cannot save Sorted: a file holds kernels only, and 1 of its ")
    assert "steps run in torch: sort" in found
    fast = st3.engine.compile(Sorted().eval(), (torch.randn(3, 5), 2), tune=False)
    assert message(ValueError, fast.save, path) == (
        "cannot save Sorted: argument 1 is 2; a file holds float32 and int64 tensors only"
    )

    class Where(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return torch.relu(x), x > 0

    fast = st3.engine.compile(Where().eval(), torch.randn(1, 4, 8, 8), tune=False)
    assert message(ValueError, fast.save, path) == (
        "cannot save Where: output 1 is not a float32 tensor that kernels compute; a file returns only such tensors"
    )
    fast = st3.engine.compile(nn.Linear(4, 3).eval(), torch.randn(2, 4), tune=False)
    assert message(ValueError, fast.save, path, instruction_sets=["neon"]).startswith(
        "cannot save Linear for 'neon': the instruction sets of this processor and library are "
    )
    assert message(TypeError, fast.save, path, instruction_sets="avx2") == (
        "instruction_sets must be a list of names, such as ['avx2'], got a string"
    )
    assert not path.exists()


def change(file: Path, field: str, value: int, *, repair: bool = True) -> None:
    """Set a field of the header, and repair the checksum."""
    content = bytearray(file.read_bytes())
    struct.pack_into("<q", content, getattr(schema.FileHeader, field).offset, value)
    if repair:
        struct.pack_into("<q", content, schema.FileHeader.checksum.offset, checksum(bytes(content[32:])))
    file.write_bytes(content)


def complaint(file: Path) -> str:
    return message(ValueError, st3.engine.load, file).removeprefix(f"cannot use {file}: ")


def test_damaged_files_are_refused_in_one_sentence(file, tmp_path):
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    size = len(whole)
    assert (
        complaint(file) == f"it is cut off or was appended to: it has {size - 1} bytes and should have {size}"
    )
    file.write_bytes(whole[:40])
    assert complaint(file) == "it is cut off: it has 40 bytes"
    file.write_bytes(b"PK" + whole[2:])
    assert complaint(file) == "it is not an .st3run file"
    for place in (32, 100, size // 2, size - 1):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        assert complaint(file) == "it is damaged: its checksum does not match"
    file.write_bytes(b"")
    assert complaint(file) == f"cannot open {file}: it is empty"
    assert message(FileNotFoundError, st3.engine.load, tmp_path / "no.st3run") == (
        f"cannot open {tmp_path / 'no.st3run'}: No such file or directory"
    )


def test_files_of_other_versions_name_the_version_that_wrote_them(file):
    whole = file.read_bytes()
    change(file, "version", 9)
    assert complaint(file) == (
        f"st3 {st3.__version__} wrote it in version 9 of the format, this library reads version 1: export it again"
    )
    file.write_bytes(whole)
    change(file, "schema", 1)
    assert complaint(file) == (
        f"st3 {st3.__version__} wrote it for kernels that differ from those of this library: export it again"
    )
    file.write_bytes(whole)
    plans = schema.FileHeader.from_buffer_copy(whole).plans
    content = bytearray(whole)
    size = ctypes.sizeof(schema.FilePlan)
    for number in range(len(native.usable_instruction_sets())):
        struct.pack_into("<q", content, plans + number * size + schema.FilePlan.variants.offset, 5)
    file.write_bytes(content)
    change(file, "version", 1)
    names = ", ".join(native.usable_instruction_sets())
    assert complaint(file) == (
        f"st3 {st3.__version__} made it for {names}: this processor and this library cannot run any of these; "
        "export it again"
    )


def test_the_verifier_names_the_step_and_the_field(file):
    content = bytearray(file.read_bytes())
    header = schema.FileHeader.from_buffer_copy(content)
    plan = schema.FilePlan.from_buffer_copy(content, header.plans).plan
    struct.pack_into("<i", content, plan.steps + schema.Step.tasks.offset, 1000)
    file.write_bytes(content)
    change(file, "version", 1)
    isa = native.kernels().name
    assert complaint(file).startswith(f"it is damaged: step 0 (Move) for {isa} has a wrong value: ")


def test_the_checksum_is_the_crc_that_is_documented():
    assert ctypes.c_uint64(checksum(b"123456789")).value == 0x995DC9BBDF1939FA
    assert ctypes.c_uint64(checksum(b"")).value == 0
    content, crc = bytes(range(256)) * 3 + b"odd", 2**64 - 1
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0xC96C5795D7870F42 if crc & 1 else 0)
    assert ctypes.c_uint64(checksum(content)).value == crc ^ 2**64 - 1


def test_several_threads_may_call_a_loaded_model_at_once(fast, file):
    loaded = st3.engine.load(file, threads=1)
    inputs = [torch.randn(2, 3, 11, 9, generator=torch.Generator().manual_seed(seed)) for seed in range(4)]
    wanted = [fast(x) for x in inputs]
    wrong: list[int] = []

    def work(number: int) -> None:
        wrong.extend(number for _ in range(30) if not torch.equal(loaded(inputs[number]), wanted[number]))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_loaded_model_works_after_its_file_was_replaced_or_deleted(fast, file, x):
    loaded = st3.engine.load(file)
    fast.save(file)  # another file takes the name
    assert torch.equal(loaded(x), fast(x))
    file.unlink()
    assert torch.equal(loaded(x), fast(x))
