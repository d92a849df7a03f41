"""The parameters of a tower over x₀, as its one function on a CPU and on a GPU takes them."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

Layer = tuple[Tensor, Tensor]
"""Weight ``[R, in, out]`` and bias ``[R, 1, out]``."""


class TowerLayers(NamedTuple):
    """Parameters of a tower (or their gradients), ``[R, …]`` each."""

    crosses: tuple[Layer, ...]
    mlp: tuple[Layer, ...]
    head: Tensor
    head_bias: Tensor

    @classmethod
    def of(cls, parameters: tuple[Tensor, ...], crosses: int) -> TowerLayers:
        """From the order in which a tower has them, of which so many layers are crosses."""
        *layers, head, head_bias = (each.detach() for each in parameters)
        pairs = tuple(zip(layers[::2], layers[1::2], strict=True))
        return cls(pairs[:crosses], pairs[crosses:], head[..., 0], head_bias[:, 0])

    def head_parts(self) -> tuple[Tensor, Tensor]:
        """The head's weights ``[R, width]`` for the crosses, and for the MLP."""
        width = self.mlp[-1][0].shape[2]
        return self.head[:, :-width], self.head[:, -width:]

    def heads(self, replica: int) -> tuple[Any, Any]:
        """The same of one replica, as arrays."""
        of_crosses, of_mlp = self.head_parts()
        return of_crosses[replica].numpy(), of_mlp[replica].numpy()
