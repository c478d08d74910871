"""The engine against others: a model timed in each of them, interleaved in one process."""
