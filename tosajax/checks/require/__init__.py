"""The run-time rules (REQUIRE) of operators, by chapter: the only part of `checks` that needs JAX.

`<op>_require` takes the arguments of the operator's function in `tosajax.ops` and returns a flag
for each rule: a scalar bool, true if at least one element breaks it. The rules are r1, r2, ... in
the order in which they apply; a rule that the types and shapes make impossible to break is omitted.
If an element breaks a rule, later rules skip it where they would be meaningless, such as the range
of a value shifted by an illegal amount.

The specification has a rule for every addition to an accumulator; here the rule applies to the
exact total. Whether a partial sum overflows depends on the order of additions, and since additions
wrap, the total is right even if a partial sum overflowed.
"""
