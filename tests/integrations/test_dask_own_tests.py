"""Dask's own tests of readers, run on ours: wherever they read or write Parquet, our files take its place.

The tests are those of the installed Dask, unmodified; their module sees our functions under its names. What asks for
internals of Parquet or for the names of its expressions is not in the list, nor is what takes reads with different
``columns=`` for one (integrations.md 1.2 rule 3).
"""

from __future__ import annotations

import importlib
import inspect
import warnings

import dask
import dask.dataframe as dd
import pandas as pd
import pytest

from colstore_io.integrations._dask_expr import ReadColstore
from colstore_io.integrations.dask import read_colstore, to_colstore

NAMES = {
    "io": [
        "test_io_fusion",
        "test_repartition_io_fusion_blockwise",
        "test_io_fusion_merge",
        "test_io_fusion_zero",
        "test_io_culling",
        "test_parquet_complex_filters",
        "test_combine_similar",
        "test_combine_similar_no_projection_on_one_branch",
    ],
    "parquet": [
        "test_parquet_len",
        "test_parquet_len_filter",
        "test_partition_pruning",
        "test_timestamp_divisions",
        "test_read_parquet_index_projection",
        "test_tune_optimization_disabled",
    ],
}


def _cases():
    for module_name, names in NAMES.items():
        try:
            module = importlib.import_module(f"dask.dataframe.dask_expr.io.tests.test_{module_name}")
        except ImportError:
            continue
        for name in names:
            function = getattr(module, name, None)
            if function is None:
                continue
            choices = [{}]
            for mark in getattr(function, "pytestmark", []):
                if mark.name != "parametrize":
                    continue
                keys = [k.strip() for k in mark.args[0].split(",")]
                values = [v if len(keys) > 1 else (v,) for v in mark.args[1]]
                choices = [{**c, **dict(zip(keys, v, strict=True))} for c in choices for v in values]
            for number, choice in enumerate(choices):
                if "csv" in choice.values() or "pandas" in choice.values():
                    continue
                yield pytest.param(module, function, choice, id=f"{module_name}-{name}-{number}")


def _read(path, columns=None, filters=None, index=None, calculate_divisions=None, **ignored):
    if isinstance(path, list):
        path = [str(p) for p in path]
    elif not isinstance(path, str):
        path = str(path)
    return read_colstore(
        path,
        columns=columns,
        filters=filters,
        index=index,
        calculate_divisions=calculate_divisions,
        blocksize=None,
    )


def _write(df, path, write_index=None, partition_on=None, partition_cols=None, **ignored):
    to_colstore(
        df,
        str(path),
        mode="overwrite",
        write_index=False if write_index is None else write_index,
        partition_on=partition_on or partition_cols,
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("module", "function", "choice"), list(_cases()))
def test_of_dask(module, function, choice, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "read_parquet", _read)
    monkeypatch.setattr(module, "ReadParquet", ReadColstore, raising=False)
    monkeypatch.setattr(dd, "read_parquet", _read)
    monkeypatch.setattr(pd.DataFrame, "to_parquet", _write)
    monkeypatch.setattr(dd.DataFrame, "to_parquet", _write)
    arguments = dict(choice)
    if "read_cls" in arguments:
        arguments.update(read_cls=ReadColstore, read_func=_read)
    for name in inspect.signature(function).parameters:
        if name == "tmpdir":
            arguments["tmpdir"] = str(tmp_path / "data")
            (tmp_path / "data").mkdir(exist_ok=True)
        elif name == "filesystem":
            arguments.setdefault("filesystem", "fsspec")
        elif name in ("parquet_file", "second_parquet_file"):
            arguments[name] = module._make_file(tmp_path, filename=f"{name}.parquet")
    with warnings.catch_warnings(), dask.config.set(scheduler="synchronous"):
        warnings.simplefilter("ignore")
        function(**arguments)
