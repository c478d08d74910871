"""Tasks: what a batch is, what is lost and what is scored. Every module beside this file is imported."""

from ...registry import import_siblings
from .score import Score
from .task import TASKS, Task, name_of, task_of

__all__ = ["TASKS", "Score", "Task", "name_of", "task_of"]

import_siblings(__name__, __path__, {})
