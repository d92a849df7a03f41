"""Rows of D with their clicks, and clicks beside a batch of D, give the same losses and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from unskew import losses
from unskew.base.errors import ParameterError

ROWS, REPLICAS = 40, 3
Case = Callable[["Drawn"], Tensor]


class Drawn:
    """Rows of D, the first 16 of them clicked: as one batch with clicks, or as clicks beside all of D."""

    clicks = 16

    def __init__(self, *, one: bool, batched: bool) -> None:
        self.one = one
        random = torch.Generator().manual_seed(1)
        shape = (REPLICAS, ROWS) if batched else (ROWS,)
        self.logit, self.output, self.click_logit, self.soft = (
            torch.randn(shape, generator=random, dtype=torch.float64).requires_grad_() for _ in range(4)
        )
        self.p = torch.rand(shape, generator=random, dtype=torch.float64) * 0.8 + 0.1
        self.r = torch.rand(shape, generator=random, dtype=torch.float64).round()
        self.click = (torch.arange(ROWS) < self.clicks).to(torch.float64).expand(shape)
        self.trusted = self.p > 0.4

    def known(self, values: Tensor) -> Tensor:
        """On clicks alone: the others are cut off, or NaN."""
        return values.where(self.click > 0, torch.nan) if self.one else values[..., : self.clicks]

    def clicked(self, values: Tensor) -> Tensor:
        """Of clicks, for losses that do not look beyond."""
        return values if self.one else values[..., : self.clicks]

    def both(self, values: Tensor) -> Any:
        return values if self.one else (values[..., : self.clicks], values)

    @property
    def space(self) -> dict[str, Any]:
        return {"click": self.click} if self.one else {"density": self.clicks / ROWS}

    @property
    def cells(self) -> dict[str, Any]:
        return self.space if self.one else {**self.space, "unclicked": 1.0 - self.click}

    @property
    def only_click(self) -> dict[str, Any]:
        return {"click": self.click} if self.one else {}


def _weighted(name: str) -> Case:
    return lambda d: getattr(losses, name)(
        d.known(d.r), d.clicked(d.logit), d.known(d.p), **(d.space if name == "ips" else d.only_click)
    )


def _imputation(name: str, **options: Any) -> Case:
    return lambda d: getattr(losses, name)(
        d.known(d.r), d.clicked(d.output), d.clicked(d.logit), d.known(d.p), **options, **d.space
    )


CASES: dict[str, Case] = {
    "naive": lambda d: losses.naive(d.known(d.r), d.clicked(d.logit), **d.only_click),
    "ips": _weighted("ips"),
    "snips": _weighted("snips"),
    "uips": lambda d: losses.uips(
        d.known(d.r), d.clicked(d.logit), d.known(d.p), d.known(1.0 - d.p), shrinkage=30.0, **d.space
    ),
    "eib": lambda d: losses.eib(d.known(d.r), d.both(d.logit), d.both(d.output), **d.space),
    **{
        f"dr {form}": lambda d, form=form: losses.dr(
            d.known(d.r), d.both(d.logit), d.known(d.p), d.both(d.output), form=form, **d.space
        )
        for form in ("P1", "P2", "P3")
    },
    "cdr": lambda d: losses.cdr(
        d.known(d.r), d.both(d.logit), d.known(d.p), d.both(d.output), d.both(d.trusted), **d.space
    ),
    "constant": lambda d: (
        d.logit.sum() * losses.constant_imputation(d.known(d.r), d.known(d.p), **d.only_click)
    ),
    **{
        name: _imputation(name)
        for name in ("dr_jl_imputation", "mrdr_imputation", "dr_bias_imputation", "dr_mse_imputation")
    },
    "imputation of mean weight": _imputation("mrdr_imputation", mean_weight=torch.tensor(7.0)),
    "imputation by ce": _imputation("dr_jl_imputation", loss="ce"),
    "click_loss": lambda d: losses.click_loss(d.both(d.click_logit), **d.cells),
    "esmm": lambda d: losses.esmm(d.known(d.r), d.both(d.logit), d.both(d.click_logit), **d.cells),
    "escm2_ips": lambda d: losses.escm2_ips(
        d.known(d.r), d.both(d.logit), d.known(d.p), d.both(d.click_logit), **d.cells
    ),
    "escm2_dr": lambda d: losses.escm2_dr(
        d.known(d.r), d.both(d.logit), d.known(d.p), d.both(d.output), d.both(d.click_logit), **d.cells
    ),
    "ips_v2": lambda d: losses.ips_v2(
        d.known(d.r), d.both(d.logit), d.known(d.p), d.both(d.click_logit), balance_weight=0.0, **d.cells
    ),
    "dr_v2": lambda d: losses.dr_v2(
        d.known(d.r),
        d.both(d.logit),
        d.known(d.p),
        d.both(d.output),
        d.both(d.click_logit),
        balance_weight=0.0,
        **d.cells,
    ),
    "ddpo": lambda d: losses.ddpo(
        d.known(d.r), d.both(d.logit), d.both(d.p), d.both(d.soft), d.both(d.click_logit), **d.cells
    ),
    "dcmt": lambda d: losses.dcmt(
        d.known(d.r), d.both(d.logit), d.both(d.p), d.both(d.soft), d.both(d.click_logit), **d.cells
    ),
    "imbalance": lambda d: losses.imbalance(d.both(d.logit), d.both(d.click_logit), **d.cells),
    "gpl_propensity": lambda d: losses.gpl_propensity(
        d.known(d.logit.detach()), d.both(d.click_logit), count=9, **d.cells
    ),
    "acdr_propensity": lambda d: losses.acdr_propensity(
        d.both(d.click_logit),
        torch.tensor([0.2, 0.5, 0.8], dtype=torch.float64).expand(*d.logit.shape[:-1], 3).contiguous(),
        counts=d.both(d.trusted),
        **d.cells,
    ),
    "stable_dr_propensity": lambda d: losses.stable_dr_propensity(
        d.both(d.p), d.both(d.logit), d.both(d.output), d.both(d.soft), constraint=0.0, **d.space
    ),
}


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_one_batch_and_two_give_the_same_loss_and_gradients(name, batched):
    values, gradients = [], []
    for one in (True, False):
        drawn = Drawn(one=one, batched=batched)
        loss = CASES[name](drawn)
        assert loss.shape[:1] == (REPLICAS,) * batched or name == "constant"
        loss.sum().backward()
        values.append(loss.detach())
        leaves = (drawn.logit, drawn.output, drawn.click_logit, drawn.soft)
        gradients.append([torch.zeros(()) if each.grad is None else each.grad for each in leaves])
    torch.testing.assert_close(*values, rtol=1e-10, atol=1e-12)
    assert torch.isfinite(values[0]).all()
    assert any(bool((each != 0).any()) for each in gradients[0])
    for first, second in zip(*gradients, strict=True):
        torch.testing.assert_close(first, second, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in CASES if name != "constant"])
def test_a_replica_alone_is_the_replica_in_a_stack(name):
    stacked, alone = Drawn(one=True, batched=True), Drawn(one=True, batched=True)
    for each in ("logit", "output", "click_logit", "soft", "p", "r", "click", "trusted"):
        setattr(alone, each, getattr(alone, each)[1])
    torch.testing.assert_close(CASES[name](alone), CASES[name](stacked)[1], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64])
def test_clicks_may_be_truth_values_or_integers(dtype):
    drawn, other = Drawn(one=True, batched=False), Drawn(one=True, batched=False)
    other.click = other.click.to(dtype)
    for case in CASES.values():
        torch.testing.assert_close(case(other), case(drawn))


def test_clicks_alone_do_not_stand_for_the_population():
    r, a = torch.ones(3), torch.zeros(3)
    with pytest.raises(ParameterError, match="neither rows of D with click=, nor pairs"):
        losses.dr(r, a, r / 2, a)
    with pytest.raises(ParameterError, match="neither rows of D with click=, nor pairs"):
        losses.dr(r, (a, a), r / 2, (a, a), click=r)
    with pytest.raises(ParameterError, match=r"how clicks weigh in the population is not known.*density="):
        losses.dr(r, (a, a), r / 2, (a, a))
    with pytest.raises(ParameterError, match=r"which rows of the batch of D have no click.*unclicked="):
        losses.click_loss((a, a), density=0.1)


@pytest.mark.parametrize(
    "name", ["ips", "snips", "uips", "dr P1", "escm2_ips", "escm2_dr", "ddpo", "dcmt", "mrdr_imputation"]
)
def test_propensities_have_no_gradient_where_they_are_weights(name):
    drawn = Drawn(one=True, batched=False)
    drawn.p.requires_grad_()
    CASES[name](drawn).backward()
    assert drawn.p.grad is None
