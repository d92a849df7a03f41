"""Work that threads do ahead: in order, and what goes wrong in its turn."""

from __future__ import annotations

import pytest

from unskew.io.ahead import ahead, mapped


def failing_at(number, of=6):
    for each in range(of):
        if each == number:
            raise ValueError(f"no item {each}")
        yield each


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("wrong", [0, 1, 3, 5])
def test_what_is_fine_comes_before_what_goes_wrong(threads, wrong):
    found = mapped(lambda number: number * 2, failing_at(wrong), threads)
    assert [next(found) for _ in range(wrong)] == [2 * each for each in range(wrong)]
    with pytest.raises(ValueError, match=f"no item {wrong}"):
        next(found)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_of_two_errors_the_first_is_raised(threads):
    def work(number):
        if number == 1:
            raise KeyError("work on 1")
        return number

    found = mapped(work, failing_at(2), threads)
    assert next(found) == 0
    with pytest.raises(KeyError, match="work on 1"):
        next(found)


def test_ahead_raises_in_its_turn():
    found = ahead(failing_at(2), 2)
    assert [next(found), next(found)] == [0, 1]
    with pytest.raises(ValueError, match="no item 2"):
        next(found)


def test_no_further_ahead_than_there_are_threads():
    taken = []

    def items():
        for number in range(9):
            taken.append(number)
            yield number

    for number, each in enumerate(mapped(lambda number: number * number, items(), 3)):
        assert each == number * number
        assert len(taken) <= number + 3
