# mypy: ignore-errors
"""The names of PyTorch that linear models and trees need, on NumPy arrays, for an install without it.

Types and defaults are PyTorch's: fractions are float32 unless said otherwise. There are no gradients and no
devices but the CPU. Any other name of PyTorch is an error that says what to install.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ContextDecorator, nullcontext
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np
from scipy.special import expit
from scipy.special import logit as _logit

from unskew.base.errors import MissingPackageError

REMEDY = "pip install 'unskew[torch]', or use the learners linear, trees or blend"

float32, float64, int32, int64, uint8 = np.float32, np.float64, np.int32, np.int64, np.uint8
bool = np.bool_
Size = tuple[int, ...]


def needs_torch(what: str) -> NoReturn:
    """Raise the error that something needs PyTorch."""
    raise MissingPackageError(f"{what} needs PyTorch, which is not installed", remedy=REMEDY)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    needs_torch(f"torch.{name}")


class device:  # noqa: N801
    """The CPU."""

    type, index = "cpu", None

    def __init__(self, name: object = "cpu", index: int | None = None) -> None:
        if str(name) not in ("cpu", "meta"):
            needs_torch(f"the device {name}")

    def __str__(self) -> str:
        return "cpu"

    def __eq__(self, other: object) -> Any:
        return str(other) == "cpu"

    def __hash__(self) -> int:
        return hash("cpu")

    def __enter__(self) -> None:
        pass

    def __exit__(self, *problem: object) -> None:
        pass


CPU = device()
cuda = SimpleNamespace(is_available=lambda: False, device_count=lambda: 0)


class Tensor(np.ndarray[Any, Any]):
    """An array with the methods of a tensor, where they differ from an array's."""

    device, is_cuda = CPU, False

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: Any = False) -> Any:
        """Return a tensor also of a single number, as tensors do."""
        return np.asarray(array).view(Tensor)

    def __getitem__(self, key: Any) -> Any:
        return as_tensor(super().__getitem__(key))

    def __bool__(self) -> Any:
        return np.asarray(self).item() != 0

    def numpy(self) -> Any:
        """Return the array."""
        return np.asarray(self)

    def cpu(self) -> Tensor:
        """Return the tensor, which is there."""
        return self

    detach = contiguous = cpu

    def to(self, *wanted: Any) -> Tensor:
        """Return the tensor as another type."""
        kinds = [each for each in wanted if not isinstance(each, device | str)]
        return self.astype(kinds[0]) if kinds else self

    def double(self) -> Tensor:
        """Return float64."""
        return self.astype(np.float64)

    def float(self) -> Tensor:
        """Return float32."""
        return self.astype(np.float32)

    def long(self) -> Tensor:
        """Return int64."""
        return self.astype(np.int64)

    def clone(self, **_: Any) -> Tensor:
        """Return a copy."""
        return self.copy()

    def dim(self) -> int:
        """Return the number of dimensions."""
        return self.ndim

    def unsqueeze(self, at: int) -> Tensor:
        """Insert a dimension."""
        return as_tensor(np.expand_dims(self, at))

    def expand(self, *shape: Any) -> Tensor:
        """Repeat dimensions of length 1 without a copy; −1 keeps one."""
        wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], Sequence) else shape
        own = (1,) * (len(wanted) - self.ndim) + self.shape
        lengths = [have if want == -1 else want for have, want in zip(own, wanted, strict=True)]
        return as_tensor(np.broadcast_to(np.asarray(self), lengths))

    def repeat(self, *copies: int) -> Tensor:  # type: ignore[override]
        """Repeat the whole along each dimension."""
        return as_tensor(np.tile(np.asarray(self), copies))

    def repeat_interleave(self, copies: int, dim: int | None = None) -> Tensor:
        """Repeat each entry."""
        return as_tensor(np.repeat(np.asarray(self), copies, axis=dim))

    def gather(self, dim: int, at: Tensor) -> Tensor:
        """Return the entries at places along a dimension."""
        return as_tensor(np.take_along_axis(np.asarray(self), np.asarray(at), axis=dim))

    def scatter_add_(self, dim: int, at: Tensor, values: Tensor) -> Tensor:
        """Add values at places ``[R, n]`` of lines."""
        np.add.at(self, (np.arange(len(self))[:, None], np.asarray(at)), np.asarray(values))
        return self

    def clamp(self, min: Any = None, max: Any = None) -> Tensor:
        """Return entries within bounds."""
        return as_tensor(np.clip(self, min, max))

    clamp_ = clamp

    def copy_(self, values: Any) -> Tensor:
        """Take other values."""
        self[...] = values
        return self

    def sum(self, dim: Any = None, **options: Any) -> Any:  # type: ignore[override]
        """Return the sum over a dimension."""
        return as_tensor(np.asarray(self).sum(axis=options.get("axis", dim)))

    def mean(self, dim: Any = None, **options: Any) -> Any:  # type: ignore[override]
        """Return the mean over a dimension."""
        return as_tensor(np.asarray(self).mean(axis=options.get("axis", dim)))

    def any(self, dim: Any = None) -> Any:  # type: ignore[override]
        """Return whether any entry is true."""
        return as_tensor(np.asarray(self).any(axis=dim))

    def all(self, dim: Any = None) -> Any:  # type: ignore[override]
        """Return whether all entries are true."""
        return as_tensor(np.asarray(self).all(axis=dim))

    def sort(self, dim: int = -1) -> Any:  # type: ignore[override]
        """Return the sorted entries."""
        return SimpleNamespace(values=as_tensor(np.sort(np.asarray(self), axis=dim)))

    def sigmoid(self) -> Tensor:
        """Return σ."""
        return as_tensor(expit(np.asarray(self)))

    def square(self) -> Tensor:
        """Return squares."""
        return self * self

    def sqrt(self) -> Tensor:
        """Return square roots."""
        return as_tensor(np.sqrt(np.asarray(self)))

    def isfinite(self) -> Tensor:
        """Return where entries are finite numbers."""
        return as_tensor(np.isfinite(np.asarray(self)))


