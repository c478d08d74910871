"""The paper's figures and tables, one file each, and comparisons of one's own.

Every module beside this file is imported, so a new study is one new file that registers itself.
"""

from ...registry import import_siblings
from .study import STUDIES, Study

__all__ = ["STUDIES", "Study"]

import_siblings(__name__, __path__, {})
