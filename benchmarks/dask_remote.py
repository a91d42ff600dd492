"""The remote part of `dask_frames`: requests and bytes at an object store or a web server, 20 ms a request.

Counted where they pass: by `slow_proxy` before an object store (SeaweedFS, else moto), by `slow_server` over HTTP.
Clients stay connected from call to call; what they remember of listings is forgotten. ``direct_*`` read without Dask;
their peers are pyarrow over fsspec, and zarr.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import fsspec
import numpy as np
from dask_data import frames, make, upload
from dask_frames import Calls, applied, show, timed, workloads

import colstore_io as cs
from colstore_io.integrations.dask import read_colstore, to_colstore

__all__ = ["LATENCY_SECONDS", "run_remote"]

LATENCY_SECONDS = 0.02
HERE = Path(__file__).parent
DASK_WORK = (
    "open",
    "len",
    "column",
    "mean",
    "filter_mean",
    "filter_1_percent",
    "column_1_percent",
    "filter_1000",
    "range_1000",
    "loc_1000",
    "head",
    "compute",
)


@dataclass(frozen=True)
class Place:
    """Where the files are.

    Attributes
    ----------
    base : str
        URL of the folder.
    options : dict
        Storage options of fsspec.
    arrow : object
        File system of pyarrow, None where it has none.
    port : int
        Of whoever counts.
    protocol : str
    """

    base: str
    options: dict[str, Any]
    arrow: Any
    port: int
    protocol: str

    def counts(self) -> dict[str, int]:
        """Return requests and bytes since the last question."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("GET", "/-counts")
        found: dict[str, int] = json.loads(connection.getresponse().read())
        connection.close()
        return found


@contextlib.contextmanager
def started(*command: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def printed_port(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextlib.contextmanager
def object_store(folder: Path) -> Iterator[int]:
    """Run an S3 server on this machine; yields its port."""
    os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")
    weed = Path(sys.executable).with_name("weed")
    names = ["s3.port", "master.port", "volume.port", "filer.port"]
    ports = {name: free_port() for name in [*names, *(f"{name}.grpc" for name in names)]}
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(ports["s3.port"])]
    if weed.exists():
        identity = {"accessKey": "testkey", "secretKey": "testsecret"}
        actions = ["Admin", "Read", "Write", "List", "Tagging"]
        config = folder / "s3.json"
        config.write_text(
            json.dumps({"identities": [{"name": "t", "credentials": [identity], "actions": actions}]})
        )
        (folder / "data").mkdir()
        command = [str(weed), "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={folder / 'data'}", "-s3",
                   f"-s3.config={config}", "-master.volumeSizeLimitMB=1024", "-volume.max=100",
                   "-s3.port.iceberg=0", "-s3.port.lance=0", *(f"-{k}={v}" for k, v in ports.items())]  # fmt: skip
    print(f"object store: {'SeaweedFS' if weed.exists() else 'moto'}")
    environment = {**os.environ, "WEED_MASTER_VOLUME_GROWTH_COPY_1": "1"}
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
        try:
            yield ports["s3.port"]
        finally:
            process.terminate()
            try:
                process.wait(3)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextlib.contextmanager
def on_s3(root: Path, folder: Path) -> Iterator[Place]:
    import pyarrow.fs

    with object_store(folder) as server:
        keys = {"key": "testkey", "secret": "testsecret"}
        direct = fsspec.filesystem(
            "s3", endpoint_url=f"http://127.0.0.1:{server}", skip_instance_cache=True, **keys
        )
        deadline = time.monotonic() + 60
        while True:
            try:
                direct.mkdir("bucket")
                direct.pipe_file("bucket/ready", b"1")
                break
            except FileExistsError:
                break
            except Exception:  # not ready yet; botocore's connection errors are no OSError
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.3)
        upload(root, direct, "bucket/d")
        with started(str(HERE / "slow_proxy.py"), "127.0.0.1", str(server), str(LATENCY_SECONDS)) as proxy:
            port = printed_port(proxy)
            options = {**keys, "endpoint_url": f"http://127.0.0.1:{port}"}
            arrow = pyarrow.fs.S3FileSystem(
                access_key=keys["key"],
                secret_key=keys["secret"],
                endpoint_override=f"127.0.0.1:{port}",
                scheme="http",
                region="us-east-1",
            )
            yield Place("s3://bucket/d", options, arrow, port, "s3")


@contextlib.contextmanager
def on_http(root: Path) -> Iterator[Place]:
    with started(str(HERE / "slow_server.py"), str(root), str(LATENCY_SECONDS)) as server:
        port = printed_port(server)
        yield Place(f"http://127.0.0.1:{port}", {}, None, port, "http")


