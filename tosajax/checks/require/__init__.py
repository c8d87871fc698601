"""The run-time rules (REQUIRE) of operators, by chapter: the one part of `checks` that needs JAX.

`<op>_require` takes what the operator's function in `tosajax.ops` takes and gives a flag for each
rule: a scalar bool, true where at least one element breaks it. The rules are r1, r2, ... in the
order in which they apply; one that no value of the types and shapes at hand can break is left out.
An element that breaks a rule is not judged by later ones whose condition loses its meaning with
it, such as the range of a value shifted by an illegal amount.

Every addition to an accumulator has its rule in the specification; here the exact total has it. A
partial sum that leaves the type and comes back depends on the order of the additions, and as they
wrap, the total has the right bits all the same.
"""