def as_tensor(values: Any, dtype: Any = None, device: Any = None) -> Any:
    """Return a tensor of the same memory, where there is one; Python's fractions are float32."""
    if isinstance(values, Tensor) and dtype is None:
        return values
    array = np.asarray(values, dtype=dtype)
    if dtype is None and array.dtype == np.float64 and not isinstance(values, np.ndarray | np.generic):
        array = array.astype(np.float32)
    return array.view(Tensor)


def from_numpy(values: Any) -> Any:
    """Return a tensor of the same memory."""
    return as_tensor(values)


def tensor(values: Any, dtype: Any = None, device: Any = None) -> Any:
    """Return a tensor with a copy of values."""
    return as_tensor(values, dtype).copy()


def _made(make: Callable[..., Any]) -> Callable[..., Any]:
    """Return what makes tensors of a shape, which may be given as numbers."""

    def made(*shape: Any, dtype: Any = np.float32, device: Any = None) -> Any:
        return as_tensor(make(shape[0] if len(shape) == 1 else shape, dtype=dtype))

    return made


zeros, ones, empty = _made(np.zeros), _made(np.ones), _made(np.empty)


def full(shape: Any, value: Any, dtype: Any = None, device: Any = None) -> Any:
    """Return a tensor of one value."""
    return as_tensor(np.full(shape, value, dtype=dtype or as_tensor(value).dtype))


def arange(*bounds: Any, device: Any = None) -> Any:
    """Return whole numbers from one to before another."""
    return as_tensor(np.arange(*bounds))


