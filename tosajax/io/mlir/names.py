"""Names that are taken."""

from __future__ import annotations

from collections.abc import Iterable

from tosajax.report import FormatError


class Names:
    """Names of one kind, all different.

    Args:
      taken: the names so far.
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.taken = set(taken)
        self._made = 0

    def fresh(self, name: str) -> str:
        """The name, or one like it."""
        found = name
        while found in self.taken:
            self._made += 1
            found = f"{name}_{self._made}"
        self.taken.add(found)
        return found

    def own(self, name: str) -> str:
        """The name.

        Raises:
          FormatError: it is taken.
        """
        if name in self.taken:
            raise FormatError(f"the name {name!r} is there twice")
        self.taken.add(name)
        return name
