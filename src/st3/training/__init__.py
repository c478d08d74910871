"""Train a model: recipes, the loop, checkpoints, records. It is handed its model, data and sparsifier."""
