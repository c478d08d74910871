"""The library for C programs: the example, threads, the verifier, and files damaged at random."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from tests.engine import plan_corpus
from torch import nn

import st3
from st3.engine import checks, loaded, native
from st3.engine.build import SOURCES, compiler, instruction_sets, write_c_library
from st3.models import MODELS

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
WAIT = 240  # seconds

pytestmark = [
    pytest.mark.skipif(not native.is_built(), reason="the kernels are not built"),
    pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler"),
]


def run(*command: object, **options: object) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=WAIT, **options)  # type: ignore[call-overload, no-any-return]


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("library")
    written = write_c_library(folder, ("-O0",))  # compiles in a fifth of the time
    assert written == [folder / "libst3.so", folder / "libst3.a", folder / "st3.h"]
    assert sorted(folder.iterdir()) == sorted(written)
    return folder


def compile_program(library: Path, source: Path, program: Path, *flags: object) -> None:
    libraries = [f"-L{library}", "-lst3", f"-Wl,-rpath,{library}", "-lpthread"]
    flags = ("-O1", "-Wall", "-Wextra", "-Werror", f"-I{library}", *flags)
    built = run(*compiler(), *flags, source, "-o", program, *libraries)
    assert built.returncode == 0, built.stderr


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 12, 3), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 10),
    ).eval()  # fmt: skip


@pytest.fixture(scope="module")
def file(model, tmp_path_factory) -> Path:
    fast = st3.engine.compile(model, torch.zeros(1, 3, 16, 16), tune=False, threads=2)
    return fast.save(tmp_path_factory.mktemp("file") / "model.st3run")


@pytest.mark.skipif(not shutil.which("make"), reason="needs make")
def test_the_example_runs_without_python_and_without_torch(library, model, file, tmp_path):
    example = shutil.copytree(ROOT / "examples" / "c", tmp_path / "c")
    built = run("make", "-C", example, f"ST3={library}")
    assert built.returncode == 0, built.stderr
    x = torch.arange(3 * 16 * 16) % 97 / 96
    scores = model(x.view(1, 3, 16, 16))[0].detach()
    answer = run(example / "main", file, env={})
    found = re.fullmatch(r"output: the largest of 10 numbers is number (\d), (-?[\d.]+)\n", answer.stdout)
    assert found, answer
    assert int(found[1]) == int(scores.argmax())
    assert float(found[2]) == pytest.approx(float(scores.max()), abs=1e-5)
    needed = run("ldd", example / "main").stdout
    assert "libst3.so" in needed
    assert "python" not in needed
    assert "torch" not in needed


@pytest.mark.skipif(not shutil.which("make"), reason="needs make")
@torch.no_grad()
def test_the_example_for_text_continues_a_prompt(library, tmp_path):
    torch.manual_seed(0)
    letters, network = " abcd\n", MODELS["gpt"](vocabulary=6, context=12, layers=1, heads=2, width=8).eval()
    network.characters.weight.mul_(20)  # so that scores depend on what was read
    step = (torch.zeros(1, 1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64))
    st3.engine.compile(network.decoder().eval(), step, tune=False, threads=1).save(tmp_path / "gpt.st3run")
    (tmp_path / "alphabet.txt").write_text(letters)
    numbers = [letters.index(letter) for letter in "bad"]
    for _ in range(9):
        numbers.append(int(network(torch.tensor([numbers]))[0, -1].argmax()))
    example = shutil.copytree(ROOT / "examples" / "c", tmp_path / "c")
    built = run("make", "-C", example, f"ST3={library}", "generate")
    assert built.returncode == 0, built.stderr
    words = [tmp_path / "gpt.st3run", "bad", 100, tmp_path / "alphabet.txt"]
    answer = run(example / "generate", *words, env={})
    assert (answer.stdout, answer.stderr) == ("".join(letters[number] for number in numbers) + "\n", "")
    for changed, sentence in (
        (words[:3], "the alphabet is not that of the file"),
        ([words[0], "x", *words[2:]], "not in the alphabet"),
        ([words[0], "bad" * 4, *words[2:]], "the prompt leaves no room in the model's context"),
        *(([*words[:2], length, words[3]], "usage: ") for length in (-1, 0, "ten", "1x")),
    ):
        answer = run(example / "generate", *changed, env={})
        assert (answer.returncode, answer.stdout) == (2 if sentence == "usage: " else 1, "")
        assert sentence in answer.stderr


def test_the_examples_are_short():
    for name, lines in (("main.c", 60), ("generate.c", 80)):
        assert len((ROOT / "examples" / "c" / name).read_text().splitlines()) <= lines


def test_the_example_linked_with_the_archive_needs_no_library(library, file, tmp_path):
    flags = ["-O1", "-Wall", "-Wextra", "-Werror", f"-I{library}", ROOT / "examples" / "c" / "main.c"]
    built = run(*compiler(), *flags, library / "libst3.a", "-lpthread", "-lm", "-o", tmp_path / "main")
    assert built.returncode == 0, built.stderr
    answer = run(tmp_path / "main", file, env={})
    assert answer.stdout.startswith("output: the largest of 10 numbers is number "), answer
    assert "libst3" not in run("ldd", tmp_path / "main").stdout
    names = run("nm", "-g", "--defined-only", "-j", library / "libst3.a").stdout.splitlines()
    names = [name for name in names if name and not name.endswith(":")]
    assert len(names) > 20
    assert [name for name in names if not name.startswith("st3_")] == []  # none that a program may have too


def test_the_header_is_complete_in_c_and_in_cpp(library, tmp_path):
    for suffix, standard in ((".c", "c99"), (".cc", "c++11")):
        source = tmp_path / f"only{suffix}"
        source.write_text('#include <st3.h>\nint main(void) { return st3_open("x", 0, 0) != 0; }\n')
        language = "c" if suffix == ".c" else "c++"
        flags = ["-fsyntax-only", "-Wall", "-Werror", f"-std={standard}", f"-I{library}"]
        built = run(*compiler(), *flags, "-x", language, source)
        if "installed" in built.stderr or "cc1plus" in built.stderr:
            continue  # no C++ compiler
        assert built.returncode == 0, built.stderr


def test_the_numbers_of_the_header_are_those_of_python():
    numbers = dict(re.findall(r"(?m)^#define (ST3_\w+) (\d+)", (SOURCES / "st3.h").read_text()))
    assert numbers == {"ST3_ERROR": str(loaded.ERROR_BYTES), "ST3_MOST_THREADS": str(checks.MOST_THREADS)}


def test_every_function_of_the_header_is_in_the_library(library):
    declared = re.findall(r"(?m)^ST3_API .*?(st3_\w+)\(", (SOURCES / "st3.h").read_text())
    loaded = native.library()
    assert len(declared) == 13
    assert all(hasattr(loaded, name) for name in declared)


def test_many_threads_share_a_model_with_a_session_each(library, file, tmp_path):
    compile_program(library, HERE / "run_in_threads.c", tmp_path / "threads")
    answer = run(tmp_path / "threads", file, 6, 50)
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "0 wrong\n", "")


# ---------------------------------------------------------------- the verifier


@pytest.mark.parametrize("isa", ["avx512", "avx2", "baseline"])
def test_the_verifier_accepts_every_plan_that_is_made_here(isa):
    if isa not in native.usable_instruction_sets():
        pytest.skip(f"{isa} is not available")
    kinds: set[str] = set()
    for planned in plan_corpus.plans(48, isa):
        assert planned.is_whole
        assert plan_corpus.verify(planned) == ""
        kinds |= plan_corpus.kinds_of(planned.plan)
    assert kinds == {*native.schema.schema().kinds}


def counts(answer: subprocess.CompletedProcess[str]) -> dict[str, int]:
    assert answer.returncode == 0, answer.stdout + answer.stderr[-4000:]
    words = answer.stdout.split()
    return {name: int(number) for name, number in zip(words[::2], words[1::2], strict=True)}


def test_damaged_files_do_no_damage(library, tmp_path):
    fuzz = tmp_path / "fuzz"
    compile_program(library, HERE / "fuzz_plan.c", fuzz, "-std=gnu11", f"-I{SOURCES}")
    for isa in native.usable_instruction_sets():
        files = plan_corpus.write(tmp_path, 16, isa)
        found = counts(run(fuzz, isa, 1500, 1, *files))
        assert sum(found.values()) == 1500
        assert min(found[name] for name in ("checksum", "tables", "verifier", "ran")) > 50


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ten_thousand_damaged_files_pass_the_address_sanitizer(tmp_path):
    flags = ["-std=gnu11", "-O1", "-g", "-DBLOCK=64", f"-I{SOURCES}", "-DONLY_BASELINE"]
    sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    isa = instruction_sets()["baseline"]
    kernels = run(
        *compiler(), *flags, "-fsanitize=address", "-ffp-contract=fast", "-DISA=baseline", f"-DLANES={isa.lanes}",
        f"-DACCUMULATORS={isa.accumulators}", *isa.flags, "-c", SOURCES / "kernels.c", "-o", tmp_path / "kernels.o",
    )  # fmt: skip
    assert kernels.returncode == 0, kernels.stderr
    others = [each for each in SOURCES.glob("*.c") if each.name != "kernels.c"]
    fuzz = tmp_path / "fuzz"
    words = [HERE / "fuzz_plan.c", *others, tmp_path / "kernels.o", "-o", fuzz, "-lpthread", "-lm"]
    built = run(*compiler(), *flags, *sanitizers, *words)
    assert built.returncode == 0, built.stderr
    files = plan_corpus.write(tmp_path, 48, "baseline")
    environment = {"ASAN_OPTIONS": "allocator_may_return_null=1"}
    found = counts(run(fuzz, "baseline", 10_000, 3, *files, env=environment))
    assert sum(found.values()) == 10_000, found
    assert min(found[name] for name in ("checksum", "tables", "verifier", "ran")) > 500
