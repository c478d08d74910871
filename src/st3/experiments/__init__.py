"""Whole runs: what determines one, how it is carried out, and how its results are read and shown."""
