"""A progress bar."""

from __future__ import annotations

from types import TracebackType
from typing import Any


class Progress:
    """A bar on a terminal, with rate and time left, where the `cli` extra is installed.

    Args:
      total: number of updates; None if unknown.
      is_shown: whether there is a bar.
      unit: of an update.
      stays: whether the finished bar stays on the terminal.
    """

    def __init__(self, total: int | None, is_shown: bool, *, unit: str = "it", stays: bool = True):
        self._bar: Any = None
        self._text = ""
        if is_shown:
            try:
                from tqdm import tqdm
            except ImportError:
                return
            self._bar = tqdm(total=total, unit=unit, leave=stays, disable=None, dynamic_ncols=True)

    def step(self, text: str) -> None:
        """Names the work until the next update."""
        # Only changes: each one draws the bar again.
        if self._bar is not None and text != self._text:
            self._text = text
            self._bar.set_description(text)

    def update(self, count: int = 1) -> None:
        if self._bar is not None:
            self._bar.update(count)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.close()
