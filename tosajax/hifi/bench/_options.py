"""Defines and parses the options of test benches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

HELP = ("-h", "-help", "--help")


class BenchError(Exception):
    """The error for an option or a file that cannot be used; the message has one line."""


def check(holds: bool, message: str) -> None:
    """Raises BenchError if `holds` is false."""
    if not holds:
        raise BenchError(message)


def integer(text: str) -> int:
    """Parses an integer, decimal or with a prefix such as 0x."""
    return int(text, 0)


def number(text: str) -> int | float:
    """Parses an integer or a float in the range of float32."""
    try:
        value = integer(text)
    except ValueError:
        value = float(text)
    if not abs(value) < 2**128 - 2**103:
        raise ValueError
    return value


class Option(NamedTuple):
    """An option that takes a value.

    Args:
      name: the name, without dashes.
      default: the value if the option is not given.
      text: the help text.
      kind: function that parses a value.
      choices: the allowed values; empty for all that `kind` parses.
      least: the smallest integer; the largest is 2**31 - 1.
      alone: the value if none follows the option; None if a value is required.
    """

    name: str
    default: Any
    text: str
    kind: Callable[[str], Any] = integer
    choices: Sequence[Any] = ()
    least: int = -(2**31)
    alone: Any = None

    @property
    def is_size(self) -> bool:
        """Whether the value is a length or a count."""
        return self.least >= 0

    def value_of(self, text: str) -> Any:
        """Parses and checks a value.

        Raises:
          BenchError: the value is not allowed.
        """
        try:
            value = self.kind(text)
        except ValueError:
            wanted = "an integer" if self.kind is integer else "a number"
            raise BenchError(f"-{self.name} is {text!r}, expected {wanted}") from None
        if self.choices:
            wanted = f"one of {', '.join(map(str, self.choices))}"
            check(value in self.choices, f"-{self.name} is {value}, expected {wanted}")
        elif self.kind is integer:
            wanted = f"within [{self.least}, {2**31 - 1}]"
            holds = self.least <= value < 2**31
            check(holds, f"-{self.name} is {value}, expected {wanted}")
        return value


def size(name: str, default: int, text: str, least: int = 1) -> Option:
    """Makes an option for a length or a count."""
    return Option(name, default, text, least=least)


def flag(name: str, default: int, text: str) -> Option:
    """Makes an option that is 0 or 1; without a value, 1."""
    return Option(name, default, text, choices=(0, 1), alone=1)


def word(name: str, default: str, text: str, choices: Sequence[str]) -> Option:
    """Makes an option with a choice of words, in upper or lower case."""
    words = {choice.lower(): choice for choice in choices}
    return Option(name, default, text, lambda entry: words.get(entry.lower(), entry), choices)


def path(name: str, text: str) -> Option:
    """Makes an option for a file name; the default is None."""
    return Option(name, None, text, str)


FRAMES = size("frames", 2, "how often the kernel runs, each time on other inputs")
VERIFY = flag("verify", 1, "1 to verify the output, bit for bit, floats by an epsilon")
WRITE_FILE = flag("write_file", 0, "1 to write the files that the options write_* name")


def parse(options: Sequence[Option], argv: Sequence[str]) -> SimpleNamespace:
    """Parses a command line; returns the values of all options, by name.

    Args:
      options: the known options.
      argv: -name value, --name value, or either with =; of repeated options the last one counts.

    Raises:
      BenchError: an option is unknown, or a value is not allowed.
    """
    by_name = {option.name: option for option in options}
    values = {option.name: option.default for option in options}
    rest = list(argv)
    while rest:
        entry = rest.pop(0)
        name, equals, text = entry.removeprefix("-").removeprefix("-").partition("=")
        is_known = entry.startswith("-") and name in by_name
        check(is_known, f"{entry!r} is not an option; -h lists them")
        option = by_name[name]
        if not equals:
            if option.alone is not None and (not rest or rest[0].startswith("-")):
                values[name] = option.alone
                continue
            check(bool(rest), f"-{name} is the last word, expected a value after it")
            text = rest.pop(0)
        values[name] = option.value_of(text)
    return SimpleNamespace(**values)


def described(option: Option) -> str:
    """Formats an option as a line of the help."""
    default = "" if option.default is None else f" ({option.default})"
    choices = f": {', '.join(map(str, option.choices))}" if option.choices else ""
    return f"  -{option.name:<24}{option.text}{choices}{default}"
