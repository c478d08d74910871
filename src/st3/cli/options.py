"""The options of `st3 train`, in the panels of its help."""

from pathlib import Path
from typing import Annotated

import typer

WHAT, HOW, WHERE, MACHINE, OUTPUT = (
    "What to train",
    "How to train it",
    "The run",
    "The machine",
    "What is shown",
)


def _option(
    panel: str,
    help: str,
    *names: str,
    metavar: str | None = None,
    min: int | None = None,
    max: int | None = None,
) -> object:
    return typer.Option(
        *names, help=help, rich_help_panel=panel, metavar=metavar or "", min=min, max=max, show_default=False
    )


Data = Annotated[
    str | None, _option(WHAT, "Data set: see st3 list data (usual: digits).", "--data", metavar="NAME")
]
DataDir = Annotated[
    Path | None, _option(WHAT, "Folder of its files; for text a file.", "--data-dir", metavar="FOLDER")
]
Download = Annotated[bool, _option(WHAT, "Download the files if they are missing.", "--download")]
Model = Annotated[
    str | None,
    _option(WHAT, "Network: see st3 list models; or package.module:function.", "--model", metavar="NAME"),
]
Method = Annotated[
    str | None,
    _option(WHAT, "st3, feather, ...; dense for no sparsity (usual: st3).", "--method", metavar="NAME"),
]
Sparsity = Annotated[
    float | None,
    _option(WHAT, "Fraction of zeros, 0 to below 1 (usual: 0.9).", "--sparsity", metavar="FRACTION"),
]
Allocation = Annotated[
    str | None,
    _option(
        WHAT, "How layers share the sparsity (usual: depends on the method).", "--allocation", metavar="NAME"
    ),
]
Block = Annotated[
    int | None,
    _option(
        WHAT,
        "Zero so many neighbouring inputs together; 4 for int8 in the engine (usual: 1).",
        "--block",
        metavar="N",
    ),
]
DenseTwin = Annotated[
    bool | None,
    _option(
        HOW, "Train without sparsity first, to compare (usual: for digits).", "--dense-twin/--no-dense-twin"
    ),
]
Protocol = Annotated[
    str | None,
    _option(HOW, "single, twin or lrr (cycles): see st3 list protocols.", "--protocol", metavar="NAME"),
]
Cycles = Annotated[
    int | None,
    _option(HOW, "Number of cycles, each pruning 20 % of the rest (implies lrr).", "--cycles", metavar="N"),
]
ResetSeed = Annotated[
    bool | None,
    _option(HOW, "The same batches in every cycle (usual: new ones).", "--reset-seed/--no-reset-seed"),
]
RecipeName = Annotated[
    str | None, _option(HOW, "A built-in recipe, or your own file.", "--recipe", metavar="NAME|FILE.toml")
]
Epochs = Annotated[
    int | None, _option(HOW, "Scale the whole recipe to this many epochs.", "--epochs", metavar="N")
]
Changes = Annotated[
    list[str] | None,
    _option(HOW, "Change one setting: optimizer.lr=0.05, sparse.ramp=linear.", "--set", metavar="KEY=VALUE"),
]
Seed = Annotated[
    int | None, _option(HOW, "Seed of initial weights and data (usual: 0).", "--seed", metavar="N")
]
DataSeed = Annotated[
    int | None, _option(HOW, "Seed of order and augmentation only.", "--data-seed", metavar="N")
]
RunFolder = Annotated[
    Path | None,
    _option(WHERE, "Folder of the run (usual: runs/<what is trained>).", "--run", metavar="FOLDER"),
]
Resume = Annotated[bool, _option(WHERE, "Continue the run in --run.", "--resume")]
Keep = Annotated[
    int, _option(WHERE, "Checkpoints to keep (usual: 2).", "--keep", metavar="N", min=1, max=1000)
]
TensorBoard = Annotated[bool, _option(WHERE, "Write metrics for TensorBoard too.", "--tensorboard")]
Device = Annotated[str | None, _option(MACHINE, "auto, cpu, cuda, cuda:1.", "--device", metavar="NAME")]
Precision = Annotated[
    str | None, _option(MACHINE, "float32, bfloat16 or float16.", "--precision", metavar="TYPE")
]
Workers = Annotated[int | None, _option(MACHINE, "Processes that prepare batches.", "--workers", metavar="N")]
Threads = Annotated[int | None, _option(MACHINE, "Threads of torch on the CPU.", "--threads", metavar="N")]
Compile = Annotated[bool, _option(MACHINE, "Use torch.compile.", "--compile")]
ChannelsLast = Annotated[
    bool | None,
    _option(MACHINE, "Memory format of pictures and weights.", "--channels-last/--no-channels-last"),
]
Deterministic = Annotated[bool, _option(MACHINE, "The same bits every time; slower.", "--deterministic")]
Sharded = Annotated[bool, _option(MACHINE, "Shard weights over processes (FSDP2).", "--sharded")]
Quiet = Annotated[bool, _option(OUTPUT, "Only errors and the final table.", "--quiet", "-q")]
Json = Annotated[bool, _option(OUTPUT, "The summary as JSON on stdout, the rest on stderr.", "--json")]
