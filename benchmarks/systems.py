"""The systems that are measured, by name.

A method that a system does not have is ``None``: the workload leaves the system out.
"""

from __future__ import annotations

from cstore_systems import (
    Ours,
    OursFast,
    OursIndexed,
    OursSameFile,
    OursUnsynced,
    Reference,
    ReferenceUnsynced,
)
from grid_systems import H5NetCdf, NetCdf4, XarrayLimit, Zarr, ZarrDefault
from system import System
from table_systems import (
    Hdf5,
    NumpyMemmap,
    Parquet,
    ParquetNone,
    ParquetSnappy,
    ParquetZstd1,
    ParquetZstd3,
    ParquetZstd9,
    RawFile,
    Vortex,
)

__all__ = ["SYSTEMS", "System"]

SYSTEMS: dict[str, type[System]] = {
    system.name: system
    for system in (
        Ours,
        OursFast,
        OursIndexed,
        OursSameFile,
        OursUnsynced,
        Reference,
        ReferenceUnsynced,
        NumpyMemmap,
        Hdf5,
        RawFile,
        Parquet,
        Vortex,
        ParquetNone,
        ParquetSnappy,
        ParquetZstd1,
        ParquetZstd3,
        ParquetZstd9,
        Zarr,
        ZarrDefault,
        NetCdf4,
        H5NetCdf,
        XarrayLimit,
    )
}
