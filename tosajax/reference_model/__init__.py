"""Arm's reference model: runs graphs there, to compare with tosajax.

`pip install 'tosajax[reference]'` installs it, in two forms. Its Python binding runs a small graph
in a millisecond, but lacks int4 and int48; its executable has all element types, and takes twenty
times as long. Both can crash, so each runs in a process of its own.
"""

from __future__ import annotations

from tosajax.reference_model.model import check_installed, is_installed, run

__all__ = ["check_installed", "is_installed", "run"]


def __dir__() -> list[str]:
    return __all__
