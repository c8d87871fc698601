"""Builds LLVM IR as text; Python operators on a `Value` append instructions.

Text takes a seventh of the time of llvmlite's object model, which has no volatile loads either.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence

_VECTOR = re.compile(r"<(\d+) x (\w+)>")


def vector(element: str, count: int) -> str:
    """The type of a vector."""
    return f"<{count} x {element}>"


def element_type(of: str) -> str:
    """The type of an element of a vector; another type as it is."""
    found = _VECTOR.fullmatch(of)
    return found[2] if found else of


def power_of_two_runs(count: int) -> Iterator[tuple[int, int]]:
    """Powers of two that some elements are made of: the begin and the length of each."""
    begin = 0
    while begin < count:
        length = 1 << ((count - begin).bit_length() - 1)
        yield begin, length
        begin += length


def element_count(of: str) -> int:
    """The elements of a vector; 1 of another type."""
    found = _VECTOR.fullmatch(of)
    return int(found[1]) if found else 1


class Value:
    """A value of LLVM; operators are those of signed integers, and numbers stand for constants."""

    def __init__(self, code: IRBuilder, of: str, name: str) -> None:
        self.code, self.type, self.name = code, of, name

    def _of(self, op: str, other: Value | int) -> Value:
        right = self.code.value(other, self.type)
        return self.code.result(self.type, f"{op} {self.type} {self.name}, {right.name}")

    def __add__(self, other: Value | int) -> Value:
        return self._of("add", other)

    def __sub__(self, other: Value | int) -> Value:
        return self._of("sub", other)

    def __mul__(self, other: Value | int) -> Value:
        return self._of("mul", other)

    def __floordiv__(self, other: Value | int) -> Value:
        """Of numbers that are not negative."""
        return self._of("udiv", other)

    def __mod__(self, other: Value | int) -> Value:
        """Of numbers that are not negative."""
        return self._of("urem", other)

    def __and__(self, other: Value | int) -> Value:
        return self._of("and", other)

    def __or__(self, other: Value | int) -> Value:
        return self._of("or", other)

    def __xor__(self, other: Value | int) -> Value:
        return self._of("xor", other)

    def __lshift__(self, other: Value | int) -> Value:
        return self._of("shl", other)

    def __rshift__(self, other: Value | int) -> Value:
        """With copies of the sign."""
        return self._of("ashr", other)

    def lshr(self, other: Value | int) -> Value:
        """To the right, with zeros."""
        return self._of("lshr", other)

    def __lt__(self, other: Value | int) -> Value:
        return self._compared("slt", other)

    def __gt__(self, other: Value | int) -> Value:
        return self._compared("sgt", other)

    def equals(self, other: Value | int) -> Value:
        return self._compared("eq", other)

    def not_equals(self, other: Value | int) -> Value:
        return self._compared("ne", other)

    def _compared(self, how: str, other: Value | int) -> Value:
        right = self.code.value(other, self.type)
        count = element_count(self.type)
        of = vector("i1", count) if self.type.startswith("<") else "i1"
        return self.code.result(of, f"icmp {how} {self.type} {self.name}, {right.name}")

    def smin(self, other: Value | int) -> Value:
        """The smaller one, by element."""
        other = self.code.value(other, self.type)
        return (self < other).select(self, other)

    def smax(self, other: Value | int) -> Value:
        """The larger one, by element."""
        other = self.code.value(other, self.type)
        return (self > other).select(self, other)

    def select(self, one: Value | int, other: Value | int) -> Value:
        """`one` where it is true, else `other`; numbers alone are i64."""
        of = next((v.type for v in (one, other) if isinstance(v, Value)), "i64")
        one, other = (self.code.value(v, of) for v in (one, other))
        operands = ", ".join(f"{v.type} {v.name}" for v in (self, one, other))
        return self.code.result(of, f"select {operands}")

    def to(self, of: str) -> Value:
        """The same number in a type of other width; signs are kept."""
        width, wanted = (int(element_type(t)[1:]) for t in (self.type, of))
        if width == wanted:
            return self
        op = "sext" if width < wanted else "trunc"
        return self.code.result(of, f"{op} {self.type} {self.name} to {of}")

    def to_elements(self, of: str) -> Value:
        """The same numbers as elements of another width, of a vector or alone."""
        count = element_count(self.type)
        return self.to(vector(of, count) if self.type.startswith("<") else of)

    def ptrtoint(self) -> Value:
        """A pointer as i64."""
        return self.code.result("i64", f"ptrtoint ptr {self.name} to i64")

    def inttoptr(self) -> Value:
        """An i64 as a pointer."""
        return self.code.result("ptr", f"inttoptr i64 {self.name} to ptr")

    def bitcast(self, of: str) -> Value:
        """The same bits in a type of the same size."""
        if self.type == of:
            return self
        return self.code.result(of, f"bitcast {self.type} {self.name} to {of}")

    def splat(self, count: int) -> Value:
        """A vector with the value in each element."""
        of = vector(self.type, count)
        one = self.code.result(of, f"insertelement {of} poison, {self.type} {self.name}, i32 0")
        mask = f"{vector('i32', count)} zeroinitializer"
        return self.code.result(of, f"shufflevector {of} {one.name}, {of} poison, {mask}")

    def shuffle(self, other: Value, places: Sequence[int]) -> Value:
        """A vector of elements of both, which are numbered as if one followed the other."""
        mask = ", ".join(f"i32 {place}" for place in places)
        of = vector(element_type(self.type), len(places))
        operands = f"{self.type} {self.name}, {other.type} {other.name}"
        return self.code.result(of, f"shufflevector {operands}, <{len(places)} x i32> <{mask}>")

    def interleave(self, other: Value) -> Value:
        """A vector of the first elements of both, the second ones, and so on."""
        count = element_count(self.type)
        return self.shuffle(other, [i + at for i in range(count) for at in (0, count)])

    def extract(self, begin: int, length: int) -> Value:
        """Some elements of a vector, as a vector."""
        return self.shuffle(self._poison, range(begin, begin + length))

    def insert(self, part: Value, begin: int) -> Value:
        """The vector with some elements in the place of its own."""
        count, length = element_count(self.type), element_count(part.type)
        # As many elements as the vector has, those behind the part unused.
        wide = part.shuffle(part._poison, [min(i, length) for i in range(count)])
        inside = range(begin, begin + length)
        return self.shuffle(wide, [count + i - begin if i in inside else i for i in range(count)])

    @property
    def _poison(self) -> Value:
        return Value(self.code, self.type, "poison")


class IRBuilder:
    """A function in the making. Sizes, indices and offsets are i64; offsets count bytes.

    Args:
      module: gets the text of the function, and of what it declares.
      name: of the function.
      result: its type.
      arguments: their types.
    """

    def __init__(self, module: Module, name: str, result: str, arguments: Sequence[str]) -> None:
        self.module, self.name, self.result_type = module, name, result
        self._lines: list[str] = []
        self._allocas: list[str] = []
        self._count = 0
        self._block = "start"
        self.arguments = [self._fresh(of) for of in arguments]
        self._signature = ", ".join(f"{a.type} {a.name}" for a in self.arguments)

    def finish(self) -> None:
        """Gives the function to the module."""
        head = f"define {self.result_type} @{self.name}({self._signature}) nounwind {{"
        entry = "entry:", *self._allocas, "  br label %start"
        self.module.add("\n".join([head, *entry, "start:", *self._lines, "}"]))

    def _fresh(self, of: str) -> Value:
        self._count += 1
        return Value(self, of, f"%v{self._count}")

    def do(self, text: str) -> None:
        """An instruction without a result."""
        self._lines.append(f"  {text}")

    def result(self, of: str, text: str) -> Value:
        """The result of an instruction."""
        value = self._fresh(of)
        self.do(f"{value.name} = {text}")
        return value

    def value(self, number: Value | int, of: str = "i64") -> Value:
        """A constant; of a vector, in each element. A value as it is."""
        if isinstance(number, Value):
            return number
        text = f"splat ({element_type(of)} {number})" if of.startswith("<") else str(number)
        return Value(self, of, text)

    def opaque(self, number: int, of: str) -> Value:
        """A constant that LLVM does not know, and thus leaves in a register."""
        at = self.alloca(of)
        self.do(f"store volatile {of} {self.value(number, of).name}, ptr {at.name}")
        return self.result(of, f"load volatile {of}, ptr {at.name}")

    @property
    def null(self) -> Value:
        return Value(self, "ptr", "null")

    def address(self, name: str) -> Value:
        """Of a function or a constant of the module."""
        return Value(self, "ptr", f"@{name}")

    # Memory.

    def alloca(self, of: str) -> Value:
        """The address of a variable, which LLVM keeps in a register where it can."""
        value = self._fresh("ptr")
        self._allocas.append(f"  {value.name} = alloca {of}")
        return value

    def gep(self, pointer: Value, *offsets: Value | int) -> Value:
        """The address so many bytes further."""
        for offset in map(self.value, offsets):
            pointer = self.result("ptr", f"getelementptr i8, ptr {pointer.name}, i64 {offset.name}")
        return pointer

    def load(self, of: str, pointer: Value, *offsets: Value | int) -> Value:
        at = self.gep(pointer, *offsets)
        return self.result(of, f"load {of}, ptr {at.name}, align {_alignment(of)}")

    def load_first(self, count: int, of: str, pointer: Value) -> Value:
        """A vector whose first elements alone are in memory; the others are 0."""
        whole, size = self.value(0, of), int(element_type(of)[1:]) // 8
        for begin, length in power_of_two_runs(count):
            part = self.load(vector(element_type(of), length), pointer, begin * size)
            whole = part if length == element_count(of) else whole.insert(part, begin)
        return whole

    def store(self, value: Value, pointer: Value, *offsets: Value | int) -> None:
        at = self.gep(pointer, *offsets)
        align = _alignment(value.type)
        self.do(f"store {value.type} {value.name}, ptr {at.name}, align {align}")

    def atomic_add(self, number: Value | int, pointer: Value, *offsets: int, order: str) -> Value:
        """Adds to an i64 that threads share; what it was before."""
        at, added = self.gep(pointer, *offsets), self.value(number)
        return self.result("i64", f"atomicrmw add ptr {at.name}, i64 {added.name} {order}")

    def atomic_load(self, pointer: Value, *offsets: int, order: str) -> Value:
        """An i64 that threads share."""
        at = self.gep(pointer, *offsets)
        return self.result("i64", f"load atomic i64, ptr {at.name} {order}, align 8")

    def atomic_store(self, value: Value, pointer: Value, *, order: str) -> None:
        """An i64 that threads share."""
        self.do(f"store atomic i64 {value.name}, ptr {pointer.name} {order}, align 8")

    def cmpxchg(self, pointer: Value, old: Value, new: Value, *, order: str) -> Value:
        """Stores `new` where an i64 that threads share is `old`; whether it was."""
        operands = f"ptr {pointer.name}, i64 {old.name}, i64 {new.name} {order} monotonic"
        pair = self.result("{i64, i1}", f"cmpxchg {operands}, align 8")
        return self.result("i1", f"extractvalue {pair.type} {pair.name}, 1")

    # Calls.

    def call(self, of: str, function: Value | str, *operands: Value) -> Value:
        """The result of a function; one that is named is an intrinsic or of the C library."""
        if isinstance(function, str):
            self.module.declare(of, function, [operand.type for operand in operands])
            function = self.address(function)
        given = ", ".join(f"{operand.type} {operand.name}" for operand in operands)
        text = f"call {of} {function.name}({given})"
        if of != "void":
            return self.result(of, text)
        self.do(text)
        return self.null

    # Flow.

    def label(self, name: str) -> str:
        """The name of a block that does not exist yet."""
        self._count += 1
        return f"{name}{self._count}"

    def position_at(self, label: str) -> None:
        """Begins a block."""
        self._lines.append(f"{label}:")
        self._block = label

    def br(self, label: str) -> None:
        self.do(f"br label %{label}")

    def cond_br(self, condition: Value, then: str, other: str) -> None:
        self.do(f"br i1 {condition.name}, label %{then}, label %{other}")

    def ret(self, value: Value | None = None) -> None:
        """Returns from the function."""
        self.do("ret void" if value is None else f"ret {value.type} {value.name}")

    @contextlib.contextmanager
    def if_then(self, condition: Value, *, returns: bool = False) -> Iterator[None]:
        """What is done if a condition is true; it may return from the function."""
        then, behind = self.label("then"), self.label("behind")
        self.cond_br(condition, then, behind)
        self.position_at(then)
        yield
        if not returns:
            self.br(behind)
        self.position_at(behind)

    @contextlib.contextmanager
    def loop(self, count: Value, step: int = 1) -> Iterator[Value]:
        """A loop over 0, step, 2 * step, ... below a count."""
        head, body, behind = (self.label(name) for name in ("head", "body", "behind"))
        index, following = self._fresh("i64"), self._fresh("i64")
        before = self._block
        self.br(head)
        self.position_at(head)
        place = len(self._lines)
        self.cond_br(index < count, body, behind)
        self.position_at(body)
        yield index
        self.do(f"{following.name} = add i64 {index.name}, {step}")
        pairs = f"[ 0, %{before} ], [ {following.name}, %{self._block} ]"
        self._lines.insert(place, f"  {index.name} = phi i64 {pairs}")
        self.br(head)
        self.position_at(behind)


class Module:
    """The text of a module of LLVM."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._declared: dict[str, str] = {}

    def add(self, text: str) -> None:
        self._parts.append(text)

    def declare(self, of: str, name: str, arguments: Sequence[str]) -> None:
        """Declares a function that is defined elsewhere."""
        self._declared[name] = f"declare {of} @{name}({', '.join(arguments)})"

    def add_c_string(self, name: str, text: str) -> None:
        """Adds a constant of characters that end with a zero."""
        self.add(f'@{name} = private constant [{len(text) + 1} x i8] c"{text}\\00"')

    def __str__(self) -> str:
        return "\n\n".join([*self._declared.values(), *self._parts]) + "\n"


def _alignment(of: str) -> int:
    """Of elements, which is all that XLA's buffers promise."""
    element = element_type(of)
    return 8 if element == "ptr" else max(1, int(element[1:]) // 8)
