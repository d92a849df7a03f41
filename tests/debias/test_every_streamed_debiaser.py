"""Every method of the table trains on a stream of impressions."""

from __future__ import annotations

import pytest

from contracts.streamed_contract import StreamedContract
from unskew.debias import METHODS


class TestEveryStreamedDebiaser(StreamedContract):
    @pytest.fixture(scope="class", params=METHODS)
    @classmethod
    def method(cls, request):
        return METHODS[request.param]
