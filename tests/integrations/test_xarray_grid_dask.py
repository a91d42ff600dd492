"""Dask arrays written into grid containers."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
from climate import climate, files_of, opened

from colstore_io.grid import files
from colstore_io.integrations import _xarray_write

# What is in these tests on purpose, and what xarray has to say about it.
pytestmark = [
    pytest.mark.filterwarnings("ignore:variable .* has data in the form of a dask array"),
    pytest.mark.filterwarnings("ignore:The specified chunks separate the stored chunks"),
]


def test_nothing_is_visible_before_compute(tmp_path):
    job = climate().chunk({"time": 2}).colstore.to_colstore(tmp_path / "a", compute=False)
    with pytest.raises((FileNotFoundError, ValueError)):
        opened(tmp_path / "a")
    job.compute()
    xr.testing.assert_identical(opened(tmp_path / "a").load(), climate())


def test_compute_false_works_without_dask_arrays(tmp_path):
    climate().colstore.to_colstore(tmp_path / "a", compute=False).compute()
    xr.testing.assert_identical(opened(tmp_path / "a").load(), climate())


def test_task_that_runs_twice_does_no_harm(tmp_path):
    calls = []

    def flaky(block):
        calls.append(1)
        return block

    data = da.ones((4, 4), chunks=(2, 4)).map_blocks(flaky, meta=np.empty((0, 0)))
    job = xr.Dataset({"v": (("x", "y"), data)}).colstore.to_colstore(tmp_path / "a", mode="w", compute=False)
    job.compute()
    job.compute()
    assert (opened(tmp_path / "a")["v"] == 1).all()


@pytest.mark.slow
def test_tasks_run_in_other_processes(tmp_path):
    with dask.config.set(scheduler="processes", num_workers=2):
        climate(4).drop_vars("name").chunk({"time": 2}).colstore.to_colstore(tmp_path / "a")
        back = opened(tmp_path / "a", chunks={})
        xr.testing.assert_identical(back.load(), climate(4).drop_vars("name"))


def test_append_of_undecoded_times_compares_numbers(tmp_path):
    ds = xr.Dataset({"v": ("t", [1, 2])}, {"t": ("t", [0.0, 1.0], {"units": "months since 0000-01-01"})})
    ds.colstore.to_colstore(tmp_path / "a")
    ds.assign_coords(t=ds["t"] + 2).assign_coords(t=("t", [2.0, 3.0], ds["t"].attrs)).colstore.to_colstore(
        tmp_path / "a", append_dim="t"
    )
    back = opened(tmp_path / "a", decode_times=False)
    assert back["t"].values.tolist() == [0, 1, 2, 3]


def test_blocks_that_cut_chunks_are_joined(tmp_path):
    ds = climate(8).chunk({"time": 3, "lon": 3})
    ds.colstore.to_colstore(tmp_path / "a", encoding={"t": {"chunks": (2, 5, 4)}})
    back = opened(tmp_path / "a", chunks={})
    assert back["t"].chunks == ((2, 2, 2, 2), (5,), (4, 4))
    xr.testing.assert_identical(back.load(), climate(8))


def test_dataset_may_be_rewritten_from_itself(tmp_path):
    climate().colstore.to_colstore(tmp_path / "a")
    (opened(tmp_path / "a", chunks={"time": 2}) * 2).colstore.to_colstore(tmp_path / "a")
    xr.testing.assert_equal(opened(tmp_path / "a")["t"], climate()["t"] * 2)


def many_blocks() -> xr.Dataset:
    values = np.arange(60 * 8 * 9, dtype="f4").reshape(60, 8, 9)
    return xr.Dataset({"v": (("x", "y", "z"), values)}).chunk({"x": 1, "y": 4, "z": 3})


def members(path) -> list[str]:
    return [name for name in files_of(path) if name.endswith(".cstore")]


@pytest.mark.parametrize("group_bytes", [1, 1200, 4000, 16 << 20])
def test_small_blocks_share_files_and_keep_their_chunks(tmp_path, monkeypatch, group_bytes):
    monkeypatch.setattr(_xarray_write, "GROUP_BYTES", group_bytes)
    ds = many_blocks()
    ds.colstore.to_colstore(tmp_path / "a")
    back = opened(tmp_path / "a", chunks={})
    assert back["v"].chunks == ds["v"].chunks
    xr.testing.assert_identical(back.load(), ds.load())
    expected = {1: 360, 1200: 15, 4000: 5, 16 << 20: 1}
    assert len(members(tmp_path / "a")) == expected[group_bytes]


def test_blocks_that_are_joined_never_pass_the_limit():
    for chunks, most in (([(3, 3, 1, 9), (2, 5)], 40), ([(1,) * 50], 7), ([(4, 0, 4), (0,)], 8)):
        limit, _xarray_write.GROUP_BYTES = _xarray_write.GROUP_BYTES, most * 4
        try:
            found = _xarray_write._joined(chunks, 4)
        finally:
            _xarray_write.GROUP_BYTES = limit
        assert [sum(own) for own in found] == [sum(own) for own in chunks]
        largest = np.prod([max(own) for own in found])
        assert largest <= max(most, np.prod([max(own) for own in chunks]))


@pytest.fixture
def syncs(monkeypatch):
    """Descriptors that were synced, by the name of the thread."""
    found = []
    monkeypatch.setattr(files, "sync", found.append)
    return found


def test_blocks_written_on_this_machine_are_made_durable_once_by_who_publishes(tmp_path, monkeypatch, syncs):
    monkeypatch.setattr(_xarray_write, "GROUP_BYTES", 1)
    during = []
    real = _xarray_write._publish
    monkeypatch.setattr(_xarray_write, "_publish", lambda *args: (during.append(len(syncs)), real(*args))[1])
    many_blocks().colstore.to_colstore(tmp_path / "a")
    if files.machine_id() is not None:
        assert during == [0]
    assert len(syncs) == 360 + 1, "the manifest too"


@pytest.mark.parametrize("other_machine", [True, False])
def test_blocks_that_another_machine_may_publish_are_durable_when_their_task_ends(
    tmp_path, monkeypatch, syncs, other_machine
):
    monkeypatch.setattr(_xarray_write, "GROUP_BYTES", 4000)
    if other_machine:
        answers = iter(["client"])
        monkeypatch.setattr(files, "machine_id", lambda: next(answers, "worker"))
    during = []
    real = _xarray_write._publish

    def publish(*args):
        during.append(len(syncs))
        return real(*args)

    monkeypatch.setattr(_xarray_write, "_publish", publish)
    job = many_blocks().colstore.to_colstore(tmp_path / "a", compute=other_machine)
    if not other_machine:
        job.compute()
    assert during == [5]
    assert len(syncs) == 5 + 1
    xr.testing.assert_identical(opened(tmp_path / "a").load(), many_blocks().load())
