"""Tests of putting off collections of garbage."""

import gc

import pytest

from tf_placer.base.eager import without_collections


def test_no_collection_begins_inside_and_they_go_on_afterwards():
    with without_collections():
        assert not gc.isenabled()
        with without_collections():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_they_go_on_after_an_error():
    @without_collections()
    def fail():
        raise ValueError(gc.isenabled())

    with pytest.raises(ValueError, match="False"):
        fail()
    assert gc.isenabled()


def test_who_switched_them_off_finds_them_off():
    gc.disable()
    try:
        with without_collections():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
