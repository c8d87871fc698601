"""A progress bar."""

from __future__ import annotations

from types import TracebackType
from typing import Any


class Progress:
    """A bar on a terminal, with rate and time left, where the `cli` extra is installed."""

    def __init__(self, total: int, is_shown: bool):
        self._bar: Any = None
        if is_shown:
            try:
                from tqdm import tqdm
            except ImportError:
                return
            self._bar = tqdm(total=total, unit="setting", disable=None, dynamic_ncols=True)

    def update(self, count: int) -> None:
        if self._bar is not None:
            self._bar.update(count)

    def say(self, text: str) -> None:
        """Shows a few words at the end of the bar."""
        if self._bar is not None:
            self._bar.set_postfix_str(text)

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
