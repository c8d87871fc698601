"""Every TOSA operator as a plain function of JAX arrays, named as the operator in lower case.

Inputs are positional in the specification's order, attributes keyword-only. Shapes, attributes
and shape_t inputs are static; everything else may be traced. Nothing is checked here:
`tosajax.validate` does that for graphs.
"""
