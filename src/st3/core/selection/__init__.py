"""The exact k-th magnitude over many tensors."""
