"""Unique names."""

from __future__ import annotations

from collections.abc import Iterable

from tosajax.report import FormatError


class Names:
    """A set of unique names.

    Args:
      taken: the names in use.
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.taken = set(taken)
        self._made = 0

    def fresh(self, name: str) -> str:
        """Adds the name, with a suffix if it is taken, and returns it."""
        free = name
        while free in self.taken:
            self._made += 1
            free = f"{name}_{self._made}"
        self.taken.add(free)
        return free

    def own(self, name: str) -> str:
        """Adds the name and returns it.

        Raises:
          FormatError: the name is taken.
        """
        if name in self.taken:
            raise FormatError(f"the name {name!r} is there twice")
        self.taken.add(name)
        return name
