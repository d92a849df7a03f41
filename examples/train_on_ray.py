"""Train on Ray: replicas of unskew's methods dealt to workers, and a model of yours under torch's DDP."""

import sys

import torch
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model

import unskew as us


def replicas(config: dict[str, str]) -> None:
    """Train four seeds of a method, two on each worker; the first worker saves all of them."""
    log = us.load("synthetic", n_users=200, n_items=100, density=0.1).train
    with us.torchrun():  # joins the process group that Ray started, and leaves it there
        us.IPS(learner=us.MF(), epochs=5).fit(log, propensity=0.1, seeds=4).save(config["folder"])


def own_model(config: dict[str, str]) -> None:
    """Train one model with a loss of unskew, each worker on its share of the rows."""
    log = us.load("synthetic", n_users=200, n_items=100, density=0.1).train
    p = torch.tensor(us.PopularityPropensity().fit(log).predict(log)).float()
    model = prepare_model(torch.nn.Sequential(torch.nn.Embedding(log.n_items, 1), torch.nn.Flatten(0)))
    item, bought = torch.tensor(log.item), torch.tensor(log.known_conversion()).float()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.05)
    mine = slice(torch.distributed.get_rank(), None, torch.distributed.get_world_size())
    for rows in torch.arange(len(item))[mine].split(256):
        loss = us.losses.ips(bought[rows], model(item[rows]), p[rows])
        optimiser.zero_grad(), loss.backward(), optimiser.step()


for work in (replicas, own_model):
    config = {"folder": sys.argv[1]}
    TorchTrainer(work, train_loop_config=config, scaling_config=ScalingConfig(num_workers=2)).fit()
