"""Which weights of a model are sparsified, and how each of them is laid out."""
