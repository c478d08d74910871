"""Picture files: the part that is seen, colours, damaged files, workers."""

import multiprocessing

import numpy as np
import pytest
import torch
from tests.data.tiny_files import noise, picture_folders
from tests.processes import run_python

from st3.data import Batches, DataError
from st3.data.photographs import MEAN, STD, Photographs

Image = pytest.importorskip("PIL.Image")


@pytest.fixture
def root(tmp_path):
    """Four pictures: cat/0.png, cat/1.png, dog/0.png, dog/1.png."""
    return picture_folders(tmp_path / "data", all=2)


def photographs(root, side=6, resize=8):
    paths = sorted(path.relative_to(root).as_posix() for path in root.glob("*/*"))
    return Photographs(root, paths, torch.arange(len(paths)), side=side, resize=resize)


def raw(pictures, index, draws=None):
    """Return the bytes of one picture, undoing the normalisation."""
    (picture,), _ = pictures.batch(torch.tensor([index]), draws)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
    return ((picture * std + mean) * 255).round().to(torch.uint8)


def test_evaluation_scales_the_short_side_and_takes_the_centre(root):
    pixels = noise(8, 12, 3, seed=99)  # 12 wide and 8 high: nothing is scaled, only the centre is cut out
    Image.fromarray(pixels).save(root / "cat" / "0.png")
    assert raw(photographs(root), 0).tolist() == pixels[1:7, 3:9].transpose(2, 0, 1).tolist()


def test_training_scales_a_random_part_and_mirrors_half_of_the_pictures(root):
    left_to_right = np.broadcast_to(np.arange(0, 240, 2, dtype=np.uint8)[None, :, None], (100, 120, 3))
    Image.fromarray(left_to_right.copy()).save(root / "cat" / "0.png")
    pictures = photographs(root)
    seen = [raw(pictures, 0, torch.tensor([seed])).int() for seed in range(60)]
    mirrored = [int(picture[0, 0, 0]) > int(picture[0, 0, -1]) for picture in seen]
    assert 15 < sum(mirrored) < 45
    assert len({tuple(picture.flatten().tolist()) for picture in seen}) > 50


def test_a_seed_is_drawn_for_every_picture(root):
    draws = photographs(root).draw(3, torch.Generator().manual_seed(0))
    assert (draws.shape, draws.dtype, len(set(draws.tolist()))) == ((3,), torch.int64, 3)


def with_transparent_palette(picture):
    picture = picture.convert("P")
    picture.info["transparency"] = bytes(range(256))
    return picture


@pytest.mark.parametrize(
    ("change", "suffix"),
    [
        (lambda picture: picture.convert("L"), "png"),
        (lambda picture: picture.convert("LA"), "png"),
        (lambda picture: picture.convert("1"), "png"),
        (lambda picture: picture.convert("RGBA"), "png"),
        (lambda picture: picture.convert("CMYK"), "jpg"),
        (lambda picture: picture.convert("L"), "JPEG"),
        (lambda picture: picture.convert("P"), "png"),
        (with_transparent_palette, "png"),
    ],
)
def test_other_colour_modes_become_red_green_and_blue(root, change, suffix):
    change(Image.fromarray(np.full((8, 8, 3), 255, np.uint8))).save(root / "cat" / f"00.{suffix}")
    assert raw(photographs(root, side=8), 1).min() >= 254  # the second of five


def test_16_bit_grey_becomes_8_bit(root):
    Image.fromarray(np.full((8, 8), 128 * 256, np.uint16)).save(root / "cat" / "00.png")
    assert raw(photographs(root, side=8), 1).unique().tolist() == [128]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("content", [b"no picture", b"", None], ids=["text", "empty", "truncated"])
def test_a_damaged_picture_is_reported_with_its_path(root, workers, content):
    path = root / "dog" / "1.png"
    path.write_bytes(path.read_bytes()[:150] if content is None else content)
    others = {child.pid for child in multiprocessing.active_children()}  # of other tests
    with pytest.raises(DataError) as error:
        list(Batches(photographs(root), 2, seed=None, workers=workers).epoch())
    text = str(error.value)
    assert text.startswith(f"{path} cannot be read as a picture (")
    assert text.endswith("); replace or delete it")
    assert "\n" not in text
    # A worker that is left would keep the interpreter from exiting.
    assert {child.pid for child in multiprocessing.active_children()} <= others


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_workers_make_the_same_batches(root):
    one, two = (list(Batches(photographs(root), 3, seed=0, workers=workers).epoch()) for workers in (0, 2))
    assert all(torch.equal(a, b) for (a, _), (b, _) in zip(one, two, strict=True))


def test_without_pillow_the_package_imports_and_says_what_to_install(root):
    program = (
        "import sys; sys.modules['PIL'] = None\n"
        "from st3.data import DATASETS, DataError\n"
        "try: DATASETS['folder'](sys.argv[1])\n"
        "except DataError as error: print(error)"
    )
    shown = run_python(program, root)
    assert shown.stdout == "reading pictures needs Pillow: pip install 'st3[image]'\n"
