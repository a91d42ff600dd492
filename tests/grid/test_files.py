"""Data files of a container: what is in them, and when it is on the disk."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import colstore_io as cs
from colstore_io import storage, threads
from colstore_io.grid import GridWriter, container, files, open_container
from colstore_io.grid.commit import whole_part
from colstore_io.grid.container import place_of
from colstore_io.grid.files import Unsynced, machine_id, write_file
from colstore_io.grid.layout import Axis
from colstore_io.grid.model import Dimension, VariableSpec
from colstore_io.writing import manifest, publish

FIELDS = [("a", np.dtype("<f4")), ("b", np.dtype("<i2"))]


def written(
    path: Path, rows: list[int], unsynced: Unsynced | None = None, *, parallel: bool = False
) -> dict[str, np.ndarray]:
    """Write records of these lengths, and return what should be in the file."""
    total = sum(rows)
    columns = {"a": np.arange(total, dtype="<f4"), "b": np.arange(total, dtype="<i2")}
    ends = np.cumsum(rows).tolist()

    def record(k: int, scratch: object) -> list[np.ndarray]:
        return [values[ends[k] - rows[k] : ends[k]] for values in columns.values()]

    begin, size = write_file(
        storage.locate(str(path)), FIELDS, np.array(rows, np.int64), record, unsynced, parallel=parallel
    )
    assert size == path.stat().st_size
    assert path.read_bytes()[begin : begin + 4] == columns["a"][:1].tobytes()
    return columns


@pytest.fixture
def events(monkeypatch):
    """What happens to files, in order: ("sync", name), ("directory", name), ("publish", name)."""
    found: list[tuple[str, str]] = []

    def sync(fd: int) -> None:
        found.append(("sync", os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))))

    def name_of(kind: str, real):
        def call(path, *args, **kwargs):
            found.append((kind, os.path.basename(path)))
            return real(path, *args, **kwargs)

        return call

    monkeypatch.setattr(files, "sync", sync)
    monkeypatch.setattr(files, "sync_directory", name_of("directory", files.sync_directory))
    real = publish.publish_new
    monkeypatch.setattr(
        publish,
        "publish_new",
        lambda old, new: (found.append(("publish", os.path.basename(new))), real(old, new))[1],
    )
    return found


@pytest.mark.parametrize("rows", [[5], [1, 2, 3], [0], [7] * 300 + [2], [3, 1000, 1]])
@pytest.mark.parametrize("part_bytes", [100, 16 << 20])
def test_file_is_the_one_that_a_stream_of_records_makes(tmp_path, monkeypatch, rows, part_bytes):
    monkeypatch.setattr(files, "_PART_BYTES", part_bytes)
    monkeypatch.setattr(threads._budget, "total", 4)
    columns = written(tmp_path / "ours.cstore", rows, parallel=True)
    with cs.recreate(tmp_path / "stream.cstore") as writer:
        for end, n in zip(np.cumsum(rows).tolist(), rows, strict=True):
            writer.write({name: values[end - n : end] for name, values in columns.items()})
    assert (tmp_path / "ours.cstore").read_bytes() == (tmp_path / "stream.cstore").read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["ours.cstore", "stream.cstore"]


def test_scratch_memory_is_taken_again_and_holds_all_values_of_a_record():
    scratch = files.Scratch()
    grid = np.arange(60, dtype="i4").reshape(5, 12)
    parts = [grid[1:4, 2:5], grid[:, ::2].astype("f8").T, grid[0:2, 3:9], grid[2]]
    for _ in range(3):
        scratch.begin()
        found = [scratch.contiguous(part) for part in parts]
        for own, part in zip(found, parts, strict=True):
            assert own.tolist() == part.reshape(-1).tolist()
            assert own.dtype == part.dtype
            assert own.flags.c_contiguous
    assert np.shares_memory(found[3], grid), "what is contiguous is not copied"
    first = found[0].ctypes.data
    scratch.begin()
    assert scratch.contiguous(parts[0]).ctypes.data == first


def test_failure_leaves_nothing_behind(tmp_path):
    def record(k: int, scratch: object) -> list[np.ndarray]:
        if k == 2:
            raise OSError("the source is gone")
        return [np.zeros(4, "<f4"), np.zeros(4, "<i2")]

    with pytest.raises(OSError, match="the source is gone"):
        write_file(storage.locate(str(tmp_path / "a.cstore")), FIELDS, np.full(5, 4), record, Unsynced())
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="needs /proc")
def test_bytes_are_durable_before_the_file_has_its_name(tmp_path, events):
    written(tmp_path / "a.cstore", [3, 3])
    ((kind, name),) = events
    assert kind == "sync"
    assert name.startswith(".a.cstore.")


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="needs /proc")
def test_what_waits_is_synced_once_and_then_its_names(tmp_path, events):
    unsynced = Unsynced()
    for name in "abc":
        written(tmp_path / f"{name}.cstore", [3], unsynced)
    written(tmp_path / "other.cstore", [3], left := Unsynced())
    left.leave()
    unsynced.add_file(str(tmp_path / "other.cstore"))
    assert events == []
    unsynced.sync()
    assert sorted(events[:4]) == [("sync", f"{name}.cstore") for name in ("a", "b", "c", "other")]
    assert events[4:] == [("directory", tmp_path.name)]
    unsynced.sync()
    assert len(events) == 5


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="needs /proc")
def test_more_files_than_may_be_open_wait_or_are_synced_at_once(tmp_path, monkeypatch, events):
    monkeypatch.setattr(files, "_MOST_OPEN", 2)
    unsynced = Unsynced()
    for name in "abcd":
        written(tmp_path / f"{name}.cstore", [3], unsynced)
    assert [kind for kind, _ in events] == ["sync", "sync"]
    unsynced.sync()
    assert sorted(name for kind, name in events if kind == "sync") == [f"{name}.cstore" for name in "abcd"]


def commit(path: Path, mode: str, *names: str) -> None:
    writer = GridWriter(place_of(path), mode)
    for n, name in enumerate(names, 2):
        values = np.arange(float(n))
        writer.put(
            whole_part(VariableSpec(name, "plain", values.dtype, (name,), (Axis.regular(n, 1),))), values
        )
        writer.dims[name] = Dimension(n)
    writer.commit()


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="needs /proc")
def test_data_and_names_are_durable_before_a_manifest_names_them(tmp_path, events):
    commit(tmp_path / "g", "w", "x", "y", "z")
    kinds = [kind for kind, _ in events]
    assert kinds[:4] == ["sync"] * 4
    assert set(kinds[4:-1]) == {"directory"}
    assert events[-1] == ("publish", "_colstore-00000001.json")
    synced = sorted(name for kind, name in events if kind == "sync")
    members = sorted(name for name in os.listdir(tmp_path / "g") if name.startswith("part-"))
    assert synced[0].startswith("._colstore-00000001.json.")
    assert synced[1:] == members
    assert ("directory", "g") in events
    assert ("directory", tmp_path.name) in events, "the name of a new container is made durable too"


def test_sync_that_fails_publishes_nothing(tmp_path, monkeypatch):
    commit(tmp_path / "g", "w", "x")

    def broken(fd: int) -> None:
        raise OSError(5, "input/output error")

    monkeypatch.setattr(files, "sync", broken)
    with pytest.raises(OSError, match="input/output error"):
        commit(tmp_path / "g", "a", "y")
    assert list(open_container(tmp_path / "g").group().variables) == ["x"]
    assert [name for name in os.listdir(tmp_path / "g") if name.endswith(".json")] == [
        "_colstore-00000001.json"
    ]


@pytest.fixture
def reads(monkeypatch):
    """Manifests that were read."""
    found = []
    real = manifest.read_generation
    monkeypatch.setattr(
        manifest, "read_generation", lambda location: (found.append(location), real(location))[1]
    )
    return found


def test_change_reads_the_manifest_once(tmp_path, reads):
    commit(tmp_path / "g", "w", "x")
    container._kept.clear()  # as in another process
    commit(tmp_path / "g", "a", "y")
    assert len(reads) == 1
    assert list(open_container(tmp_path / "g").group().variables) == ["x", "y"]


def test_change_behind_an_own_one_reads_no_manifest(tmp_path, reads):
    for name in "xyz":
        commit(tmp_path / "g", "a" if name > "x" else "w", name)
    assert reads == []
    assert list(open_container(tmp_path / "g").group().variables) == ["x", "y", "z"]


def test_change_behind_that_of_another_process_reads_its_manifest(tmp_path, reads):
    commit(tmp_path / "g", "w", "x")
    kept = container._kept.copy()
    commit(tmp_path / "g", "a", "y")
    container._kept.clear()
    container._kept.update(kept)  # this process has not seen the second one
    commit(tmp_path / "g", "a", "z")
    assert len(reads) == 1
    assert list(open_container(tmp_path / "g").group().variables) == ["x", "y", "z"]


def test_few_generations_are_remembered(tmp_path):
    for number in range(2 * container._MOST_KEPT):
        commit(tmp_path / f"g{number}", "w", "x")
    assert len(container._kept) == container._MOST_KEPT


def test_what_is_remembered_of_a_commit_is_what_its_manifest_says(tmp_path):
    xr = pytest.importorskip("xarray")
    import colstore_io.integrations.xarray  # noqa: F401  # registers ds.colstore

    path = tmp_path / "g"
    numbers = [1, 2]
    ds = xr.Dataset(
        {
            "z": (
                ("time", "x"),
                np.arange(12.0).reshape(3, 4),
                {"units": "K", "valid": np.arange(2, dtype="i2")},
            ),
            "a": (("time",), np.array(["a", "", "ccc"], object)),
            "c": ((), np.complex64(1j), {"n": np.float32(2)}),
        },
        {"time": np.arange(3).astype("M8[D]"), "x": np.arange(4)},
        {"title": "t", "numbers": numbers},
    )

    def check() -> None:
        (place,) = container._kept
        found = container._kept[place].model
        manifest_now = manifest.newest_generation(place_of(path))
        assert manifest_now is not None
        stored = container.parse_grid(manifest_now, path=str(path))
        assert repr(found) == repr(stored)
        assert [list(group.variables) for group in found.groups.values()] == [
            list(group.variables) for group in stored.groups.values()
        ]

    container._kept.clear()
    ds.colstore.to_colstore(path, encoding={"z": {"chunks": (2, 3)}})
    check()
    numbers.append(3)  # what the caller does with his attributes is not remembered
    check()
    ds.drop_vars(["c", "x"]).isel(time=[0]).colstore.to_colstore(path, append_dim="time")
    check()
    ds[["z"]].drop_vars(["time", "x"]).isel(time=slice(0, 2)).colstore.to_colstore(
        path, region={"time": slice(0, 2)}
    )
    check()
    ds.colstore.to_colstore(path, group="model/ocean", mode="a")
    check()
    ds[["z"]].colstore.to_colstore(path, mode="a", group="model/ocean")
    check()


def test_a_record_is_made_while_the_one_before_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_AHEAD_BYTES", 0)
    monkeypatch.setattr(threads._budget, "total", 2)
    values = np.arange(6.0 * 10 * 12).reshape(6, 10, 12)
    spec = VariableSpec(
        "z", "plain", values.dtype, ("t", "y", "x"), tuple(map(Axis.regular, (6, 10, 12), (4, 3, 5)))
    )
    bytes_of = []
    for helpers in (True, False):
        if not helpers:
            monkeypatch.setattr(threads._budget, "total", 1)
        writer = GridWriter(place_of(tmp_path / str(helpers)), "w")
        writer.put(whole_part(spec), values)
        for dim, n in zip("tyx", values.shape, strict=True):
            writer.dims[dim] = Dimension(n)
        writer.commit()
        (part,) = (tmp_path / str(helpers)).glob("part-*")
        bytes_of.append(part.read_bytes())
        found = open_container(tmp_path / str(helpers)).variable("z").read_outer((slice(None),) * 3)
        assert np.array_equal(found, values)
    assert bytes_of[0] == bytes_of[1]


def test_container_that_was_removed_and_made_again_is_read_again(tmp_path):
    commit(tmp_path / "g", "w", "x")
    writer = GridWriter(place_of(tmp_path / "g"), "a")
    for name in os.listdir(tmp_path / "g"):
        os.unlink(tmp_path / "g" / name)
    commit(tmp_path / "g", "w", "y")
    values = np.arange(3.0)
    writer.put(whole_part(VariableSpec("z", "plain", values.dtype, ("z",), (Axis.regular(3, 3),))), values)
    writer.dims["z"] = Dimension(3)
    writer.commit()
    assert list(open_container(tmp_path / "g").group().variables) == ["y", "z"]


def test_machine_is_the_same_for_all_processes_of_it():
    if os.path.exists("/proc/sys/kernel/random/boot_id"):
        assert machine_id() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    else:
        assert machine_id() is None
