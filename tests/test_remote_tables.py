"""The main job on real servers: write shards to S3, open them by pattern, select, filter, use Dask and xarray."""

from __future__ import annotations

import io
import pickle

import numpy as np
import pandas as pd
import pytest
from servers import HttpServer, S3Server

import colstore_io as cs
from colstore_io import StaleDatasetError

pytestmark = pytest.mark.service


def part(number: int, n: int = 5000) -> pd.DataFrame:
    rng = np.random.default_rng(number)
    delay = pd.array(rng.integers(-20, 200, n), dtype="Int16")
    delay[rng.random(n) < 0.1] = pd.NA
    return pd.DataFrame(
        {
            "month": np.full(n, number, "i2"),
            "carrier": pd.Series(np.array(["UA", "AA", "DL"])[rng.integers(0, 3, n)], dtype="str"),
            "delay": delay,
            "distance": rng.integers(100, 3000, n),
        }
    )


@pytest.fixture(params=["moto_s3", "seaweed_s3"])
def s3(request: pytest.FixtureRequest) -> S3Server:
    return request.getfixturevalue(request.param)


@pytest.fixture
def shards(s3: S3Server):
    url = f"s3://{s3.prefix()}/flights"
    for number in (1, 2, 3):
        cs.append(url, part(number), name="run_{index}.cstore", statistics=True, storage_options=s3.options)
    return url, s3.options


def whole() -> pd.DataFrame:
    return pd.concat([part(number) for number in (1, 2, 3)], ignore_index=True)


def test_shards_on_s3_are_one_table(shards):
    url, options = shards
    data = whole()
    with cs.open(f"{url}/run_*.cstore", storage_options=options) as table:
        assert [path.rpartition("/")[2] for path in table.paths] == [
            "run_0.cstore",
            "run_1.cstore",
            "run_2.cstore",
        ]
        pd.testing.assert_frame_equal(table.frame(), data)
        rows = np.array([14_999, 0, 7_000, 7_000])
        names = ["delay", "distance"]
        pd.testing.assert_frame_equal(
            table[rows, names].frame(), data.loc[rows, names].reset_index(drop=True)
        )
        mask = data["distance"].to_numpy() > 2900
        np.testing.assert_array_equal(table[mask, "month"].array(), data["month"][mask])
        before = table.io.bytes
        got = table.query("month == 2 and delay > 150 and carrier == 'UA'").frame()
        want = data[
            (data.month == 2) & (data.delay > 150).fillna(False) & (data.carrier == "UA")
        ].reset_index(drop=True)
        pd.testing.assert_frame_equal(got, want)
        shard = 5000 * 22  # bytes; predicate and result read one each, the statistics left out the other two
        assert table.io.bytes - before < 2 * shard + 4096
    with cs.open(url, storage_options=options) as directory:
        assert directory.n_rows == len(data)


def test_single_objects_are_stored_recreated_and_never_appended_to_in_place(s3: S3Server):
    url = f"s3://{s3.prefix()}/one.cstore"
    cs.store(part(1), url, storage_options=s3.options).close()
    with pytest.raises(FileExistsError):
        cs.store(part(2), url, storage_options=s3.options)
    cs.store(part(2), url, mode="recreate", storage_options=s3.options).close()
    with cs.open(url, storage_options=s3.options) as table:
        assert table[0, "month"].array().tolist() == [2]
    with cs.recreate(url, storage_options=s3.options) as writer:
        writer.write(part(3))
        writer.write(part(3))
    with cs.open(url, storage_options=s3.options) as table:
        assert table.n_rows == 10_000
    for refused in (cs.update, cs.create):
        with pytest.raises(io.UnsupportedOperation, match="shard"):
            refused(url, storage_options=s3.options)


def test_readers_pickle_small_and_notice_replaced_objects(s3: S3Server):
    url = f"s3://{s3.prefix()}/big.cstore"
    cs.store(part(1, 60_000), url, storage_options=s3.options).close()
    with cs.open(url, storage_options=s3.options) as table:
        blob = pickle.dumps(table)
    assert len(blob) < 3000
    with pickle.loads(blob) as again:
        np.testing.assert_array_equal(again[-5:, "distance"].array(), part(1, 60_000)["distance"][-5:])
    cs.store(part(2, 10), url, mode="recreate", storage_options=s3.options).close()
    with pickle.loads(blob) as stale, pytest.raises(StaleDatasetError, match=r"big\.cstore"):
        stale["distance"].array()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_dask_reads_s3(shards):
    dd = pytest.importorskip("dask.dataframe")
    import colstore_io.integrations.dask  # noqa: F401

    url, options = shards
    data = whole()
    frame = dd.read_colstore(f"{url}/run_*.cstore", storage_options=options, blocksize="64 KiB")
    assert frame.npartitions >= 3
    got = frame.groupby("carrier").delay.mean().compute(scheduler="threads")
    want = data.groupby("carrier").delay.mean()
    np.testing.assert_allclose(got.sort_index().to_numpy(float), want.sort_index().to_numpy(float))


def test_xarray_reads_s3(shards):
    xr = pytest.importorskip("xarray")
    from colstore_io.integrations.xarray import ColstoreBackendEntrypoint

    url, options = shards
    data = whole()
    with xr.open_dataset(
        f"{url}/run_*.cstore", engine=ColstoreBackendEntrypoint, storage_options=options
    ) as ds:
        np.testing.assert_array_equal(
            ds["distance"].isel(row=[5, 3, 14_000]).values, data["distance"][[5, 3, 14_000]]
        )
        assert ds.sizes == {"row": 15_000}


@pytest.mark.parametrize("server", ["nginx_server", "plain_http_server"])
def test_http_with_and_without_ranges(server, request, tmp_path):
    http: HttpServer = request.getfixturevalue(server)
    cs.store(part(1), tmp_path / "t.cstore").close()
    url = http.put("tables/t.cstore", (tmp_path / "t.cstore").read_bytes())
    with cs.open(url) as table:
        pd.testing.assert_frame_equal(table.frame(), part(1))
        np.testing.assert_array_equal(table[::-7, "distance"].array(), part(1)["distance"][::-7])
