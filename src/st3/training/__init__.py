"""Train a model: recipes, the loop, checkpoints, records. Model, data and sparsifier come from the caller."""
