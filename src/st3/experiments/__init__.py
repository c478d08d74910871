"""Whole runs: what determines a run, how it is trained, and how its results are read and shown."""
