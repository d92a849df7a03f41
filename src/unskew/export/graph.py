"""An ONNX graph written as arithmetic on values. It computes nothing; no torch, no onnx yet.

Operators are NumPy's, with its broadcasting, so that a formula reads here as it does in its docstring. The
package ``onnx`` is asked for only when the graph is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.errors import UnskewError

OPSET = 17
"""Version of the operators, of 2022: old enough for most runtimes that are in use."""

IR_VERSION = 8
"""Version of the file format that goes with it."""

ML, ML_OPSET = "ai.onnx.ml", 2
"""The operators that look up texts, and their version, of 2019."""

LARGEST_BYTES = (1 << 31) - (1 << 20)
"""A file of Protocol Buffers ends at 2 GiB; the graph itself needs less than the megabyte left."""

SMALLEST_OUTSIDE = 1 << 10
"""Bytes from which a table goes into the file beside, where there is one."""

PAGE_BYTES = 1 << 12
"""Tables begin on whole pages there, so that a runtime can map them."""

Array = NDArray[Any]


@dataclass(frozen=True)
class Node:
    """One operation."""

    kind: str
    inputs: tuple[str, ...]
    output: str
    attributes: Mapping[str, Any]
    domain: str = ""


@dataclass(frozen=True)
class Input:
    """What is given with each request: rows ``[n]``, or ``[n, columns]``."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[str | int, ...]


