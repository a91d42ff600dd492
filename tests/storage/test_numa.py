"""Placement on machines with several memory nodes, by a stand-in for the system calls; these here have one node."""

from __future__ import annotations

import errno
import os
import sys
import threading
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import colstore_io as cs
from colstore_io import config
from colstore_io.storage import mapping, numa

BOUND = (2 | 0x8000, (0b10, *[0] * 15))  # what numactl might have set: MPOL_BIND with a flag
DEFAULT = (0, (0,) * 16)


class FakeCalls:
    """Keeps a policy per thread, as the kernel does, and a list of what was asked."""

    def __init__(self, failing=()):
        self.failing = set(failing)
        self.policies = {}
        self.log = []
        self.initial = DEFAULT

    def get_mempolicy(self):
        self.log.append(("get_mempolicy",))
        if "get_mempolicy" in self.failing:
            return errno.EPERM, DEFAULT
        return 0, self.policies.get(threading.get_ident(), self.initial)

    def set_mempolicy(self, policy):
        self.log.append(("set_mempolicy", policy))
        if "set_mempolicy" in self.failing:
            return errno.EPERM
        self.policies[threading.get_ident()] = policy
        return 0

    def mbind(self, address, length, policy):
        self.log.append(("mbind", address, length, policy))
        return errno.EINVAL if "mbind" in self.failing else 0

    def names(self):
        return [entry[0] for entry in self.log]


@pytest.fixture(autouse=True)
def _apart(monkeypatch):
    monkeypatch.setattr(numa, "_warned", set())
    yield
    config.set_numa_policy("auto")


def install(monkeypatch, nodes=(0, 1), failing=()):
    calls = FakeCalls(failing)
    policy = numa.interleave_policy(nodes)
    monkeypatch.setattr(numa, "_system", lambda: (calls, policy))
    return calls, policy


# -- masks


@given(st.sets(st.integers(0, 1023), min_size=1))
def test_the_mask_has_the_bit_of_every_node(nodes):
    mode, words = numa.interleave_policy(sorted(nodes))
    assert mode == 3
    bits = {64 * w + b for w, word in enumerate(words) for b in range(64) if word >> b & 1}
    assert bits == nodes
    assert numa.maxnode(len(words)) == 64 * len(words) + 1
    assert numa.maxnode(len(words)) - 1 > max(nodes)  # the calls subtract one


@given(st.sets(st.integers(0, 1023)))
def test_lists_of_nodes_are_read_as_printed(nodes):
    runs, text = sorted(nodes), []
    while runs:
        stop = next((i for i, node in enumerate(runs) if node != runs[0] + i), len(runs))
        text.append(str(runs[0]) if stop == 1 else f"{runs[0]}-{runs[stop - 1]}")
        runs = runs[stop:]
    assert numa.parse_nodes("\t" + ",".join(text) + "\n") == tuple(sorted(nodes))


@pytest.mark.parametrize("text", ["a", "3-1", "-4", "0-99999999", "1-"])
def test_what_is_no_list_of_nodes_is_refused(text):
    with pytest.raises(ValueError):
        numa.parse_nodes(text)


@pytest.mark.skipif(sys.platform != "linux", reason="Linux only")
def test_this_machine_tells_its_nodes():
    assert numa.allowed_nodes()


def test_one_node_leaves_nothing_to_choose(monkeypatch):
    monkeypatch.setattr(numa, "allowed_nodes", lambda: (0,))
    assert numa._system.__wrapped__() is None
    monkeypatch.setattr(numa, "allowed_nodes", lambda: (0, 3))
    monkeypatch.setattr(numa.platform, "machine", lambda: "riscv64")
    assert numa._system.__wrapped__() is None


@pytest.mark.skipif(sys.platform != "linux", reason="Linux only")
def test_two_nodes_are_interleaved(monkeypatch):
    monkeypatch.setattr(numa, "allowed_nodes", lambda: (0, 3))
    monkeypatch.setattr(numa.platform, "machine", lambda: "x86_64")
    calls, policy = numa._system.__wrapped__()
    assert isinstance(calls, numa.LinuxCalls)
    assert policy == (3, (0b1001,))


# -- threads


@pytest.mark.parametrize("before", [DEFAULT, BOUND], ids=["default", "numactl"])
def test_the_policy_from_before_is_restored_exactly(monkeypatch, before):
    calls, policy = install(monkeypatch)
    calls.initial = before
    with numa.interleaved() as applied:
        assert applied
        assert calls.get_mempolicy() == (0, policy)
        with numa.interleaved() as inner:
            assert inner
        assert calls.get_mempolicy() == (0, policy)
    assert calls.get_mempolicy() == (0, before)


