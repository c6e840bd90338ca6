"""Errors while an engine is used: one that shuts down is told apart from one that refuses."""

import pytest

from recapture.base.errors import EnvironmentUnfitError
from recapture.images.engine import engine_lost, reporting

pytest.importorskip("docker")


class Engine:
    """A client whose engine answers a number of pings, and after them no more."""

    def __init__(self, pings):
        self.pings = pings

    def ping(self):
        if self.pings == 0:
            raise ConnectionError("refused")
        self.pings -= 1
        return True


def test_an_engine_is_lost_once_it_no_longer_answers():
    assert not engine_lost(Engine(1))
    assert engine_lost(Engine(0))
    assert engine_lost(Engine(2), within=30)


def test_a_failed_connection_to_an_engine_that_then_shuts_down_is_a_lost_engine():
    with (
        pytest.raises(EnvironmentUnfitError, match=r"^the engine stopped$"),
        reporting(Engine(2), "the engine stopped"),
    ):
        raise ConnectionError("Connection aborted.")


def test_a_request_that_a_living_engine_refuses_is_reported_as_it_put_it():
    from docker.errors import APIError

    with (
        pytest.raises(EnvironmentUnfitError, match=r"^the container engine refused: no space$"),
        reporting(Engine(1), "the engine stopped"),
    ):
        raise APIError("500", explanation="no \n space")
