"""Target: the version, profiles, extensions and level that a graph is checked against."""

from __future__ import annotations

import dataclasses

from tosajax.arguments.types import check_type, shown
from tosajax.spec import EXTENSIONS, LEVELS, PROFILES, Level
from tosajax.spec.npu import NPUS
from tosajax.versions import V1_0, VERSIONS, Version

_PREFIX = "TOSA-"  # before the version, as in the targets of ExecuTorch


@dataclasses.dataclass(frozen=True)
class Target:
    """The profiles, extensions and level of an implementation, "PRO-INT+EXT-INT16@8K".

    "TOSA-1.1+PRO-INT@8K" is a target of version 1.1; without a version, a target is of 1.0.

    A target describes an implementation that the specification allows. LLVM's `tosa-attach-target`
    also writes targets without a profile, or with an extension that none of their profiles may have
    ("PRO-FP+EXT-INT16"). No implementation conforms to these, so they are refused here.

    Args:
      profiles: at least one of PRO-INT and PRO-FP.
      extensions: any that one of the profiles allows.
      level: "8K" or "none".
      npu: a name of `spec.npu.NPUS`, such as "ethos-u55-128", whose limits also apply; the text of
        a target may be just this name.
      version: the version of the specification, 1.0 or 1.1.

    Raises:
      ValueError: a name or the version is unknown, there is no profile, or an extension has none
        of its profiles.

    Example:
      >>> import tosajax
      >>> target = tosajax.Target.parse("PRO-INT+EXT-INT16@8K")
      >>> sorted(target.profiles), sorted(target.extensions), target.level
      (['PRO-INT'], ['EXT-INT16'], '8K')
      >>> str(target)
      'PRO-INT+EXT-INT16@8K'
    """

    profiles: frozenset[str]
    extensions: frozenset[str] = frozenset()
    level: str = "8K"
    npu: str | None = None
    version: Version = V1_0

    def __post_init__(self) -> None:
        for name in ("profiles", "extensions"):
            if isinstance(getattr(self, name), str):
                value = shown(getattr(self, name))
                raise TypeError(f"{name} is {value}, expected a set; Target.parse reads a text")
        object.__setattr__(self, "profiles", frozenset(self.profiles))
        object.__setattr__(self, "extensions", frozenset(self.extensions))
        object.__setattr__(self, "version", _version(self.version))
        _reject_unknown("profile", self.profiles, PROFILES)
        _reject_unknown("extension", self.extensions, EXTENSIONS)
        _reject_unknown("level", [self.level], LEVELS)
        _reject_unknown("NPU", [] if self.npu is None else [self.npu], NPUS)
        if not self.profiles:
            raise ValueError(
                f"a target needs a profile: {' or '.join(PROFILES)}; every implementation has one"
            )
        for extension in sorted(self.extensions):
            allowed = EXTENSIONS[extension]
            if self.profiles.isdisjoint(allowed):
                raise ValueError(
                    f"{extension} needs {' or '.join(allowed)}: TOSA allows it with no other "
                    "profile, and an implementation of it has all of its operators"
                )

    @classmethod
    def parse(cls, text: str) -> Target:
        """Parses "PRO-INT+EXT-INT16@8K"; without "@" the level is 8K; case does not matter.

        "TOSA-1.1" among the profiles is the version, by default 1.0. The name of an NPU, such as
        "ethos-u55-128", is a target as well: see `of_npu`.
        """
        check_type("a target", text, str, 'a text such as "PRO-INT+EXT-INT16@8K"')
        if text.strip().lower().startswith("ethos"):
            return cls.of_npu(text.strip().lower())
        names, at, level = text.partition("@")
        parts = [part.strip().upper() for part in names.split("+") if part.strip()]
        versions = dict.fromkeys(p for p in parts if p.startswith(_PREFIX))
        if len(versions) > 1:
            raise ValueError(f"a target has one version, found {' and '.join(versions)}")
        levels = {name.lower(): name for name in LEVELS}
        return cls(
            profiles=frozenset(p for p in parts if not p.startswith(("EXT-", _PREFIX))),
            extensions=frozenset(p for p in parts if p.startswith("EXT-")),
            level=levels.get(level.strip().lower(), level.strip()) if at else "8K",
            version=next((Version.parse(v.removeprefix(_PREFIX)) for v in versions), V1_0),
        )

    @classmethod
    def of_npu(cls, name: str) -> Target:
        """The target of an NPU, by its name in `spec.npu.NPUS`."""
        _reject_unknown("NPU", [name], NPUS)
        return cls(frozenset({"PRO-INT"}), frozenset(NPUS[name].extensions), npu=name)

    @classmethod
    def everything(cls, level: str = "8K") -> Target:
        """All profiles and all extensions of the newest version in the operator table."""
        return cls(frozenset(PROFILES), frozenset(EXTENSIONS), level, version=VERSIONS[-1])

    @property
    def names(self) -> frozenset[str]:
        """Profiles and extensions together."""
        return self.profiles | self.extensions

    @property
    def limits(self) -> Level:
        """The limits of the level."""
        return LEVELS[self.level]

    def __str__(self) -> str:
        if self.npu is not None and self == Target.of_npu(self.npu):
            return self.npu
        names = [n for n in (*PROFILES, *EXTENSIONS) if n in self.names]
        version = [] if self.version == V1_0 else [f"{_PREFIX}{self.version}"]
        return f"{'+'.join([*version, *names])}@{self.level}"


def target_of(target: Target | str | None) -> Target:
    """Converts an argument to a target: a Target, the text of one, or None for everything.

    Raises:
      TypeError: the argument is of another type.
      ValueError: the text does not name a target.
    """
    if target is None:
        return Target.everything()
    wanted = 'a Target or a text such as "PRO-INT+EXT-INT16@8K"'
    check_type("target", target, (Target, str), wanted)
    return Target.parse(target) if isinstance(target, str) else target


def _version(value: object) -> Version:
    """Checks that a version is in the operator table.

    Raises:
      TypeError: the value is not a version.
      ValueError: the table does not have the version.
    """
    check_type("version", value, tuple, 'a Version; Target.parse reads "TOSA-1.1+PRO-INT"')
    if value not in VERSIONS:
        names = ", ".join(map(str, VERSIONS))
        numbers = ".".join(map(str, value))  # type: ignore[arg-type]
        raise ValueError(f"unknown version {numbers}, expected one of {names}")
    return VERSIONS[VERSIONS.index(value)]


def _reject_unknown(what: str, names, known) -> None:
    for name in sorted(names):
        if name not in known:
            raise ValueError(f"unknown {what} {name!r}, expected one of {', '.join(known)}")
