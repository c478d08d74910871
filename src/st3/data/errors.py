"""The error for missing or damaged data."""

__all__ = ["DataError"]


class DataError(Exception):
    """One sentence for the user: which file is missing, damaged or wrong, and what to do about it."""
