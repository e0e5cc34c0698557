import gc

import pytest

from aquila.sim.garbage import OBJECTS_PER_TURN, rare_collections


@pytest.fixture
def thresholds():
    before = gc.get_threshold()
    yield before
    gc.set_threshold(*before)


def test_collections_are_rare_within_the_block_only(thresholds):
    with rare_collections(1000):
        assert gc.get_threshold() == (1000 * OBJECTS_PER_TURN, *thresholds[1:])
    assert gc.get_threshold() == thresholds


def test_a_higher_threshold_stays(thresholds):
    gc.set_threshold(10**6)
    with rare_collections(2):
        assert gc.get_threshold()[0] == 10**6


def test_a_collector_that_is_off_stays_off(thresholds):
    gc.set_threshold(0)
    with rare_collections(1000):
        assert gc.get_threshold()[0] == 0
