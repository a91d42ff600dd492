"""Grid containers that are damaged, or hostile."""

from __future__ import annotations

import json
import os
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from climate import climate, opened

import colstore_io as cs
import colstore_io.integrations.xarray
from colstore_io.errors import FormatError
from colstore_io.grid import open_container

# What is in these tests on purpose, and what xarray has to say about it.
pytestmark = [
    pytest.mark.filterwarnings("ignore:variable .* has data in the form of a dask array"),
    pytest.mark.filterwarnings("ignore:The specified chunks separate the stored chunks"),
]


def change_manifest(path: Path, change) -> None:
    file = path / "_colstore-00000001.json"
    members = json.loads(file.read_text())
    change(members)
    members.pop("crc32")
    members["crc32"] = zlib.crc32(json.dumps(members, sort_keys=True).encode())
    file.write_text(json.dumps(members))


def variables(members: dict) -> dict:
    return members["variables"]["/"]["variables"]


def set_length(members, length):
    members["dims"]["/"]["time"]["length"] = length
    for value in variables(members).values():
        if "time" in value["dims"]:
            value["chunks"][value["dims"].index("time")] = [[length, 1]]


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m["dims"]["/"]["time"].update(length=-1),
        lambda m: m["dims"]["/"]["time"].update(length=7),
        lambda m: m["dims"]["/"]["time"].update(length=2**80),
        lambda m: m["dims"]["/"].pop("time"),
        lambda m: set_length(m, 2**62),
        lambda m: set_length(m, 600),
        lambda m: variables(m)["t"].update(chunks=[[[-2, -3]], [[5, 1]], [[8, 1]]]),
        lambda m: variables(m)["t"].update(chunks=[[[4, 1], [2, 1]], [[5, 1]], [[8, 1]]]),
        lambda m: variables(m)["t"].update(chunks=[[[6, 1]], [[5, 1]]]),
        lambda m: variables(m)["t"].update(chunks=[[[1, 2**60]], [[5, 1]], [[8, 1]]]),
        lambda m: variables(m)["t"].update(chunks=None),
        lambda m: variables(m)["t"].update(dtype="<f8"),
        lambda m: variables(m)["t"].update(dtype="O"),
        lambda m: variables(m)["t"].update(kind="new"),
        lambda m: variables(m)["t"].update(kind=["plain"]),
        lambda m: variables(m)["t"].update(dims=["time", "time", "lon"]),
        lambda m: variables(m)["t"].update(attrs={"a": {"data": "zz", "dtype": "<f4", "shape": []}}),
        lambda m: [
            f["partition"].update(first=[9] * len(f["partition"].get("first", []))) for f in m["files"]
        ],
        lambda m: [f["layout"].update(begin=10**9) for f in m["files"]],
        lambda m: [f["layout"].update(begin=0) for f in m["files"]],
        lambda m: [f["partition"].update(counts=[2**60]) for f in m["files"]],
        lambda m: [f["layout"].update(columns=[["t", "", 0]]) for f in m["files"]],
        lambda m: [f.update(rows=2**50) for f in m["files"]],
        lambda m: m.update(files=[]),
        lambda m: m.update(dims={}),
        lambda m: m.update(variables={"/": 5}),
    ],
)
def test_manifest_that_contradicts_itself_is_refused(tmp_path, change):
    climate().colstore.to_colstore(tmp_path / "a")
    change_manifest(tmp_path / "a", change)
    with pytest.raises(FormatError):
        opened(tmp_path / "a").load()


def test_error_about_more_rows_than_exist_names_the_variable(tmp_path):
    climate().colstore.to_colstore(tmp_path / "a", chunks={"time": 2})

    def change(m):
        m["dims"]["/"]["time"]["length"] = 8
        for value in variables(m).values():
            if "time" in value["dims"]:
                value["chunks"][value["dims"].index("time")] = [[2, 4]]

    change_manifest(tmp_path / "a", change)
    with pytest.raises(FormatError, match=r"variable 't' has 4 chunks, its files hold 3"):
        opened(tmp_path / "a")


def member_of(path: Path, variable: str) -> Path:
    return path / open_container(path).group().members_of[variable][0].path


@pytest.mark.parametrize(
    "options", [{}, {"mmap": False}, {"backend": "numpy"}], ids=["mapped", "read", "numpy"]
)
def test_torn_member_is_an_error_that_names_the_variable(tmp_path, options):
    climate().drop_vars(["time", "lat", "lon"]).colstore.to_colstore(tmp_path / "a")
    file = member_of(tmp_path / "a", "t")
    os.truncate(file, file.stat().st_size - 100)
    back = opened(tmp_path / "a", **options)
    with pytest.raises(FormatError, match=r"variable 't' needs part-.*was cut short"):
        back["t"].load()
    assert back["one"] == 4.5


def test_member_with_other_contents_is_an_error(tmp_path):
    climate().drop_vars(["time", "lat", "lon"]).colstore.to_colstore(tmp_path / "a")
    file = member_of(tmp_path / "a", "t")
    file.write_bytes(bytes(file.stat().st_size))
    with pytest.raises(FormatError, match="variable 't'"):
        opened(tmp_path / "a")["t"].load()


def test_text_that_is_no_utf8_is_an_error(tmp_path):
    xr.Dataset({"v": ("x", np.array(["abc", "def"], object))}).colstore.to_colstore(tmp_path / "a")
    (text,) = open_container(tmp_path / "a").group().texts.values()
    with open(tmp_path / "a" / text.path, "r+b") as file:
        file.seek(text.begin)
        file.write(b"\xff\xff")
    with pytest.raises(FormatError, match="'v'"):
        opened(tmp_path / "a")["v"].load()


