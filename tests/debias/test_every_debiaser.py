"""Every method of the table keeps the contract."""

from __future__ import annotations

import pytest

from contracts.debiaser_contract import DebiaserContract
from unskew.debias import METHODS


class TestEveryDebiaser(DebiaserContract):
    @pytest.fixture(scope="class", params=METHODS)
    @classmethod
    def method(cls, request):
        return METHODS[request.param]
