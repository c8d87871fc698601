"""TFLite files as LiteRT quantizes them: float32 weights, built-in operators, a signature."""

# Schemas of the format are in a package of the extra "ptq".
# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

from tosajax.io.tflite.edits import Model

SIGNATURE = "serving_default"


def plain(content: bytes) -> bytes:
    """The file with constants in float32, built-in operators, closed shapes and a signature."""
    model = Model(content)
    model.simplify()
    model.close()
    model.root.signatureDefs = [_signature(model.schema, model.main)]
    return model.content()


def _signature(schema: Any, graph: Any) -> Any:
    """A signature that names the graph's inputs and outputs by position."""

    def named(kind: str, tensors: Any) -> list[Any]:
        return [
            schema.TensorMapT(name=f"{kind}_{n}", tensorIndex=int(tensor))
            for n, tensor in enumerate(tensors)
        ]

    return schema.SignatureDefT(
        inputs=named("input", graph.inputs),
        outputs=named("output", graph.outputs),
        signatureKey=SIGNATURE,
        subgraphIndex=0,
    )
