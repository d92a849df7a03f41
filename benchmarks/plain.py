"""The yardstick: a DataLoader loop over one model at a time, the way published code trains.

Same network, same number of batches of the same size, same optimiser; nothing of unskew is used.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


class PlainNeuMF(nn.Module):
    """NeuMF as published: four embedding tables, MLP 128-64-32-16 with dropout, one head."""

    def __init__(
        self, users: int, items: int, dim: int = 64, dropout: float = 0.2, sparse: bool = False
    ) -> None:
        super().__init__()
        self.user_gmf, self.item_gmf, self.user_mlp, self.item_mlp = (
            nn.Embedding(size, dim, sparse=sparse) for size in (users, items, users, items)
        )
        for table in (self.user_gmf, self.item_gmf, self.user_mlp, self.item_mlp):
            nn.init.normal_(table.weight, std=0.01)
        layers: list[nn.Module] = []
        width = 2 * dim
        for out in (64, 32, 16):
            layers += [nn.Dropout(dropout), nn.Linear(width, out), nn.ReLU()]
            width = out
        self.mlp = nn.Sequential(*layers)
        self.head = nn.Linear(dim + width, 1)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        gmf = self.user_gmf(user) * self.item_gmf(item)
        mlp = self.mlp(torch.cat((self.user_mlp(user), self.item_mlp(item)), dim=-1))
        return self.head(torch.cat((gmf, mlp), dim=-1)).squeeze(-1)


def plain_epochs(click: Tensor, batch_size: int, epochs: int, device: str, seed: int = 0) -> PlainNeuMF:
    """Train one model over all cells of a click matrix ``[users, items]``."""
    torch.manual_seed(seed)
    users, items = click.shape
    cells = torch.arange(users * items)
    data = TensorDataset(cells // items, cells % items, click.flatten())
    loader = DataLoader(data, batch_size=batch_size, shuffle=True)
    model = PlainNeuMF(users, items).to(device)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    loss_function = nn.BCEWithLogitsLoss()
    for _ in range(epochs):
        total = 0.0
        for user, item, label in loader:
            loss = loss_function(model(user.to(device), item.to(device)), label.to(device))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            total += loss.item()
    return model


def plain_optimisers(model: PlainNeuMF) -> list[torch.optim.Optimizer]:
    """Adam, and SparseAdam for tables that are sparse."""
    tables = [each.weight for each in model.children() if isinstance(each, nn.Embedding) and each.sparse]
    by_rows = {id(weight) for weight in tables}
    rest = [weight for weight in model.parameters() if id(weight) not in by_rows]
    dense = torch.optim.Adam(rest, lr=1e-3, fused=True)
    return [dense, torch.optim.SparseAdam(tables, lr=1e-3)] if tables else [dense]


def plain_steps(
    model: PlainNeuMF,
    optimisers: list[torch.optim.Optimizer],
    columns: tuple[Tensor, Tensor, Tensor],
    batch_size: int,
) -> None:
    """One epoch over rows (user, item and label, ``[n]`` each), batches cut from a shuffled order."""
    user, item, label = columns
    loss_function = nn.BCEWithLogitsLoss()
    for rows in torch.randperm(len(user)).split(batch_size):
        loss = loss_function(model(user[rows], item[rows]), label[rows])
        for optimiser in optimisers:
            optimiser.zero_grad()
        loss.backward()
        for optimiser in optimisers:
            optimiser.step()
