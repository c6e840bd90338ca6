"""Contents of containers are read and put back as they are held, whatever a subclass answers."""

import logging
import os
from collections import Counter, OrderedDict, UserDict, defaultdict, deque

import pytest

from recapture.judge.saver import Saver


class MakesWhatIsLookedUp(OrderedDict):
    """As the table of activations of transformers: it holds classes, and gives objects of them."""

    def __getitem__(self, key):
        return super().__getitem__(key)()


def test_a_dict_that_makes_objects_keeps_its_classes():
    table = MakesWhatIsLookedUp(a=int, b=str)
    table.move_to_end("a")
    restore = Saver().saved(table)
    del table["a"]
    table["c"] = float
    restore()
    assert list(table.items()) == [("b", str), ("a", int)]
    assert table["a"] == 0


def test_nothing_is_done_to_a_dict_that_did_not_change():
    class Counts(dict):
        writes = 0

        def __setitem__(self, key, value):
            self.writes += 1
            super().__setitem__(key, value)

    counts = Counts(a=1)
    Saver().saved(counts)()
    assert counts.writes == 0


@pytest.mark.parametrize(
    ("value", "change"),
    [
        (Counter("aab"), lambda value: value.update("z")),
        (defaultdict(list, {1: [2]}), lambda value: value[3].append(1)),
        ([1, [2]], lambda value: value[1].append(3)),
        ({1, 2}, lambda value: value.add(9)),
        (UserDict({1: 2}), lambda value: value.update({5: 6})),
        (deque([1, 2], maxlen=5), lambda value: value.append(9)),
        (bytearray(b"ab"), lambda value: value.append(99)),
        (os.environ, lambda value: value.update(RECAPTURE_TEST="1")),
    ],
    ids=lambda argument: type(argument).__name__,
)
def test_contents_are_put_back(value, change):
    before = repr(value)
    restore = Saver().saved(value)
    change(value)
    assert repr(value) != before
    restore()
    assert repr(value) == before


def test_a_logger_gets_its_own_settings_back_and_those_of_libraries_stay():
    """All loggers are reachable from one: a library that is imported meanwhile keeps the loggers that it made."""
    logger = logging.getLogger("recapture-test.restored")
    logger.setLevel(logging.ERROR)
    restore = Saver().saved(logger)
    library_logger = logging.getLogger("recapture-test.made-meanwhile")
    logger.setLevel(logging.DEBUG)
    logger.disabled, logger.propagate = True, False
    logger.addHandler(logging.NullHandler())
    assert logger.isEnabledFor(logging.DEBUG) is False
    restore()
    assert (logger.level, logger.disabled, logger.propagate, logger.handlers) == (logging.ERROR, False, True, [])
    assert logger.isEnabledFor(logging.ERROR)
    assert not logger.isEnabledFor(logging.INFO)
    assert logging.getLogger("recapture-test.made-meanwhile") is library_logger
