"""The run-time rules (REQUIRE) of operators, by chapter: the one part of `checks` that needs JAX.

`<op>_require` takes the arguments of the operator's function in `tosajax.ops` and returns a flag
for each rule: a scalar bool, true if at least one element breaks it. The rules are r1, r2, ... in
the order in which they apply; one that no value of the types and shapes at hand can break is left
out. Later rules skip an element that breaks one if their condition has no meaning for it, such as
the range of a value shifted by an illegal amount.

The specification has a rule for every addition to an accumulator; here it holds for the exact
total. A partial sum that leaves the type and comes back depends on the order of the additions, and
as they wrap, the total has the right bits all the same.
"""
