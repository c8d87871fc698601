"""Arm's reference model: what a graph computes there, to compare with what it computes here.

`pip install 'tosajax[reference]'` brings it, in two forms. Its Python binding runs a small graph in
a millisecond, but takes and gives neither int4 nor int48; its executable knows every element type,
and takes twenty times as long. Both can crash, so that each has a process of its own.
"""

from __future__ import annotations

from tosajax.reference_model.model import check_installed, is_installed, run

__all__ = ["check_installed", "is_installed", "run"]