@dataclass
class Graph:
    """Operations in the order in which they are computed, and the constants they read."""

    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    inputs: list[Input] = field(default_factory=list)

    def input(self, name: str, dtype: Any = np.int64, columns: str | int | None = None) -> Value:
        """Values ``[n]``, or ``[n, columns]``, that are given with each request; ``object`` is text.

        Columns that are named, and not counted, may be any number.
        """
        shape: tuple[str | int, ...] = ("n",) if columns is None else ("n", columns)
        self.inputs.append(Input(name, np.dtype(dtype), shape))
        return Value(self, name, np.dtype(dtype))

    def constant(self, value: Any, dtype: Any = None) -> Value:
        """An array that is stored in the file."""
        array = np.asarray(value, dtype=dtype)
        name = self._unused(f"constant_{len(self.constants)}")
        self.constants[name] = array
        return Value(self, name, array.dtype)

    def apply(
        self, kind: str, *operands: Value, dtype: Any = None, domain: str = "", **attributes: Any
    ) -> Value:
        """An operation; its result has the type of the first operand unless given."""
        output = self._unused(f"{kind.lower()}_{len(self.nodes)}")
        names = tuple(each.name for each in operands)
        self.nodes.append(Node(kind, names, output, attributes, domain))
        return Value(self, output, operands[0].dtype if dtype is None else np.dtype(dtype))

    def _unused(self, name: str) -> str:
        """A name that no input has: a column may be called anything."""
        while any(each.name == name for each in self.inputs):
            name += "_"
        return name


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor of a graph; numbers and arrays beside it become constants of its type."""

    graph: Graph
    name: str
    dtype: np.dtype[Any]

    def __add__(self, other: Any) -> Value:
        return self._with("Add", other)

    def __sub__(self, other: Any) -> Value:
        return self._with("Sub", other)

    def __rsub__(self, other: Any) -> Value:
        return self._value(other) - self

    def __mul__(self, other: Any) -> Value:
        return self._with("Mul", other)

    def __truediv__(self, other: Any) -> Value:
        return self._with("Div", other)

    def __rtruediv__(self, other: Any) -> Value:
        return self._value(other) / self

    def __pow__(self, other: Any) -> Value:
        return self._with("Pow", other)

    def __matmul__(self, other: Any) -> Value:
        return self._with("MatMul", other)

    def __rmatmul__(self, other: Any) -> Value:
        return self._value(other) @ self

    # An array on the left would otherwise take each element of itself for a left side.
    __array_ufunc__ = None

    def __neg__(self) -> Value:
        return self.graph.apply("Neg", self)

    def __ge__(self, other: Any) -> Value:
        return self._with("GreaterOrEqual", other, dtype=bool)

    def __le__(self, other: Any) -> Value:
        return self._with("LessOrEqual", other, dtype=bool)

    def __lt__(self, other: Any) -> Value:
        return self._with("Less", other, dtype=bool)

    def __and__(self, other: Any) -> Value:
        return self._with("And", other)

    def minimum(self, other: Any) -> Value:
        """The smaller of two, element by element."""
        return self._with("Min", other)

    def maximum(self, other: Any) -> Value:
        """The larger of two, element by element."""
        return self._with("Max", other)

    def where(self, chosen: Any, otherwise: Any, dtype: Any = None) -> Value:
        """``chosen`` where this is true, ``otherwise`` elsewhere."""
        options = [
            each if isinstance(each, Value) else self.graph.constant(each, dtype)
            for each in (chosen, otherwise)
        ]
        return self.graph.apply("Where", self, *options, dtype=options[0].dtype)

    def log(self) -> Value:
        """Natural logarithm."""
        return self.graph.apply("Log", self)

    def exp(self) -> Value:
        """Exponential."""
        return self.graph.apply("Exp", self)

    def sigmoid(self) -> Value:
        """1/(1 + e^−z); an exponential that overflows is a probability of 0."""
        # Not the operator: for z < 0 onnxruntime computes it as 1 − 1/(1 + e^z), which cancels.
        return 1.0 / ((-self).exp() + 1.0)

    def relu(self) -> Value:
        """max(z, 0)."""
        return self.graph.apply("Relu", self)

    def sum(self, axis: int, *, keep: bool = False) -> Value:
        """Sum along an axis, counted from the first: onnxruntime sums no rows wrongly from the last."""
        return self.graph.apply("ReduceSum", self, self.graph.constant([axis], np.int64), keepdims=int(keep))

    def largest(self, axis: int) -> Value:
        """Maximum along an axis, counted from the first, which is left out."""
        return self.graph.apply("ReduceMax", self, axes=[axis], keepdims=0)

    def smallest(self, axis: int) -> Value:
        """Minimum along an axis, counted from the first, which is left out."""
        return self.graph.apply("ReduceMin", self, axes=[axis], keepdims=0)

    def softmax(self) -> Value:
        """e^z / Σ e^z along the last axis."""
        return self.graph.apply("Softmax", self, axis=-1)

    def unsqueeze(self, axis: int) -> Value:
        """With one more axis, of length one."""
        return self.graph.apply("Unsqueeze", self, self.graph.constant([axis], np.int64))

    def first_columns(self, count: int) -> Value:
        """At most so many columns of ``[n, columns]``."""
        ends = [self.graph.constant([each], np.int64) for each in (0, count, 1)]
        return self.graph.apply("Slice", self, *ends)

    def looked_up(self, keys: Sequence[str] | Sequence[int], values: Sequence[int], otherwise: int) -> Value:
        """The whole number that belongs to each text or whole number, and ``otherwise`` to all others."""
        # A table of strings has another attribute than one of numbers.
        kind = "keys_strings" if self.dtype == object else "keys_int64s"
        return self.graph.apply(
            "LabelEncoder",
            self,
            dtype=np.int64,
            domain=ML,
            **{kind: keys, "values_int64s": values, "default_int64": otherwise},
        )

    def squeeze(self, axis: int) -> Value:
        """Without an axis of length one."""
        return self.graph.apply("Squeeze", self, self.graph.constant([axis], np.int64))

    def take(self, place: Value, axis: int = 0) -> Value:
        """Rows at places along an axis."""
        return self.graph.apply("Gather", self, place, axis=axis)

    def like(self, other: Value) -> Value:
        """Repeated until it also has the shape of another."""
        return self.graph.apply(
            "Expand", self, self.graph.apply("Shape", other, dtype=np.int64), dtype=self.dtype
        )

    def concatenated(self, other: Value) -> Value:
        """Side by side along the last axis."""
        return self.graph.apply("Concat", self, other, axis=-1)

    def cast(self, dtype: Any) -> Value:
        """The same numbers in another type."""
        return self.graph.apply("Cast", self, dtype=dtype, to=np.dtype(dtype))

    def named(self, name: str) -> Value:
        """The same under a name that the file shows."""
        self.graph.nodes.append(Node("Identity", (self.name,), name, {}))
        return Value(self.graph, name, self.dtype)

    def _with(self, kind: str, other: Any, dtype: Any = None) -> Value:
        return self.graph.apply(kind, self, self._value(other), dtype=dtype)

    def _value(self, other: Any) -> Value:
        return other if isinstance(other, Value) else self.graph.constant(other, self.dtype)


def require_onnx() -> None:
    """An error with its remedy where the package ``onnx`` is not installed."""
    try:
        import onnx  # noqa: F401
    except ImportError as error:
        raise UnskewError(
            "to export needs the package onnx, which is not installed", remedy="pip install 'unskew[onnx]'"
        ) from error


class Serialised(NamedTuple):
    """The content of an ONNX file, and the tables that do not fit into it."""

    content: bytes
    outside: Mapping[int, Array]
    """By where each begins in the file beside it (ONNX external data); none where one file holds all."""

    def write_outside(self, path: Path) -> None:
        """Write the file beside."""
        with open(path, "wb") as file:
            for start, array in self.outside.items():
                file.seek(start)
                np.ascontiguousarray(array).tofile(file)


def serialised(
    graph: Graph,
    outputs: Sequence[Value],
    *,
    name: str,
    doc: str,
    metadata: Mapping[str, str],
    beside: str = "",
) -> Serialised:
    """The file's content; every output is a vector of any length ``n``.

    Parameters
    ----------
    beside
        The name of the file for the tables, where they make the model too large for one file.
    """
    require_onnx()
    from onnx import checker, helper, numpy_helper

    inside = sum(_bytes_of(each) for node in graph.nodes for each in node.attributes.values())
    inside += sum(len(text.encode()) for text in metadata.values())
    tables = {key: each for key, each in graph.constants.items() if each.nbytes >= SMALLEST_OUTSIDE}
    inside += sum(each.nbytes for key, each in graph.constants.items() if key not in tables)
    if inside > LARGEST_BYTES:
        raise UnskewError(
            f"ids and texts of the model have {inside / 1e9:.1f} GB, and an ONNX file holds 2.1 GB of them",
            remedy="train on shorter ids, such as whole numbers",
        )
    fits = inside + sum(each.nbytes for each in tables.values()) <= LARGEST_BYTES
    places = {} if fits else _places(tables)

    def tensor(name: str, dtype: Any, shape: Sequence[str | int] = ("n",)) -> Any:
        return helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), list(shape)
        )

    nodes = [
        helper.make_node(node.kind, list(node.inputs), [node.output], domain=node.domain, **_attributes(node))
        for node in graph.nodes
    ]
    constants = [
        _outside(key, array, beside, places[key]) if key in places else numpy_helper.from_array(array, key)
        for key, array in graph.constants.items()
    ]
    drawn = helper.make_graph(
        nodes,
        name,
        [tensor(each.name, each.dtype, each.shape) for each in graph.inputs],
        [tensor(each.name, each.dtype) for each in outputs],
        constants,
        doc_string=doc,
    )
    model = helper.make_model(
        drawn,
        opset_imports=[
            helper.make_opsetid("", OPSET),
            *([helper.make_opsetid(ML, ML_OPSET)] if any(node.domain == ML for node in graph.nodes) else []),
        ],
        ir_version=IR_VERSION,
        producer_name="unskew",
        doc_string=doc,
    )
    helper.set_model_props(model, dict(metadata))
    if fits:
        # With tables outside, the file is checked when both are there.
        checker.check_model(model, full_check=True)
    outside = {start: graph.constants[key] for key, start in places.items()}
    return Serialised(bytes(model.SerializeToString()), outside)


def check_file(path: Path) -> None:
    """An error of the package ``onnx`` for a file that is no valid model, with what lies beside it."""
    from onnx import checker

    checker.check_model(str(path), full_check=True)


def _places(tables: Mapping[str, Array]) -> dict[str, int]:
    """Where each table begins, one after the other, on whole pages."""
    places, start = {}, 0
    for key, array in tables.items():
        places[key] = start
        start += -(-array.nbytes // PAGE_BYTES) * PAGE_BYTES
    return places


def _outside(name: str, array: Array, file: str, start: int) -> Any:
    """A tensor whose numbers are in another file."""
    from onnx import TensorProto, helper

    tensor = TensorProto(
        name=name,
        data_type=helper.np_dtype_to_tensor_dtype(array.dtype),
        dims=array.shape,
        data_location=TensorProto.EXTERNAL,
    )
    for key, value in (("location", file), ("offset", start), ("length", array.nbytes)):
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def _attributes(node: Node) -> dict[str, Any]:
    """As onnx takes them: types by their numbers."""
    from onnx import helper

    return {
        name: helper.np_dtype_to_tensor_dtype(value) if isinstance(value, np.dtype) else value
        for name, value in node.attributes.items()
    }


def _bytes_of(attribute: Any) -> int:
    """Of a list of texts or whole numbers, about; of anything else nothing to speak of."""
    if not isinstance(attribute, list):
        return 0
    return sum(len(each.encode()) if isinstance(each, str) else 10 for each in attribute)