def direct(place: Place, n: int) -> dict[str, Calls]:
    """Return reads without Dask: a column, and a range of 1000 rows, opening included."""
    import pyarrow.parquet as pq
    import zarr

    first = n // 3
    url, options = place.base, place.options

    def by_parquet(codec: str) -> float:
        fs, path = fsspec.url_to_fs(f"{url}/data-{codec}.parquet", **options)
        with fs.open(path) as file:
            return float(np.sum(pq.ParquetFile(file).read(["a"]).column("a").to_numpy()))

    def by_zarr(rows: slice) -> float:
        return float(np.sum(zarr.open_array(f"{url}/a.zarr", mode="r", storage_options=options)[rows]))

    def by_us(name: str, rows: slice) -> float:
        with cs.open(f"{url}/{name}", storage_options=options) as table:
            return float(np.sum(table["a"][rows].array()))

    rows = slice(first, first + 1000)
    return {
        "direct_open": {
            "ours": lambda: float(cs.open(f"{url}/a.cstore", storage_options=options).n_rows),
            "ours records": lambda: float(
                cs.open(f"{url}/data-stats.cstore", storage_options=options).n_rows
            ),
            "ours columns": lambda: float(cs.open(f"{url}/data.abcd", storage_options=options).n_rows),
        },
        "direct_column": {
            "ours": lambda: by_us("a.cstore", slice(None)),
            "ours records": lambda: by_us("data-stats.cstore", slice(None)),
            "ours columns": lambda: by_us("data.abcd", slice(None)),
            "pyarrow": lambda: by_parquet("none"),
            "zarr": lambda: by_zarr(slice(None)),
        },
        "direct_range": {
            "ours": lambda: by_us("a.cstore", rows),
            "ours records": lambda: by_us("data-stats.cstore", rows),
            "ours columns": lambda: by_us("data.abcd", rows),
            "zarr": lambda: by_zarr(rows),
        },
    }


def run_remote(protocol: str, n: int, parts: int, rounds: int, only: list[str] | None) -> None:
    """Measure over a server that waits before each answer, every call from a fresh client."""
    import zarr

    # Clients that are thrown away complain about the loops of others when they are collected.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as temporary:
        root, folder = Path(temporary) / "files", Path(temporary) / "store"
        root.mkdir()
        folder.mkdir()
        frame = make(n, parts, root, small=False)
        columns = {name: frame[name].to_numpy() for name in frame}
        cs.store(columns, root / "a.cstore").close()  # one record
        to_colstore(dd.from_pandas(frame, npartitions=parts), root / "data-written")
        to_colstore(dd.from_pandas(frame, npartitions=parts), root / "data-columns_written", format="columns")
        array = zarr.create_array(
            str(root / "a.zarr"), shape=(n,), chunks=(-(-n // 2),), dtype="f8", compressors=None
        )
        array[:] = columns["a"]
        with on_s3(root, folder) if protocol == "s3" else on_http(root) as place:
            ways = frames(place.base, "data", options=place.options or None, arrow=place.arrow or "arrow")
            if place.arrow is not None:
                given = {"storage_options": place.options}
                ways["ours written"] = lambda: read_colstore(f"{place.base}/data-written", **given)
                ways["ours columns written"] = lambda: read_colstore(
                    f"{place.base}/data-columns_written", **given
                )
                ways["none, no statistics"] = lambda: dd.read_parquet(
                    f"{place.base}/data-bare.parquet", split_row_groups=True, **given
                )
                ways["none best, no statistics"] = lambda: dd.read_parquet(
                    f"{place.base.partition('://')[2]}/data-bare_files", filesystem=place.arrow, index=False
                )
            if place.arrow is None:
                ways = {name: way for name, way in ways.items() if "best" not in name}
            all_work = {name: applied(workloads(n)[name], ways) for name in DASK_WORK}
            all_work |= direct(place, n)
            counts = {
                name: measured(place, name, calls, rounds)
                for name, calls in all_work.items()
                if only is None or name in only
            }
        compare(counts)


PAIRS = {
    "ours": ("none", "none best"),
    "ours plain": ("none, no statistics", "none best, no statistics"),
    "ours columns": ("none", "none best", "zstd", "zstd best"),
    "ours written": ("none", "none best"),
    "ours columns written": ("none", "none best", "zstd best"),
}
"""What each of ours is to be compared with: Parquet that holds as much, with statistics or without."""


def compare(counts: dict[str, dict[str, dict[str, float]]]) -> None:
    """Print requests, bytes and milliseconds beside those of like files, and where ours are not fewer."""
    more = []
    for name, of in counts.items():
        for ours, peers in PAIRS.items():
            for peer in peers:
                if ours not in of or peer not in of:
                    continue
                cells = []
                for kind, unit in (("requests", 1), ("bytes", 1e6), ("ms", 1)):
                    mine, theirs = (of[key].get(kind, 0) for key in (ours, peer))
                    cells.append(f"{kind} {mine / unit:.4g} / {theirs / unit:.4g}")
                    if mine >= theirs:
                        more.append(f"{name}: {ours} / {peer}: {cells[-1]}")
                print(f"{name:<18}{ours + ' / ' + peer:<44}{cells[0]:<24}{cells[1] + ' (MB)':<32}{cells[2]}")
    print("not fewer: " + ("; ".join(more) or "none"))


def measured(place: Place, name: str, calls: Calls, rounds: int) -> dict[str, dict[str, float]]:
    """Measure one workload; returns what was counted, and the median time in "ms", by system.

    Only of those whose results agree.
    """
    found: dict[str, dict[str, int]] = {}

    def fresh(key: str, call: Any) -> Any:
        for client in list(fsspec.get_filesystem_class(place.protocol)._cache.values()):
            client.invalidate_cache()  # what pyarrow's client does not have either
        place.counts()
        result = call()
        found[key] = place.counts()
        return result

    medians = timed({key: (lambda k=key, c=call: fresh(k, c)) for key, call in calls.items()}, rounds)
    show(name, medians)
    for key, count in found.items():
        kinds = ", ".join(
            f"{count[kind]} {kind}" for kind in sorted(count) if kind not in ("requests", "bytes")
        )
        print(
            f"{'':20}{key}: {count.get('requests', 0)} requests ({kinds}), {count.get('bytes', 0) / 1e6:.3f} MB"
        )
    sys.stdout.flush()
    return {key: {**count, "ms": medians[key]} for key, count in found.items() if key in medians}
