"""A run as one self-contained HTML page, and its charts as files."""

from .write import write_figures, write_page

__all__ = ["write_figures", "write_page"]
