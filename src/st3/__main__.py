"""`python -m st3` and `torchrun -m st3`: the `st3` command."""

from st3_command import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
