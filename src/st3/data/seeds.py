"""Random numbers that depend on where they are used, not on how many were drawn before."""

import numpy as np
import torch

__all__ = ["generator_for"]


def generator_for(seed: int, *where: int) -> torch.Generator:
    """Return a generator that is the same for the same `seed` and place, and unrelated for any other.

    A hash, not a sum: (1, 2) and (2, 1) must differ, and neighbouring numbers must give unrelated streams.
    """
    mixed = np.random.SeedSequence(seed, spawn_key=where).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(mixed[0]))