@pytest.mark.parametrize(
    "options", [{}, {"mmap": False}, {"backend": "numpy"}], ids=["mapped", "read", "numpy"]
)
@pytest.mark.parametrize("shift", [-1, -8, 1])
def test_text_that_is_not_where_the_manifest_says_is_an_error(tmp_path, options, shift):
    xr.Dataset({"v": ("x", np.array(["abc", "def"], object))}).colstore.to_colstore(tmp_path / "a")

    def change(members):
        for file in members["files"]:
            if file["partition"].get("text"):
                file["layout"]["begin"] += shift

    change_manifest(tmp_path / "a", change)
    back = opened(tmp_path / "a", **options)
    for _ in "12":  # the first error is not forgotten
        with pytest.raises(
            FormatError, match=r"variable 'v' needs part-.*\.cstore, which has no text of 6 bytes at"
        ):
            back["v"][1].load()


@pytest.mark.parametrize("options", [{}, {"mmap": False}], ids=["mapped", "read"])
def test_member_that_does_not_begin_where_the_manifest_says_is_an_error(tmp_path, options):
    xr.Dataset({"v": (("x", "y"), np.arange(40000.0).reshape(200, 200))}).colstore.to_colstore(tmp_path / "a")
    change_manifest(tmp_path / "a", lambda m: m["files"][0]["layout"].update(begin=64))
    with pytest.raises(FormatError, match=r"variable 'v' needs part-.*has no record 0"):
        opened(tmp_path / "a", **options)["v"].load()


@pytest.mark.parametrize("key", ["_FillValue", "missing_value", "scale_factor", "add_offset"])
@pytest.mark.parametrize("value", [{"map": {"a": 1}}, {"a": 1}, [[1]]], ids=str)
def test_fill_value_that_is_no_value_is_an_error_that_names_the_variable(tmp_path, key, value):
    xr.Dataset({"v": ("x", [1.0, 2.0]), "w": ("x", [1, 2])}).colstore.to_colstore(tmp_path / "a")
    change_manifest(tmp_path / "a", lambda m: variables(m)["v"]["attrs"].update({key: value}))
    with pytest.raises(
        FormatError, match=rf"variable 'v' has an attribute '{key}' that is no number or text"
    ):
        opened(tmp_path / "a")
    assert opened(tmp_path / "a", drop_variables="v")["w"].values.tolist() == [1, 2]
    assert opened(tmp_path / "a", mask_and_scale=False)["v"].values.tolist() == [1, 2]
    more = xr.Dataset({"v": ("x", [3.0])})
    with pytest.raises(FormatError, match="variable 'v'"):
        more.colstore.to_colstore(tmp_path / "a", append_dim="x")


def test_incomplete_manifest_is_passed_over(tmp_path):
    climate().colstore.to_colstore(tmp_path / "a")
    (tmp_path / "a" / "_colstore-00000002.json").write_text('{"colstore_manifest": 1')
    xr.testing.assert_identical(opened(tmp_path / "a").load(), climate())
    (climate() * 2).colstore.to_colstore(tmp_path / "a")
    assert (tmp_path / "a" / "_colstore-00000003.json").exists()
    xr.testing.assert_equal(opened(tmp_path / "a")["t"], climate()["t"] * 2)


def test_member_opens_alone_as_a_table(tmp_path):
    climate().colstore.to_colstore(tmp_path / "a")
    with cs.open(member_of(tmp_path / "a", "t")) as table:
        assert np.asarray(table["t"]).tolist() == climate()["t"].values.reshape(-1).tolist()


@pytest.mark.parametrize("options", [{}, {"mmap": False}])
def test_name_that_no_file_can_have_is_a_missing_file(tmp_path, options):
    climate()[["t"]].drop_vars(["time", "lat", "lon"]).colstore.to_colstore(tmp_path / "a")

    def change(members):
        members["files"][0]["path"] = "part-" + "0" * 300 + ".cstore"

    change_manifest(tmp_path / "a", change)
    with pytest.raises(FormatError, match=r"variable 't' needs part-0+\.cstore, which is not there"):
        opened(tmp_path / "a", **options)["t"].load()


def test_few_numbers_that_stand_for_many_chunks_take_no_memory(tmp_path):
    """Unequal chunks are not written out for Dask when there are millions of them; nothing else counts them."""
    climate()[["one"]].colstore.to_colstore(tmp_path / "a")
    runs = [[3, 1 << 21], [5, 1], [2, 1]]
    length = 3 * (1 << 21) + 7

    def change(members):
        members["dims"]["/"]["x"] = {"length": length, "unlimited": False}
        variables(members)["one"].update({"dims": ["x"], "chunks": [runs]})
        (file,) = members["files"]
        file.update({"records": (1 << 21) + 2, "rows": length, "size": 1 << 40})
        file["layout"]["chunks"] = [runs]
        file["partition"].update({"dims": ["x"], "first": [0], "counts": [(1 << 21) + 2]})

    change_manifest(tmp_path / "a", change)
    tracemalloc.start()
    try:
        with opened(tmp_path / "a") as ds:
            assert ds.sizes == {"x": length}
            assert "preferred_chunks" not in ds["one"].encoding
            with pytest.raises(FormatError, match="was cut short"):
                ds["one"][length - 1].load()
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()
