"""What importing costs, what is public, and that processes and forks behave."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

import colstore_io as cs
from colstore_io import config, formats, threads


def run_python(code: str) -> str:
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_import_brings_in_no_optional_or_heavy_library():
    loaded = run_python(
        "import sys, colstore_io; print(*[m for m in ('dask', 'xarray', 'pandas', 'pyarrow', 'tqdm', 's3fs') "
        "if m in sys.modules])"
    )
    assert loaded == ""


def test_listing_xarray_engines_does_not_load_dask_or_pyarrow():
    pytest.importorskip("xarray")
    code = (
        "import sys; import colstore_io.integrations.xarray as x; "
        "print(*[m for m in ('dask', 'pyarrow', 'distributed') if m in sys.modules])"
    )
    assert run_python(code) == run_python(code.replace("colstore_io.integrations.xarray as x", "xarray"))


OWN_MODULES = "print(*sorted(m for m in sys.modules if m.split('.')[0] == 'colstore_io'))"


def test_import_brings_in_no_module_of_ours_but_the_package_itself():
    loaded = run_python(f"import sys, colstore_io; {OWN_MODULES}")
    assert loaded == "colstore_io"
    assert (
        run_python("import sys, colstore_io; print('numpy' in sys.modules, 'fsspec' in sys.modules)")
        == "False False"
    )


def test_first_use_brings_in_no_integration():
    loaded = run_python(f"import sys, colstore_io; colstore_io.open; {OWN_MODULES}").split()
    assert "colstore_io.api.reading" in loaded
    assert "colstore_io.api.writing" not in loaded
    assert [m for m in loaded if m.startswith(("colstore_io.integrations", "colstore_io.calibrate"))] == []


FIRST_READ = """
import sys
import colstore_io
with colstore_io.open({path!r}) as table:
    table["x"][:], table[1:3, "k"].array(), table[0]
