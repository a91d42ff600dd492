"""Columnar data larger than memory: some rows, some columns, now.

``open`` reads local files and any fsspec URL; ``store``, ``create``, ``update``, ``append`` write. The Dask and xarray
integrations are in ``colstore_io.integrations``. Importing this package imports NumPy and fsspec, nothing heavier.
"""