def div(one: Any, other: Any, rounding_mode: str) -> Any:
    """Return whole quotients of numbers that are not negative."""
    return as_tensor(one // other)


def searchsorted(edges: Any, values: Any) -> Any:
    """Return where values would be inserted."""
    return as_tensor(np.searchsorted(np.asarray(edges), np.asarray(values)))


def argsort(values: Any, dim: int = -1) -> Any:
    """Return the order of entries."""
    return as_tensor(np.argsort(np.asarray(values), axis=dim))


def bincount(values: Any, minlength: int = 0) -> Any:
    """Return how often each whole number comes."""
    return as_tensor(np.bincount(np.asarray(values), minlength=minlength))


def nonzero(values: Any) -> Any:
    """Return the places of entries that are not 0, a line each."""
    return as_tensor(np.argwhere(np.asarray(values)))


def cat(parts: Sequence[Any], dim: int = 0) -> Any:
    """Join tensors along a dimension."""
    return as_tensor(np.concatenate([np.asarray(part) for part in parts], axis=dim))


def stack(parts: Sequence[Any], dim: int = 0) -> Any:
    """Join tensors along a new dimension."""
    return as_tensor(np.stack([np.asarray(part) for part in parts], axis=dim))


def take_along_dim(values: Any, at: Any, dim: int) -> Any:
    """Return the entries at places along a dimension."""
    return as_tensor(np.take_along_axis(np.asarray(values), np.asarray(at), axis=dim))


def logit(values: Any, eps: float | None = None) -> Any:
    """Return log odds."""
    values = np.asarray(values)
    return as_tensor(_logit(values if eps is None else np.clip(values, eps, 1.0 - eps)))


def split(values: Any, length: int) -> list[Any]:
    """Cut a tensor into parts of a length."""
    return [values[start : start + length] for start in range(0, len(values), length)]


def equal(one: Any, other: Any) -> Any:
    """Return whether two tensors are the same."""
    return np.array_equal(one, other)


def addcmul(start: Any, one: Any, other: Any, value: float = 1.0) -> Any:
    """Return a sum with a product."""
    return start + value * one * other


def _of_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of NumPy as one of tensors."""
    return lambda *values: as_tensor(function(*map(np.asarray, values)))


maximum, minimum, where = _of_arrays(np.maximum), _of_arrays(np.minimum), _of_arrays(np.where)
exp, log, cosh, isnan = _of_arrays(np.exp), _of_arrays(np.log), _of_arrays(np.cosh), _of_arrays(np.isnan)
sigmoid = _of_arrays(expit)
ones_like, zeros_like = _of_arrays(np.ones_like), _of_arrays(np.zeros_like)
finfo, nan, inf = np.finfo, np.nan, np.inf


def _padded(parts: Sequence[Any], batch_first: object = True) -> Any:
    """Return lines of one length, the shorter ones with zeros at their ends."""
    longest = max(len(part) for part in parts)
    return stack([np.pad(np.asarray(part), (0, longest - len(part))) for part in parts])


class Module:
    """A place for tensors by their names."""

    training = False

    def __init__(self) -> None:
        self._buffers: dict[str, Any] = {}

    def __call__(self, *arguments: Any) -> Any:
        """Return what ``forward`` does."""
        return self.forward(*arguments)

    def register_buffer(self, name: str, values: Any) -> None:
        """Keep a tensor."""
        self._buffers[name] = values

    def state_dict(self) -> dict[str, Any]:
        """Return the tensors."""
        return dict(self._buffers)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take tensors."""
        self._buffers = {name: state[name] for name in self._buffers}

    def named_modules(self) -> Iterator[tuple[str, Module]]:
        """Yield the module, which has no other in it."""
        yield "", self

    def modules(self) -> Iterator[Module]:
        """Yield the module."""
        yield self

    def parameters(self) -> Iterator[Any]:
        """Yield nothing: nothing has gradients."""
        return iter(())

    named_parameters = parameters

    def train(self, mode: object = True) -> Module:
        """Return the module, which is the same in training."""
        return self

    eval = train

    def to(self, *_: Any) -> Module:
        """Return the module."""
        return self


class Generator:
    """The generator of initial weights, which needs torch."""

    def __init__(self, *_: object) -> None:
        needs_torch("a network")


class no_grad(ContextDecorator, nullcontext[None]):  # noqa: N801
    """Nothing has gradients."""


inference_mode = no_grad
softplus = _of_arrays(lambda z: np.logaddexp(z, z.dtype.type(0)))
nn = SimpleNamespace(
    Module=Module,
    Parameter=Tensor,
    functional=SimpleNamespace(softplus=softplus),
    utils=SimpleNamespace(rnn=SimpleNamespace(pad_sequence=_padded)),
)
autograd = SimpleNamespace(Function=object)
