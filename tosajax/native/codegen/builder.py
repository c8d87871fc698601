"""Builds LLVM IR as text; Python operators on a `Value` append instructions.

Text takes a seventh of the time of llvmlite's object model, which has no volatile loads either.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence

_VECTOR = re.compile(r"<(\d+) x (\w+)>")


def vector(element: str, count: int) -> str:
    """The IR type of a vector of `count` elements."""
    return f"<{count} x {element}>"


def element_type(ir_type: str) -> str:
    """The element type of a vector type; a scalar type itself."""
    match = _VECTOR.fullmatch(ir_type)
    return match[2] if match else ir_type


def element_count(ir_type: str) -> int:
    """The number of elements of a vector type; 1 for a scalar type."""
    match = _VECTOR.fullmatch(ir_type)
    return int(match[1]) if match else 1


def power_of_two_runs(count: int) -> Iterator[tuple[int, int]]:
    """Splits `count` elements into runs of a power of two: (first element, length) of each."""
    begin = 0
    while begin < count:
        length = 1 << ((count - begin).bit_length() - 1)
        yield begin, length
        begin += length


class Value:
    """An SSA value: its IR type and its name.

    Operators append instructions on signed integers, by element where the value is a vector. A
    Python int as an operand is a constant of the value's type.

    Args:
      code: the function that the value belongs to.
      ir_type: type, such as "i64", "ptr" or "<4 x i32>".
      name: "%" and a number, "@" and a symbol, or a constant.
    """

    def __init__(self, code: IRBuilder, ir_type: str, name: str) -> None:
        self.code, self.type, self.name = code, ir_type, name

    def _binary(self, op: str, other: Value | int) -> Value:
        right = self.code.value(other, self.type)
        return self.code.result(self.type, f"{op} {self.type} {self.name}, {right.name}")

    def __add__(self, other: Value | int) -> Value:
        return self._binary("add", other)

    def __sub__(self, other: Value | int) -> Value:
        return self._binary("sub", other)

    def __mul__(self, other: Value | int) -> Value:
        return self._binary("mul", other)

    def __floordiv__(self, other: Value | int) -> Value:
        """Unsigned division; both operands must be >= 0."""
        return self._binary("udiv", other)

    def __mod__(self, other: Value | int) -> Value:
        """Unsigned remainder; both operands must be >= 0."""
        return self._binary("urem", other)

    def __and__(self, other: Value | int) -> Value:
        return self._binary("and", other)

    def __or__(self, other: Value | int) -> Value:
        return self._binary("or", other)

    def __xor__(self, other: Value | int) -> Value:
        return self._binary("xor", other)

    def __lshift__(self, other: Value | int) -> Value:
        return self._binary("shl", other)

    def __rshift__(self, other: Value | int) -> Value:
        """Arithmetic shift right."""
        return self._binary("ashr", other)

    def lshr(self, other: Value | int) -> Value:
        """Logical shift right."""
        return self._binary("lshr", other)

    def __lt__(self, other: Value | int) -> Value:
        return self._icmp("slt", other)

    def __gt__(self, other: Value | int) -> Value:
        return self._icmp("sgt", other)

    def equals(self, other: Value | int) -> Value:
        return self._icmp("eq", other)

    def not_equals(self, other: Value | int) -> Value:
        return self._icmp("ne", other)

    def _icmp(self, predicate: str, other: Value | int) -> Value:
        right = self.code.value(other, self.type)
        count = element_count(self.type)
        ir_type = vector("i1", count) if self.type.startswith("<") else "i1"
        return self.code.result(ir_type, f"icmp {predicate} {self.type} {self.name}, {right.name}")

    def smin(self, other: Value | int) -> Value:
        """Signed minimum."""
        other = self.code.value(other, self.type)
        return (self < other).select(self, other)

    def smax(self, other: Value | int) -> Value:
        """Signed maximum."""
        other = self.code.value(other, self.type)
        return (self > other).select(self, other)

    def select(self, if_true: Value | int, if_false: Value | int) -> Value:
        """Selects by an i1, or by a vector of i1; two ints are i64 constants."""
        ir_type = next((v.type for v in (if_true, if_false) if isinstance(v, Value)), "i64")
        if_true, if_false = (self.code.value(v, ir_type) for v in (if_true, if_false))
        operands = ", ".join(f"{v.type} {v.name}" for v in (self, if_true, if_false))
        return self.code.result(ir_type, f"select {operands}")

    def to(self, ir_type: str) -> Value:
        """Sign-extends or truncates to an integer type, or to a vector of as many elements."""
        width, new_width = (int(element_type(t)[1:]) for t in (self.type, ir_type))
        if width == new_width:
            return self
        op = "sext" if width < new_width else "trunc"
        return self.code.result(ir_type, f"{op} {self.type} {self.name} to {ir_type}")

    def to_elements(self, element: str) -> Value:
        """Sign-extends or truncates a scalar, or each element of a vector, to type `element`."""
        count = element_count(self.type)
        return self.to(vector(element, count) if self.type.startswith("<") else element)

    def ptrtoint(self) -> Value:
        """Converts a pointer to i64."""
        return self.code.result("i64", f"ptrtoint ptr {self.name} to i64")

    def inttoptr(self) -> Value:
        """Converts an i64 to a pointer."""
        return self.code.result("ptr", f"inttoptr i64 {self.name} to ptr")

    def bitcast(self, ir_type: str) -> Value:
        """Reinterprets the bits as a type of the same size."""
        if self.type == ir_type:
            return self
        return self.code.result(ir_type, f"bitcast {self.type} {self.name} to {ir_type}")

    def splat(self, count: int) -> Value:
        """Broadcasts a scalar to a vector of `count` elements."""
        ir_type = vector(self.type, count)
        first = self.code.result(
            ir_type, f"insertelement {ir_type} poison, {self.type} {self.name}, i32 0"
        )
        mask = f"{vector('i32', count)} zeroinitializer"
        return self.code.result(
            ir_type, f"shufflevector {ir_type} {first.name}, {ir_type} poison, {mask}"
        )

    def shuffle(self, other: Value, indices: Sequence[int]) -> Value:
        """Picks elements of two vectors of one type; `other` has indices from the count on."""
        mask = ", ".join(f"i32 {index}" for index in indices)
        ir_type = vector(element_type(self.type), len(indices))
        operands = f"{self.type} {self.name}, {other.type} {other.name}"
        mask_type = vector("i32", len(indices))
        return self.code.result(ir_type, f"shufflevector {operands}, {mask_type} <{mask}>")

    def interleave(self, other: Value) -> Value:
        """Alternates the elements of two vectors: self[0], other[0], self[1], ..."""
        count = element_count(self.type)
        return self.shuffle(other, [i + begin for i in range(count) for begin in (0, count)])

    def extract(self, begin: int, length: int) -> Value:
        """The vector of elements begin to begin + length - 1."""
        return self.shuffle(self._poison, range(begin, begin + length))

    def insert(self, part: Value, begin: int) -> Value:
        """Replaces elements from `begin` on by a shorter vector."""
        count, length = element_count(self.type), element_count(part.type)
        # Shuffles take vectors of one length: elements behind the part are poison.
        padded = part.shuffle(part._poison, [min(i, length) for i in range(count)])
        inside = range(begin, begin + length)
        return self.shuffle(padded, [count + i - begin if i in inside else i for i in range(count)])

    @property
    def _poison(self) -> Value:
        return Value(self.code, self.type, "poison")


class IRBuilder:
    """Builds one function. Sizes, indices and offsets are i64; offsets are in bytes.

    Args:
      module: receives the text of the function and its declarations.
      name: the function's name.
      result: its return type.
      arguments: types of its arguments.
    """

    def __init__(self, module: Module, name: str, result: str, arguments: Sequence[str]) -> None:
        self.module, self.name, self.result_type = module, name, result
        self._lines: list[str] = []
        self._allocas: list[str] = []
        self._count = 0
        self._block = "start"
        self.arguments = [self._fresh(ir_type) for ir_type in arguments]
        self._signature = ", ".join(f"{a.type} {a.name}" for a in self.arguments)

    def finish(self) -> None:
        """Adds the function to the module."""
        head = f"define {self.result_type} @{self.name}({self._signature}) nounwind {{"
        entry = "entry:", *self._allocas, "  br label %start"
        self.module.add("\n".join([head, *entry, "start:", *self._lines, "}"]))

    def _fresh(self, ir_type: str) -> Value:
        self._count += 1
        return Value(self, ir_type, f"%v{self._count}")

    def do(self, text: str) -> None:
        """Appends an instruction without a result."""
        self._lines.append(f"  {text}")

    def result(self, ir_type: str, text: str) -> Value:
        """Appends an instruction, and returns its result."""
        value = self._fresh(ir_type)
        self.do(f"{value.name} = {text}")
        return value

    def value(self, number: Value | int, ir_type: str = "i64") -> Value:
        """An int as a constant, splatted where the type is a vector; a `Value` unchanged."""
        if isinstance(number, Value):
            return number
        is_vector = ir_type.startswith("<")
        text = f"splat ({element_type(ir_type)} {number})" if is_vector else str(number)
        return Value(self, ir_type, text)

    def opaque(self, number: int, ir_type: str) -> Value:
        """A constant that LLVM cannot fold, and therefore keeps in a register."""
        slot = self.alloca(ir_type)
        self.do(f"store volatile {ir_type} {self.value(number, ir_type).name}, ptr {slot.name}")
        return self.result(ir_type, f"load volatile {ir_type}, ptr {slot.name}")

    @property
    def null(self) -> Value:
        return Value(self, "ptr", "null")

    def address(self, name: str) -> Value:
        """The address of a function or a global of the module."""
        return Value(self, "ptr", f"@{name}")

    # Memory.

    def alloca(self, ir_type: str) -> Value:
        """The address of a stack slot; LLVM promotes it to a register where it can."""
        slot = self._fresh("ptr")
        self._allocas.append(f"  {slot.name} = alloca {ir_type}")
        return slot

    def gep(self, pointer: Value, *offsets: Value | int) -> Value:
        """Adds offsets in bytes to a pointer."""
        for offset in map(self.value, offsets):
            pointer = self.result("ptr", f"getelementptr i8, ptr {pointer.name}, i64 {offset.name}")
        return pointer

    def load(self, ir_type: str, pointer: Value, *offsets: Value | int) -> Value:
        address = self.gep(pointer, *offsets)
        return self.result(
            ir_type, f"load {ir_type}, ptr {address.name}, align {_alignment(ir_type)}"
        )

    def load_first(self, count: int, ir_type: str, pointer: Value) -> Value:
        """Loads the first `count` elements of a vector; reads no others, which become 0."""
        whole, size = self.value(0, ir_type), int(element_type(ir_type)[1:]) // 8
        for begin, length in power_of_two_runs(count):
            part = self.load(vector(element_type(ir_type), length), pointer, begin * size)
            whole = part if length == element_count(ir_type) else whole.insert(part, begin)
        return whole

    def load_masked(self, ir_type: str, pointer: Value, count: Value) -> Value:
        """Loads the first `count` elements of a vector, i64; reads no others, which become 0."""
        lanes = element_count(ir_type)
        numbers = ", ".join(f"i64 {lane}" for lane in range(lanes))
        below = Value(self, vector("i64", lanes), f"<{numbers}>") < count.splat(lanes)
        align, zeros = self.value(_alignment(ir_type), "i32"), self.value(0, ir_type)
        name = f"llvm.masked.load.v{lanes}{element_type(ir_type)}.p0"
        return self.call(ir_type, name, pointer, align, below, zeros)

    def store(self, value: Value, pointer: Value, *offsets: Value | int) -> None:
        address = self.gep(pointer, *offsets)
        align = _alignment(value.type)
        self.do(f"store {value.type} {value.name}, ptr {address.name}, align {align}")

    def atomic_add(self, number: Value | int, pointer: Value, *offsets: int, order: str) -> Value:
        """Adds to an i64 in shared memory, and returns its old value (`atomicrmw add`)."""
        address, addend = self.gep(pointer, *offsets), self.value(number)
        return self.result("i64", f"atomicrmw add ptr {address.name}, i64 {addend.name} {order}")

    def atomic_load(self, pointer: Value, *offsets: int, order: str) -> Value:
        """Loads an i64 from shared memory."""
        address = self.gep(pointer, *offsets)
        return self.result("i64", f"load atomic i64, ptr {address.name} {order}, align 8")

    def atomic_store(self, value: Value, pointer: Value, *, order: str) -> None:
        """Stores an i64 to shared memory."""
        self.do(f"store atomic i64 {value.name}, ptr {pointer.name} {order}, align 8")

    def cmpxchg(self, pointer: Value, old: Value, new: Value, *, order: str) -> Value:
        """Replaces an i64 in shared memory by `new` if it is `old`; i1, whether it was."""
        operands = f"ptr {pointer.name}, i64 {old.name}, i64 {new.name} {order} monotonic"
        pair = self.result("{i64, i1}", f"cmpxchg {operands}, align 8")
        return self.result("i1", f"extractvalue {pair.type} {pair.name}, 1")

    # Calls.

    def call(self, ir_type: str, function: Value | str, *operands: Value) -> Value:
        """Calls a function, and returns its result; null if `ir_type` is "void".

        Args:
          ir_type: return type of the function.
          function: its address; or the name of an intrinsic, of a C library function or of one in
            another module, which is declared.
          operands: arguments of the call.
        """
        if isinstance(function, str):
            self.module.declare(ir_type, function, [operand.type for operand in operands])
            function = self.address(function)
        arguments = ", ".join(f"{operand.type} {operand.name}" for operand in operands)
        text = f"call {ir_type} {function.name}({arguments})"
        if ir_type != "void":
            return self.result(ir_type, text)
        self.do(text)
        return self.null

    # Control flow.

    def label(self, name: str) -> str:
        """A fresh label; the block is appended later, by `position_at`."""
        self._count += 1
        return f"{name}{self._count}"

    def position_at(self, label: str) -> None:
        """Begins the block of a label."""
        self._lines.append(f"{label}:")
        self._block = label

    def br(self, label: str) -> None:
        self.do(f"br label %{label}")

    def cond_br(self, condition: Value, if_true: str, if_false: str) -> None:
        self.do(f"br i1 {condition.name}, label %{if_true}, label %{if_false}")

    def ret(self, value: Value | None = None) -> None:
        """Returns from the function."""
        self.do("ret void" if value is None else f"ret {value.type} {value.name}")

    @contextlib.contextmanager
    def if_then(self, condition: Value, *, returns: bool = False) -> Iterator[None]:
        """A context whose instructions run if an i1 is true.

        Args:
          condition: i1.
          returns: whether the instructions end with a return from the function.
        """
        then, behind = self.label("then"), self.label("behind")
        self.cond_br(condition, then, behind)
        self.position_at(then)
        yield
        if not returns:
            self.br(behind)
        self.position_at(behind)

    @contextlib.contextmanager
    def loop(self, count: Value, step: int = 1) -> Iterator[Value]:
        """A loop over the i64 indices 0, step, 2 * step, ... below `count`."""
        head, body, behind = (self.label(name) for name in ("head", "body", "behind"))
        index, following = self._fresh("i64"), self._fresh("i64")
        before = self._block
        self.br(head)
        self.position_at(head)
        phi_line = len(self._lines)
        self.cond_br(index < count, body, behind)
        self.position_at(body)
        yield index
        self.do(f"{following.name} = add i64 {index.name}, {step}")
        # The body may have ended in another block, so that the phi is written last.
        pairs = f"[ 0, %{before} ], [ {following.name}, %{self._block} ]"
        self._lines.insert(phi_line, f"  {index.name} = phi i64 {pairs}")
        self.br(head)
        self.position_at(behind)


class Module:
    """The text of an LLVM module."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._declarations: dict[str, str] = {}

    def add(self, text: str) -> None:
        """Adds a function or a global."""
        self._parts.append(text)

    def declare(self, ir_type: str, name: str, arguments: Sequence[str]) -> None:
        """Declares a function of another module, by its return type and argument types."""
        self._declarations[name] = f"declare {ir_type} @{name}({', '.join(arguments)})"

    def add_c_string(self, name: str, text: str) -> None:
        """Adds a constant of characters that ends with a zero."""
        self.add(f'@{name} = private constant [{len(text) + 1} x i8] c"{text}\\00"')

    def __str__(self) -> str:
        return "\n\n".join([*self._declarations.values(), *self._parts]) + "\n"


def _alignment(ir_type: str) -> int:
    """Alignment in bytes: the size of an element, as XLA's buffers promise no more."""
    element = element_type(ir_type)
    return 8 if element == "ptr" else max(1, int(element[1:]) // 8)
