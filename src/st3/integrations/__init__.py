"""Callbacks and functions for other trainers; each file needs its framework installed."""
