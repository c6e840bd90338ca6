"""A limit for the time of a whole command."""

from __future__ import annotations

import signal
import time

import pytest

from recapture.base.errors import Termination, TimeOver, status_of
from recapture.base.time_limit import ending_after


def test_the_body_is_interrupted_where_it_waits():
    began = time.monotonic()
    with pytest.raises(TimeOver), ending_after(0.05):
        time.sleep(30)
    assert time.monotonic() - began < 10


def test_a_body_that_ends_in_time_is_not_interrupted_later():
    before = signal.getsignal(signal.SIGALRM)
    with ending_after(0.2):
        assert signal.getsignal(signal.SIGALRM) is not before
    assert signal.getsignal(signal.SIGALRM) is before
    time.sleep(0.3)


def test_no_limit_changes_nothing():
    before = signal.getsignal(signal.SIGALRM)
    with ending_after(None):
        assert signal.getsignal(signal.SIGALRM) is before


@pytest.mark.parametrize(("error", "status"), [(KeyboardInterrupt(), 130), (Termination(), 143), (TimeOver(), 124)])
def test_every_interruption_has_an_exit_status(error, status):
    assert status_of(error) == status
