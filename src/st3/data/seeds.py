"""Random numbers that depend on where they are used, not on what was drawn before."""

import numpy as np
import torch

__all__ = ["generator_for"]


def generator_for(seed: int, *where: int) -> torch.Generator:
    """Return a generator that is the same for the same `seed` and place, and unrelated for any other.

    Numbers near each other must not give streams near each other, and (1, 2) must not be (2, 1): so not a sum.
    """
    mixed = np.random.SeedSequence(seed, spawn_key=where).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(mixed[0]))
