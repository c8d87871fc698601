"""The library's name and versions ("Start-up", guide 2.4)."""

from __future__ import annotations


def xa_nnlib_get_lib_name_string() -> str:
    """The name of the library."""
    return "HiFi 5 Neural Network Library"


def xa_nnlib_get_lib_version_string() -> str:
    """The version of the library."""
    return "1.3.0"


def xa_nnlib_get_lib_api_version_string() -> str:
    """The version of the library's interface."""
    return "1.0"