"""

LOADED_BY_A_FIRST_READ = {
    *(
        "colstore_io",
        "api",
        "arguments",
        "arrays",
        "bounds",
        "buffers",
        "chunk_cache",
        "cold",
        "column",
        "config",
        "convert",
    ),
    *(
        "convert_pandas",
        "dataset",
        "decoding",
        "errors",
        "feeding",
        "fields",
        "formats",
        "gather",
        "kernels",
    ),
    *(
        "kernels_numpy",
        "materialise",
        "opening",
        "places",
        "plan",
        "predicate",
        "preview",
        "ranges",
        "ready",
        "reductions",
    ),
    *(
        "rows",
        "segments",
        "selection",
        "storage",
        "streaming",
        "tables",
        "taking",
        "threads",
        "tuning",
        "views",
    ),
}
"""Modules directly in the package. Whatever else a first read imports, everybody waits for: add to it with care."""


def test_first_read_of_a_local_file_imports_what_it_needs_and_no_more(tmp_path):
    """Opening a `.cstore` file and reading a column loads NumPy and that format: no writer, no fsspec."""
    path = str(tmp_path / "small.cstore")
    cs.store({"x": np.arange(10.0), "k": np.arange(10)}, path).close()
    code = FIRST_READ.format(path=path)
    own = [name.split(".") for name in run_python(code + OWN_MODULES).split()]
    assert {name[1] if name[1:] else name[0] for name in own} <= LOADED_BY_A_FIRST_READ
    assert {".".join(n[2:]) for n in own if n[1:2] == ["api"] and n[2:]} == {"reading"}
    assert {n[2] for n in own if n[1:2] == ["formats"] and n[2:]} == {"cstore", "siblings"}
    assert [n for n in own if n[1:2] == ["predicate"] and n[2:]] == []
    others = run_python(
        code
        + "print(*sorted({m.split('.')[0] for m in sys.modules} & {'numpy', 'fsspec', 'asyncio', 'pyarrow', "
        "'pandas', 'logging', 'pathlib', 'difflib', 'html', 'uuid'}))"
    )
    assert others == "numpy"


@pytest.mark.parametrize(
    ("name", "format"), [("t.abcd", "columns"), ("t.colbin", "colbin"), ("t.cstore", "cstore")]
)
def test_formats_are_loaded_by_the_first_bytes_of_a_file(tmp_path, name, format):
    path = str(tmp_path / name)
    cs.store({"x": np.arange(10.0), "k": np.arange(10)}, path).close()
    code = FIRST_READ.format(path=path).replace("table[0]", "0")
    own = run_python(code + OWN_MODULES).split()
    loaded = {n for n in ("cstore", "columns", "colbin") if f"colstore_io.formats.{n}.reader" in own}
    assert loaded == (
        {"colbin", "cstore"} if format == "colbin" else {format}
    )  # logs ask that one for its attributes


def test_first_store_of_a_cstore_file_imports_no_other_format(tmp_path):
    path = str(tmp_path / "new.cstore")
    code = f"import sys, colstore_io; colstore_io.store({{'x': [1, 2]}}, {path!r}).close(); "
    own = run_python(code + OWN_MODULES).split()
    assert [
        n for n in own if n.startswith(("colstore_io.formats.columns", "colstore_io.formats.colbin"))
    ] == []


def test_magics_in_the_table_of_formats_are_those_of_the_formats():
    for one in formats.known_formats():
        assert formats.detect(one.magic + b"\0" * 8, "x") is one


def test_listing_xarray_engines_loads_the_plug_in_alone():
    pytest.importorskip("xarray")
    loaded = run_python(f"import sys, xarray; xarray.backends.list_engines(); {OWN_MODULES}").split()
    assert set(loaded) <= {
        "colstore_io",
        "colstore_io.integrations",
        "colstore_io.integrations.xarray",
    }


def test_everything_public_is_documented():
    for name in cs.__all__:
        thing = getattr(cs, name)
        if callable(thing):
            assert thing.__doc__, name
            for attribute, member in vars(thing).items() if isinstance(thing, type) else ():
                if not attribute.startswith("_") and callable(member):
                    assert member.__doc__, f"{name}.{attribute}"


@pytest.fixture
def large(tmp_path):
    n = 1_500_000
    data = {"x": np.random.default_rng(0).random(n), "k": np.arange(n)}
    cs.store(data, tmp_path / "large.cstore").close()
    with cs.open(tmp_path / "large.cstore") as table:
        yield table, data


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_child_gathers_without_hanging(large):
    table, data = large
    rows = np.random.default_rng(1).integers(0, len(data["x"]), 600_000)
    np.testing.assert_array_equal(
        table[rows, "x"].array(), data["x"][rows]
    )  # starts the thread pool of the parent
    child = os.fork()
    if child == 0:  # no assertion rewriting here: only the exit status gets out
        good = np.array_equal(table[rows, "x"].array(), data["x"][rows]) and threads.budget() == 1
        os._exit(0 if good else 1)
    for _ in range(600):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        __import__("time").sleep(0.05)
    else:
        os.kill(child, 9)
        os.waitpid(child, 0)
        pytest.fail("the child hung")
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.parametrize("percent", [1, 50, 90])
def test_mask_read_allocates_its_result_and_little_beside(large, percent):
    table, data = large
    mask = np.random.default_rng(2).random(len(data["x"])) < percent / 100
    table[mask, "x"].array()
    tracemalloc.start()
    got = table[mask, "x"].array()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    np.testing.assert_array_equal(got, data["x"][mask])
    assert peak <= got.nbytes + 200_000


def test_gather_and_slice_allocate_their_result_and_little_beside(large):
    table, data = large
    rows = np.random.default_rng(3).integers(0, len(data["x"]), 500_000)
    for key in (rows, slice(None), slice(None, None, -1), slice(5, None, 3)):
        table[key, "x"].array()
        tracemalloc.start()
        got = table[key, "x"].array()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak <= got.nbytes + 200_000


def test_thread_budget_is_shared_and_given_back():
    before = threads.budget()
    try:
        threads.set_budget(4)
        with threads.lease(3) as first, threads.lease(3) as second, threads.lease(3) as third:
            assert (first, second, third) == (3, 1, 1)
        with threads.lease(4) as again:
            assert again == 4
        with pytest.raises(ValueError, match="at least 1"):
            threads.set_budget(0)
    finally:
        threads.set_budget(before)


@pytest.mark.parametrize(
    ("work", "cap", "want"),
    [
        (0, 8, 1),
        (262143, 8, 1),
        (262144, 8, 2),
        (1 << 21, 8, 2),
        (5 << 20, 8, 5),
        (5 << 20, 4, 4),
        (1 << 30, 1, 1),
    ],
)
def test_threads_grow_with_the_work(work, cap, want):
    assert threads.wanted_threads(work, cap) == want


def test_usable_cores_honour_omp_num_threads():
    code = "from colstore_io import threads; print(threads.usable_cores())"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    assert out.stdout.strip() == "1"


@pytest.mark.parametrize(
    ("setter", "bad"),
    [
        (config.set_max_workers, 0),
        (config.set_gather_thread_cap, True),
        (config.set_default_madvise, "often"),
        (config.set_default_backend, "rust"),
        (config.set_default_memory_budget, 0),
        (config.set_prefetch_distance, 16385),
        (config.set_prefetch_distance, "far"),
        (config.set_preview_rows, -1),
    ],
)
def test_bad_settings_are_refused(setter, bad):
    with pytest.raises(ValueError):
        setter(bad)


def test_names_stay_functions_whatever_is_imported_first():
    code = (
        "import colstore_io as cs, importlib, pkgutil, sys\n"
        "for module in pkgutil.walk_packages(cs.__path__, 'colstore_io.'):\n"
        "    if 'integrations' not in module.name and not module.name.endswith('__main__'):\n"
        "        importlib.import_module(module.name)\n"
        "print(*[name for name in cs.__all__ if name not in ('colbin', 'config', '__version__')\n"
        "        and not callable(getattr(cs, name))])"
    )
    assert run_python(code) == ""
