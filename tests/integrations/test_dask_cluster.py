"""Several processes: what travels is enough to read, what dies is tried again, nothing is opened twice."""

from __future__ import annotations

import os
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from tables import columns, write_files

import colstore_io as cs
from colstore_io.integrations.dask import read_colstore, to_colstore
from colstore_io.writing import manifest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
]  # of distributed itself: ports, unclosed sockets


@pytest.fixture(scope="module")
def client():
    from distributed import Client, LocalCluster

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with (
            LocalCluster(
                n_workers=2, threads_per_worker=2, processes=True, dashboard_address=None
            ) as cluster,
            Client(cluster) as connected,
        ):
            yield connected


@pytest.fixture(scope="module")
def flights():
    rng = np.random.default_rng(7)
    n = 3000
    return pd.DataFrame(
        {
            "carrier": rng.choice(["AA", "DL", "United"], n),
            "delay": rng.integers(-10, 90, n),
            "distance": np.where(rng.random(n) < 0.1, np.nan, rng.random(n) * 1000),
            "seats": pd.array(np.where(rng.random(n) < 0.2, None, rng.integers(0, 300, n)), dtype="Int64"),
        }
    )


@pytest.mark.service
def test_read_filter_group_join_and_write_on_s3(client, moto_s3, flights):
    import dask.dataframe as dd

    root, options = f"s3://{moto_s3.prefix()}", moto_s3.options
    to_colstore(dd.from_pandas(flights, npartitions=6), f"{root}/flights", storage_options=options)
    df = read_colstore(f"{root}/flights", storage_options=options, blocksize="16 KiB")
    assert df.npartitions > 2
    assert len(df) == len(flights)
    late = df[(df.delay > 30) & (df.carrier != "DL")]
    want = flights[(flights.delay > 30) & (flights.carrier != "DL")]
    assert late.delay.sum().compute() == want.delay.sum()
    assert late.distance.mean().compute() == pytest.approx(want.distance.mean())
    assert late.seats.count().compute() == want.seats.count()
    means = late.groupby("carrier").distance.mean().compute().sort_index()
    np.testing.assert_allclose(means, want.groupby("carrier").distance.mean())

    names = pd.DataFrame({"carrier": ["AA", "United"], "name": ["American", "United Airlines"]})
    to_colstore(names, f"{root}/names", storage_options=options)
    other = read_colstore(f"{root}/names", storage_options=options)
    joined = late.merge(other, on="carrier", shuffle_method="tasks")
    to_colstore(joined, f"{root}/joined", storage_options=options, partition_on="carrier")
    back = read_colstore(f"{root}/joined", storage_options=options).compute()
    expected = want.merge(names, on="carrier")
    order = ["carrier", "delay", "distance", "seats"]
    pd.testing.assert_frame_equal(
        back.sort_values(order, ignore_index=True)[expected.columns],
        expected.sort_values(order, ignore_index=True),
        check_dtype=False,
    )
    again = to_colstore(joined, f"{root}/joined", storage_options=options, mode="append")
    assert again.generation == 2
    assert len(read_colstore(f"{root}/joined", storage_options=options)) == 2 * len(expected)


def test_worker_that_dies_in_the_middle_of_a_write_changes_nothing(client, tmp_path, flights):
    import dask.dataframe as dd

    marker = tmp_path / "died"

    def dies_once(part, partition_info=None):
        if partition_info is not None and partition_info["number"] == 2 and not marker.exists():
            marker.write_text("")
            os._exit(1)
        return part

    ddf = dd.from_pandas(flights, npartitions=5)
    doomed = ddf.map_partitions(dies_once, meta=ddf._meta)
    with pytest.raises(FileNotFoundError):
        cs.open(tmp_path / "out")
    # The text is measured in a computation of its own; say its width, so that the death comes while shards are written.
    found = to_colstore(doomed, tmp_path / "out", string_width={"carrier": 6})
    assert marker.exists()
    assert (found.generation, found.n_rows, len(found.files)) == (1, len(flights), 5)
    got = read_colstore(str(tmp_path / "out")).compute()
    assert got.delay.tolist() == flights.delay.tolist()
    manifest.vacuum(tmp_path / "out", older_than_seconds=0)
    assert len(list((tmp_path / "out").glob("part-*"))) == 5


def test_a_worker_opens_each_file_once(client, tmp_path):
    data = columns()
    paths = write_files(tmp_path, data, [[10] * 3, [20, 30], [17]])

    def listen():
        import sys

        from colstore_io import storage  # noqa: F401 - imports open files too

        sys.opened = []
        sys.addaudithook(
            lambda event, arguments: (
                sys.opened.append(str(arguments[0]))
                if event == "open" and str(arguments[0]).endswith(".cstore")
                else None
            )
        )

    client.wait_for_workers(2, timeout=60)  # one that was killed before is started again by and by
    client.run(listen)
    df = read_colstore([str(p) for p in paths], blocksize=100)
    assert df.npartitions > 10
    for _ in range(2):
        assert client.compute(df[df.id >= 0]["x"] * 2).result(timeout=60).tolist() == (data["x"] * 2).tolist()
        assert client.compute(df.id.sum()).result(timeout=60) == data["id"].sum()
    opened = client.run(lambda: getattr(__import__("sys"), "opened", None))
    assert any(opened.values())
    for names in filter(None, opened.values()):
        assert len(names) == len(set(names)) <= len(paths)
    budgets = client.run(lambda: __import__("colstore_io.threads", fromlist=["budget"]).budget())
    assert set(budgets.values()) == {1}


def test_expressions_are_small_and_carry_no_statistics(tmp_path):
    path = tmp_path / "many.cstore"
    with cs.create(path, statistics=True) as writer:
        for r in range(2000):
            writer.write({f"c{i}": np.arange(4) + r for i in range(10)})
    df = read_colstore(path, blocksize=None)
    chosen = df[df.c3 > 1990].optimize(fuse=False)
    assert len(pickle.dumps(chosen.expr)) < 2000 * 40 + 20_000
    task = chosen.expr.__dask_graph__()[(chosen.expr._name, 0)]
    assert len(pickle.dumps(task)) < 2048
