"""Normalizers: softmax, layer norm and their kin, found by their shape in a float graph.

A normalizer divides by a statistic of a row: elementwise functions, a sum over an axis, a steep
function of the sum (a reciprocal, an inverse square root), and a product with it. Their inner
tensors need more than 8 bits, and none of them is an operand of a convolution or MATMUL.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from tosajax import spec
from tosajax.graph import Graph, Node
from tosajax.quant.graphs.blocks import readers_by_tensor
from tosajax.quant.graphs.regions import Function, covered, steepness
from tosajax.quant.ranges.masks import from_last
from tosajax.quant.ranges.relevance import Logit, LogitTerm, Relevance, RowFactor

_SUMS = ("ADD", "SUB")
_PRODUCTS = ("MUL",)
_POOLS = ("AVG_POOL2D",)


@dataclasses.dataclass(frozen=True)
class Normalizers:
    """The tensors of a graph's normalizers.

    Args:
      inner: the tensors inside, and sums before and between that no convolution or MATMUL reads.
      relevances: the relevant values of tensors whose ranges need not hold all of them, by name.
    """

    inner: frozenset[str]
    relevances: Mapping[str, Relevance]

    @classmethod
    def of(cls, graph: Graph, functions: Mapping[str, Function]) -> Normalizers:
        """Finds the normalizers of a graph.

        Args:
          graph: from `simplify`.
          functions: from `functions`.
        """
        finder = _Finder(graph, functions)
        for function in functions.values():
            if steepness(function) is not None and finder.is_statistic(function.source):
                finder.add(function)
        finder.add_row_factors()
        for node in graph.nodes:
            finder.add_logits(node)
        return cls(
            frozenset(finder.inner).difference(graph.inputs, graph.outputs), finder.relevances
        )


class _Finder:
    """Walks from the steep functions of a graph to both sides.

    Attributes:
      inner, relevances: of `Normalizers`, so far.
    """

    def __init__(self, graph: Graph, functions: Mapping[str, Function]) -> None:
        self._graph = graph
        self._functions = functions
        self._covered = {*covered(graph, functions), *functions}
        self._producers = {name: node for node in graph.nodes for name in node.outputs}
        self._readers = readers_by_tensor(graph)
        self._sources: dict[str, list[str]] = {}
        for function in functions.values():
            self._sources.setdefault(function.source, []).append(function.output)
        self._statistics = set[str]()
        self._find_statistics()
        # The products of each factor of rows; None where something else reads it.
        self._products = dict[str, dict[str, None] | None]()
        self.inner = set[str]()
        self.relevances = dict[str, Relevance]()

    def add(self, function: Function) -> None:
        """Adds the tensors around a steep function of a statistic."""
        self._add_statistic(function.source)
        self._add_results(function.output)

    def is_statistic(self, name: str) -> bool:
        """Whether a tensor is a sum or an extreme over an axis, or computed from some alone."""
        return name in self._statistics

    def _find_statistics(self) -> None:
        for node in self._graph.ordered_nodes():
            is_passing = spec.OPERATORS[node.op].is_elementwise or _moves(node)
            operands = self._operands(node)
            is_computed = is_passing and operands and self._statistics.issuperset(operands)
            if is_computed or _reduces(node):
                self._statistics.update(node.outputs)

    # Upwards.

    def _add_statistic(self, name: str) -> None:
        node = self._producer(name)
        if node is None or name in self.inner:
            return
        self.inner.add(name)
        if _reduces(node):
            self._add_summand(node.inputs[0])
        elif name in self._functions:
            self._add_statistic(self._functions[name].source)
        else:
            for operand in self._operands(node):
                self._add_statistic(operand)

    def _add_summand(self, name: str) -> None:
        """The elements of a sum: a function of centred elements, or a product of these."""
        node = self._producer(name)
        if node is None or name in self.inner:
            return
        if name in self._functions:
            self.inner.add(name)
            self._add_centred(self._functions[name].source)
        elif node.op in _PRODUCTS and len(self._operands(node)) == len(node.inputs[:2]):
            self.inner.add(name)
            for operand in dict.fromkeys(node.inputs[:2]):
                self._add_centred(operand)
        else:
            self._add_centred(name)

    def _add_centred(self, name: str) -> None:
        """Elements less a statistic of theirs, or such elements moved; others are the input."""
        node = self._producer(name)
        if node is None or name in self.inner:
            return
        if _moves(node):
            self._add_centred(node.inputs[0])
        elif node.op in _SUMS and any(map(self.is_statistic, self._operands(node))):
            self.inner.add(name)
            for operand in self._operands(node):
                if self.is_statistic(operand):
                    self._add_statistic(operand)
                else:
                    self._add_input(operand)
        else:
            self._add_input(name)

    def _add_input(self, name: str) -> None:
        """An input of a normalizer, and the summands that only it is the sum of.

        An input stays as it is where something reads it that needs few bits: a product, an output.
        """
        pending = [name]
        while pending:
            name = pending.pop()
            node = self._producer(name)
            if node is None or name in self.inner or name in self._graph.outputs:
                continue
            if not all(map(self._is_wide_reader, self._readers[name])):
                continue
            if _moves(node):
                pending.append(node.inputs[0])
            elif name not in self._functions:
                self.inner.add(name)
                pending += self._operands(node) if node.op in _SUMS else []

    def _is_wide_reader(self, node: Node) -> bool:
        (output,) = node.outputs if len(node.outputs) == 1 else ("",)
        if output in self._covered:
            return True
        is_binary = node.op in (*_SUMS, *_PRODUCTS)
        return is_binary or _reduces(node) or (_moves(node) and self._is_read_wide(output))

    def _is_read_wide(self, name: str) -> bool:
        readers = self._readers.get(name, [])
        is_output = name in self._graph.outputs
        return bool(readers) and not is_output and all(map(self._is_wide_reader, readers))

    # Downwards.

    def _add_results(self, name: str, factors: tuple[str, ...] = ()) -> None:
        """A steep function, and products and sums of it up to the output of the normalizer.

        Args:
          name: the tensor.
          factors: it, where it is a statistic, and statistics that it is computed from.
        """
        self.inner.add(name)
        factors = (*factors, name)
        is_read_otherwise = name in self._graph.outputs
        for node in self._readers.get(name, []):
            (output,) = node.outputs
            others = [other for other in self._operands(node) if other != name]
            is_of_rows = all(map(self.is_statistic, others))
            is_covered = output in self._covered
            if node.op == "MUL" and not is_of_rows and not is_covered:
                self._add_product(factors, output)
                for other in others:
                    self._add_centred(other)
            elif is_covered or not is_of_rows:
                is_read_otherwise = True
            is_binary = node.op in (*_PRODUCTS, *_SUMS)
            is_inner = is_binary and (self.is_statistic(output) or self._goes_on(output))
            if not is_covered and (is_inner or _moves(node)):
                self._add_results(output, factors if is_of_rows else ())
            elif is_of_rows:
                is_read_otherwise = True
        if is_read_otherwise:
            self._products.update(dict.fromkeys(factors))

    def _add_product(self, factors: Sequence[str], product: str) -> None:
        rank = len(self._graph.tensors[product].shape or ())
        for name in factors:
            products = self._products.setdefault(name, {})
            if len(self._graph.tensors[name].shape or ()) != rank:
                self._products[name] = None
            elif products is not None:
                products[product] = None

    def add_row_factors(self) -> None:
        """Has the ranges of factors leave out rows whose products are 0."""
        for name, products in self._products.items():
            if products:
                self.relevances[name] = RowFactor(name, tuple(products))

    def _goes_on(self, name: str) -> bool:
        """Whether a normalizer goes on after a tensor: by constants or statistics."""
        readers = self._readers.get(name, [])
        if name in self._graph.outputs or not readers:
            return False
        for node in readers:
            if node.op not in (*_PRODUCTS, *_SUMS) or node.outputs[0] in self._covered:
                return False
            others = [other for other in self._operands(node) if other != name]
            if not all(other in self.inner or self.is_statistic(other) for other in others):
                return False
        return True

    # Logits.

    def add_logits(self, node: Node) -> None:
        """Adds the relevances of logits, if a node takes their maximum away in a softmax."""
        if node.op != "SUB" or not self._is_less_maximum(node):
            return
        logits, (difference,) = node.inputs[0], node.outputs
        axis = from_last(self._graph, self._producers[node.inputs[1]])
        self.relevances[difference] = Logit(difference, axis)
        if len(self._readers[logits]) == 2 and logits not in self._graph.outputs:
            self._add_logits(logits, axis)

    def _is_less_maximum(self, node: Node) -> bool:
        """Whether a node takes from logits their maximum, and exponentials alone read the rest."""
        maximum = self._producer(node.inputs[1])
        if maximum is None or maximum.op != "REDUCE_MAX":
            return False
        (difference,) = node.outputs
        functions = [self._functions.get(n) for n in self._sources.get(difference, [])]
        return (
            maximum.inputs[0] == node.inputs[0]
            and difference not in self._graph.outputs
            and bool(functions)
            and all(n.outputs[0] in self._covered for n in self._readers[difference])
            and all(f is not None and _is_exponential(f) for f in functions)
        )

    def _add_logits(self, name: str, axis: int) -> None:
        """Logits, and the terms that they are sums of."""
        owner = self._owner(name)
        self.relevances[owner] = Logit(name, axis)
        node = self._producer(owner)
        if node is None or node.op != "ADD" or owner != name:
            return
        for term, other in (node.inputs, reversed(node.inputs)):
            is_constant = self._graph.tensors[term].values is not None
            if not is_constant and self._is_read_once(term):
                self.relevances[self._owner(term)] = LogitTerm(term, other, name, axis)

    def _owner(self, name: str) -> str:
        """The tensor that one is moved from, where nothing else reads those between."""
        node = self._producer(name)
        while node is not None and _moves(node) and self._is_read_once(node.inputs[0]):
            name = node.inputs[0]
            node = self._producer(name)
        return name

    def _is_read_once(self, name: str) -> bool:
        return len(self._readers[name]) == 1 and name not in self._graph.outputs

    # Nodes.

    def _producer(self, name: str) -> Node | None:
        node = self._producers.get(name)
        return None if node is None or node.op in spec.CONSTANT_OPERATORS else node

    def _operands(self, node: Node) -> list[str]:
        """The inputs that are not constants."""
        return [name for name in node.inputs if self._graph.tensors[name].values is None]


def _is_exponential(function: Function) -> bool:
    """Whether a function is exp(c x)."""
    ops = [n.op for n in function.graph.nodes if n.op not in spec.CONSTANT_OPERATORS]
    return ops.count("EXP") == 1 and set(ops) <= {"EXP", "MUL"}


def _reduces(node: Node) -> bool:
    return spec.OPERATORS[node.op].chapter == "reduction" or node.op in _POOLS


def _moves(node: Node) -> bool:
    operator = spec.OPERATORS[node.op]
    return operator.chapter == "data_layout" and operator.keeps_scale and node.op != "CONCAT"
