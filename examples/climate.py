"""The COADS climatology of the sea surface as a grid container: converted, checked, appended to, and drawn.

Reads the netCDF file of the monthly climatology (180 x 90 points, 12 months, sea surface temperature, air temperature
and winds), converts it, compares every value and attribute, builds a second container month by month as a running
model would, and draws one map.

    python examples/climate.py COADS_CLIMATOLOGY.nc [DIRECTORY]
"""

from __future__ import annotations

import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import xarray as xr

import colstore_io as cs
import colstore_io.integrations.xarray  # registers ds.colstore


def convert(source: Path, target: Path) -> xr.Dataset:
    """Convert a netCDF file and check that what comes back is identical."""
    # Its times are hours since the year 0, which no calendar of today has: they stay numbers.
    with xr.open_dataset(source, decode_times=False) as ds:
        ds.colstore.to_colstore(target)
        back = xr.open_dataset(target, engine="colstore", decode_times=False)
        xr.testing.assert_identical(ds.load(), back.copy().load())
    return back


def month_by_month(ds: xr.Dataset, target: Path) -> xr.Dataset:
    """Write the first month, append the others one by one, and merge the files."""
    time_dim = ds["SST"].dims[0]
    ds.isel({time_dim: slice(0, 1)}).colstore.to_colstore(target, unlimited_dims=[time_dim])
    for month in range(1, ds.sizes[time_dim]):
        ds.isel({time_dim: slice(month, month + 1)}).colstore.to_colstore(target, append_dim=time_dim)
    cs.compact(target)
    return xr.open_dataset(target, engine="colstore", decode_times=False)


def draw(field: xr.DataArray, target: Path) -> bool:
    """Draw a map to a PNG file; False when matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fonts, mostly: none of this program's business
        figure, axes = pyplot.subplots(figsize=(9, 4))
        field.plot(ax=axes, cmap="coolwarm", robust=True)
        figure.savefig(target, dpi=120, bbox_inches="tight")
        pyplot.close(figure)
    return True


def main(source: Path, directory: Path) -> None:
    """Run the example."""
    begin = time.perf_counter()
    ds = convert(source, directory / "coads.grid")
    print(f"converted and identical: {dict(ds.sizes)}, {len(ds.data_vars)} variables")
    grown = month_by_month(ds, directory / "months.grid")
    for name, variable in ds.data_vars.items():
        np.testing.assert_array_equal(grown[name].values, variable.values)
    print(f"the same, appended month by month: {dict(grown.sizes)}")
    rng = np.random.default_rng(0)
    sst = ds["SST"]
    points = {dim: rng.integers(0, n, 10_000) for dim, n in sst.sizes.items()}
    found = ds[["SST"]].colstore.take(**points)["SST"]
    print(f"mean of 10,000 scattered points: {float(found.mean()):.2f} degrees C")
    drawn = draw(sst.isel({sst.dims[0]: 0}), directory / "sst.png")
    print(f"map: {directory / 'sst.png'}" if drawn else "no map: matplotlib is not installed")
    print(f"{time.perf_counter() - begin:.1f} s")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    if len(sys.argv) > 2:
        Path(sys.argv[2]).mkdir(parents=True, exist_ok=True)
        main(Path(sys.argv[1]), Path(sys.argv[2]))
    else:
        with tempfile.TemporaryDirectory() as made:
            main(Path(sys.argv[1]), Path(made))