def test_an_error_inside_restores_too(monkeypatch):
    calls, _ = install(monkeypatch)
    with pytest.raises(KeyError), numa.interleaved():
        raise KeyError
    assert calls.get_mempolicy() == (0, DEFAULT)


def test_other_threads_keep_their_policy(monkeypatch):
    calls, _ = install(monkeypatch)
    with numa.interleaved():
        seen = []
        thread = threading.Thread(target=lambda: seen.append(calls.get_mempolicy()))
        thread.start()
        thread.join()
    assert seen == [(0, DEFAULT)]


@pytest.mark.parametrize("failing", ["get_mempolicy", "set_mempolicy", "mbind"])
def test_a_call_that_fails_warns_once_and_changes_nothing_else(monkeypatch, failing):
    install(monkeypatch, failing=[failing])

    def use():
        with numa.interleaved() as applied:
            assert applied == (failing == "mbind")
        assert numa.interleave_mapping(4096, 10) == (failing != "mbind")

    with pytest.warns(RuntimeWarning, match=failing):
        use()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        use()


def test_local_calls_nothing(monkeypatch):
    calls, _ = install(monkeypatch)
    config.set_numa_policy("local")
    with numa.interleaved() as applied:
        assert not applied
    assert not numa.interleave_mapping(4096, 4096)
    assert calls.log == []


# -- writers and readers


@pytest.mark.parametrize("method", ["pwrite", "mmap"])
def test_bodies_are_written_interleaved_and_counters_are_not(monkeypatch, tmp_path, method):
    calls, policy = install(monkeypatch)
    calls.initial = BOUND
    config.set_write_method(method)
    try:
        with cs.create(tmp_path / "t.cstore") as writer:
            writer.write({"a": np.arange(100_000)})
    finally:
        config.set_write_method("auto")
    asked = [entry[1] for entry in calls.log if entry[0] == "set_mempolicy"]
    assert asked == [policy, BOUND] * (len(asked) // 2)
    assert asked
    assert len(asked) <= 4
    with cs.open(tmp_path / "t.cstore") as table:
        np.testing.assert_array_equal(table["a"].array(), np.arange(100_000))


def test_mappings_are_spread_before_anything_is_advised(monkeypatch, tmp_path):
    cs.store({"a": np.arange(5000)}, tmp_path / "t.cstore").close()
    calls, policy = install(monkeypatch)
    advised = []
    real = mapping.advise
    monkeypatch.setattr(
        "colstore_io.storage.local.advise", lambda *a: (advised.append(len(calls.log)), real(*a))
    )
    with cs.open(tmp_path / "t.cstore", madvise="normal") as table:
        table["a"].array()
        (address,) = (m.ctypes.data for m in table.source.mappings())
        length = -(-table.source.plan.files[0].committed_end // 4096) * 4096
    assert calls.log == [("mbind", address, length, policy)]
    assert advised == [1]


@pytest.mark.parametrize("policy", ["auto", "interleave", "local"])
def test_no_policy_changes_a_byte(monkeypatch, tmp_path, policy):
    install(monkeypatch)
    config.set_numa_policy(policy)
    cs.store({"a": np.arange(50_000)}, tmp_path / "t.cstore").close()
    config.set_numa_policy("local")
    cs.store({"a": np.arange(50_000)}, tmp_path / "want.cstore").close()
    assert (tmp_path / "t.cstore").read_bytes() == (tmp_path / "want.cstore").read_bytes()


# -- the real calls


@pytest.mark.skipif(
    sys.platform != "linux" or os.uname().machine not in numa._NUMBERS, reason="no system calls to make"
)
def test_the_real_calls_take_one_node():
    calls = numa.LinuxCalls(numa._NUMBERS[os.uname().machine])
    error, before = calls.get_mempolicy()
    if error:
        pytest.skip(f"get_mempolicy is not allowed here: {os.strerror(error)}")
    policy = numa.interleave_policy(numa.allowed_nodes())
    try:
        error = calls.set_mempolicy(policy)
        if error:
            pytest.skip(f"set_mempolicy is not allowed here: {os.strerror(error)}")
        _, (mode, words) = calls.get_mempolicy()
        assert mode == policy[0]
        assert words[: len(policy[1])] == policy[1]
    finally:
        assert calls.set_mempolicy(before) == 0
    assert calls.get_mempolicy() == (0, before)
    with open(__file__, "rb") as handle:
        array, owner = mapping.map_descriptor(handle.fileno(), 1000)
    assert calls.mbind(array.ctypes.data, 4096, policy) == 0
    assert calls.mbind(4096, 4096, policy) == errno.EFAULT
    del owner
