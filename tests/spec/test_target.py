"""Targets: how they are written, and which are refused."""

from __future__ import annotations

import itertools

import pytest

from tosajax import spec
from tosajax.spec.target import Target
from tosajax.versions import V1_0, V1_1, VERSIONS, Version

INT8_TARGET = Target(frozenset({"PRO-INT"}))


@pytest.mark.parametrize("version", VERSIONS, ids=str)
@pytest.mark.parametrize("level", spec.LEVELS)
@pytest.mark.parametrize("profiles", ["PRO-INT", "PRO-FP", "PRO-INT+PRO-FP"])
def test_parsing_inverts_printing(profiles: str, level: str, version: Version):
    names = profiles.split("+")
    allowed = [e for e, of in spec.EXTENSIONS.items() if not set(names).isdisjoint(of)]
    for count in (0, 1, 2, len(allowed)):
        for extensions in itertools.combinations(allowed, count):
            target = Target(frozenset(names), frozenset(extensions), level, version=version)
            assert Target.parse(str(target)) == target
            assert target.names == {*names, *extensions}


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("PRO-INT", "PRO-INT@8K"),
        ("pro-int+ext-int16@8k", "PRO-INT+EXT-INT16@8K"),
        ("Pro-FP@NONE", "PRO-FP@none"),
        (" PRO-INT + EXT-INT4 @ none ", "PRO-INT+EXT-INT4@none"),
        ("EXT-INT16+PRO-INT", "PRO-INT+EXT-INT16@8K"),
        ("EXT-FFT+EXT-BF16+PRO-FP+PRO-INT", "PRO-INT+PRO-FP+EXT-BF16+EXT-FFT@8K"),
        ("PRO-INT+PRO-INT", "PRO-INT@8K"),
        ("PRO-INT+", "PRO-INT@8K"),
        ("TOSA-1.0+PRO-INT", "PRO-INT@8K"),
        ("tosa-1.1+pro-int@none", "TOSA-1.1+PRO-INT@none"),
        ("PRO-INT + TOSA-1.1.draft + TOSA-1.1.draft", "TOSA-1.1+PRO-INT@8K"),
    ],
)
def test_text(text: str, printed: str):
    assert str(Target.parse(text)) == printed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "needs a profile: PRO-INT or PRO-FP"),
        ("@8K", "needs a profile: PRO-INT or PRO-FP"),
        ("EXT-INT16", "needs a profile: PRO-INT or PRO-FP"),
        ("PRO-MAIN", "unknown profile 'PRO-MAIN', expected one of PRO-INT, PRO-FP"),
        ("PRO-INT EXT-INT16", "unknown profile 'PRO-INT EXT-INT16'"),
        ("PRO-INT+EXT-INT64", "unknown extension 'EXT-INT64', expected one of EXT-INT16, "),
        ("PRO-INT@16K", "unknown level '16K', expected one of none, 8K"),
        ("PRO-INT@", "unknown level '', expected one of none, 8K"),
        ("PRO-INT@8K@8K", "unknown level '8K@8K'"),
        ("EXT-INT16", "every implementation has one"),
        ("TOSA-1.1", "needs a profile: PRO-INT or PRO-FP"),
        ("TOSA-1.2+PRO-INT", "unknown version 1.2, expected one of 1.0, 1.1"),
        ("TOSA-0.8+PRO-INT", "unknown version 0.8, expected one of 1.0, 1.1"),
        ("TOSA-+PRO-INT", "'' is not a version of TOSA, such as 1.0"),
        ("TOSA-1.0+TOSA-1.1+PRO-INT", "has one version, found TOSA-1.0 and TOSA-1.1"),
        ("TOSA1.1+PRO-INT", "unknown profile 'TOSA1.1'"),
        ("PRO-INT+EXT-BF16", "EXT-BF16 needs PRO-FP: TOSA allows it with no other profile"),
        ("PRO-FP+EXT-INT16", "EXT-INT16 needs PRO-INT"),
        ("PRO-FP+EXT-INT16@none", "EXT-INT16 needs PRO-INT"),
    ],
)
def test_refused(text: str, message: str):
    with pytest.raises(ValueError) as error:
        Target.parse(text)
    assert message in str(error.value)


@pytest.mark.parametrize("extension", spec.EXTENSIONS)
def test_extension_needs_one_of_its_profiles(extension: str):
    for profile in spec.PROFILES:
        if profile in spec.EXTENSIONS[extension]:
            Target(frozenset({profile}), frozenset({extension}))
        else:
            with pytest.raises(ValueError, match=f"{extension} needs "):
                Target(frozenset({profile}), frozenset({extension}))


def test_level():
    assert INT8_TARGET.level == "8K"
    assert INT8_TARGET.limits is spec.LEVELS["8K"]
    assert Target.parse("PRO-INT@none").limits is spec.LEVELS["none"]


def test_everything():
    for level in spec.LEVELS:
        target = Target.everything(level)
        assert target.names == {*spec.PROFILES, *spec.EXTENSIONS}
        assert target.level == level
        assert Target.parse(str(target)) == target
        assert target.version == VERSIONS[-1]
    assert Target.everything().level == "8K"


def test_version():
    assert INT8_TARGET.version == Target.parse("ethos-u55-128").version == V1_0
    newer = Target.parse("TOSA-1.1+PRO-INT")
    assert newer == Target(["PRO-INT"], version=(1, 1))  # type: ignore[arg-type]
    assert isinstance(newer.version, Version)
    assert newer.version == V1_1
    assert newer != INT8_TARGET
    with pytest.raises(TypeError, match=r"version is '1\.1' .*expected a Version; Target"):
        Target(["PRO-INT"], version="1.1")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"unknown version 1\.x, expected one of 1\.0, 1\.1"):
        Target(["PRO-INT"], version=(1, "x"))  # type: ignore[arg-type]


def test_targets_are_values():
    again = Target.parse(str(INT8_TARGET))
    assert again == INT8_TARGET
    assert len({again, INT8_TARGET}) == 1
    assert again != Target.parse("PRO-INT@none")
    assert Target(profiles=["PRO-INT"]) == INT8_TARGET  # pyright: ignore[reportArgumentType]
