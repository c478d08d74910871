"""Measure a model without changing it: what it costs to run, and how sparse it is."""

from .macs import MacCount, count_macs
from .report import LayerRow, Report

__all__ = ["LayerRow", "MacCount", "Report", "count_macs"]
