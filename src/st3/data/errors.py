"""What goes wrong with files of data."""

__all__ = ["DataError"]


class DataError(Exception):
    """One sentence for the user: which file is missing, damaged or wrong, and what to do about it."""
