"""Prints operators in tosa-tools' generator of conformance tests, as JSON: of 1.0.1 and MATMUL_T.

A script for a process of its own. Beside the generator's list of operators it prints one test of
each kind that the generator would write: the types, shapes and attributes of the operator in it,
and the profiles and extensions that it needs.
"""

from __future__ import annotations

import json
import logging
import shlex
import tempfile
from typing import Any

import generator.tosa_test_gen as test_gen
import generator.tosa_utils as utils
import numpy as np
from conformance.tosa_profiles import TosaProfiles
from generator.tosa_test_select import TosaTestSelect
from generator.tosa_verif_build_tests import parseArgs as parse_args
from semver import Version

# Sizes small enough to be quick, and large enough (1000 products) for the dot-product tests.
ARGUMENTS = """
    --lazy-data-generation --no-special-tests --tensor-dim-range 32,34 --num-rand-permutations 8
    --conv-kernel 2,2 1,2,2 --max-conv-padding 0 --max-conv-stride 1 --max-conv-dilation 1
    --max-pooling-kernel 2 --max-pooling-padding 0 --max-pooling-stride 1
"""
LAST_OPERATOR = 75  # of 1.0
LATER_OPERATORS = ("matmul_t",)
# Keys of a test beside its types: RESCALE has "scale" for scale32.
KINDS = ("mode", "rounding_mode", "scale", "per_channel")


class FixedData:
    """Stands for the library of random data, which is not in the package; only shapes matter."""

    def __init__(self, path: object) -> None:
        pass

    def get_tensor_data(self, name: str, config: dict[str, Any], **_: object) -> np.ndarray:
        tensor = config["tensors"][name]
        fixed = tensor.get("fixed_data_info", {}).get("data", 0)
        return np.resize(np.asarray(fixed), tensor["shape"])


class Generator(test_gen.TosaTestGen):
    """Builds tests in memory."""

    def serialize(self, *_: object, **__: object) -> None:
        pass


def main() -> None:
    logging.disable(logging.CRITICAL)
    test_gen.GenerateLibrary = FixedData
    tests = Generator(parse_args(shlex.split(ARGUMENTS)), Version(1, 0, 1))
    with tempfile.TemporaryDirectory() as folder:
        tests.basePath = folder
        entries = [
            _entry(tests, name, op)
            for name, op in tests.TOSA_OP_LIST.items()
            if int(op["op"]) <= LAST_OPERATOR or name in LATER_OPERATORS
        ]
    statements = {
        "entries": entries,
        "limits": {
            "MAX_RANK": utils.MAX_TENSOR_RANK,
            "MAX_KERNEL": tests.TOSA_8K_LEVEL_MAX_KERNEL,
            "MAX_STRIDE": tests.TOSA_8K_LEVEL_MAX_STRIDE,
            "MAX_SCALE": tests.TOSA_8K_LEVEL_MAX_SCALE,
            "MAX_LOG2_SIZE": tests.TOSA_8K_LEVEL_MAX_LOG2_SIZE,
        },
        "profiles": [_name(profile) for profile in TosaProfiles.profiles()],
        "extensions": {
            _name(extension): sorted(map(_name, profiles))
            for extension, profiles in TosaProfiles.EXTENSION_COMPATIBLE_PROFILES.items()
        },
    }
    print(json.dumps(statements))


def _entry(tests, name: str, op: dict[str, Any]) -> dict[str, Any]:
    smallest, largest = op["rank"]
    # A few operators are listed from rank 0 and have no such tests, and shapes of rank 1 have one
    # order only; sums of fewer than 1000 elements are left out.
    ranks = {*range(smallest, max(smallest, 3) + 1), 4 if name == "reduce_sum" else smallest}
    # Block-scaled types, of 1.1, are of another class.
    types = {_filter_type(t) for t in op["types"] if isinstance(_listed(t)[0], test_gen.DType)}
    kinds = {_kind(test): test for test in tests.genOpTestList(name, [], sorted(ranks), types)}
    return {
        "name": name,
        "operator": op["op"].name,
        "operands": sum(op["operands"]),
        "constant": list(op.get("ctc_positions", ())),
        "rank": [smallest, largest],
        "tests": [_test(tests, test, op["op"]) for test in kinds.values()],
    }


def _kind(test) -> str:
    """Equal for tests that differ in values and sizes only."""
    arguments = test.argsDict
    return repr(
        (
            test.dtypeOrListOnCreation,
            len(test.shapeList[0]) if test.shapeList else 0,
            arguments.get("acc_type"),
            arguments.get("out_type", arguments.get("output_dtype")),
            *(arguments.get(kind) for kind in KINDS),
        )
    )


def _test(tests, test, op) -> dict[str, Any]:
    arguments = test.argsDict
    tests.serializeTest(TosaTestSelect(test))
    block = tests.ser.currRegion.currBasicBlock
    # Operators with graphs are in another block.
    node = next((node for node in block.operators if node.op == op), None)
    return {
        "in": [_tensor(block, name) for name in node.inputs] if node else None,
        "out": [_tensor(block, name) for name in node.outputs] if node else None,
        "attributes": _attributes(node.attributes) if node else None,
        "acc": arguments["acc_type"].name if arguments.get("acc_type") else None,
        "profiles": sorted(map(_name, arguments["profiles_supported"])),
        "extensions": sorted(map(_name, arguments["extensions_required"])),
    }


def _tensor(block, name: str) -> tuple[str, list[int]]:
    """Type and shape; that of a shape is its length."""
    if name in set(block.shapes):
        return "SHAPE", [block.shapes[name].rank]
    tensor = block.tensors[name]
    return utils.valueToName(test_gen.DType, tensor.dtype), list(tensor.shape)


def _attributes(attributes: object) -> dict[str, object]:
    """Names and values: lists, truth values and the names of enumerants."""
    values = {name: getattr(attributes, name) for name in dir(attributes) if name[0] != "_"}
    return {
        name: value if isinstance(value, list | bool | int) else getattr(value, "name", None)
        for name, value in values.items()
    }


def _filter_type(dtypes):
    """The type by which the generator filters a list of types."""
    return test_gen.DType.INT4 if test_gen.DType.INT4 in _listed(dtypes) else _listed(dtypes)[0]


def _listed(dtypes) -> list:
    return list(dtypes) if isinstance(dtypes, list | tuple) else [dtypes]


def _name(profile: str) -> str:
    return profile.removeprefix("tosa-").upper()


if __name__ == "__main__":
    main()
