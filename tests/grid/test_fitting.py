"""Values in the width or unit of a stored variable: unchanged, or refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from colstore_io.errors import SchemaMismatchError
from colstore_io.grid.fitting import fitted, without_loss
from colstore_io.grid.layout import Axis
from colstore_io.grid.model import VariableSpec


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    values=st.lists(st.binary(max_size=6), min_size=1, max_size=5),
    width=st.integers(1, 7),
    kind=st.sampled_from("SU"),
)
def test_text_is_the_same_or_refused(values, width, kind):
    array = np.array(values)
    if kind == "U":
        array = np.array([value.decode("latin1") for value in values])
    found = without_loss(array, np.dtype(f"{kind}{width}"))
    assert (found is not None) == (max(len(value) for value in array.tolist()) <= width)
    if found is not None:
        assert found.dtype == f"{kind}{width}"
        assert found.tolist() == array.tolist()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    values=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4),
    units=st.lists(st.sampled_from(["s", "ms", "us", "ns", "m", "D"]), min_size=2, max_size=2),
    kind=st.sampled_from("Mm"),
)
def test_times_are_the_same_or_refused(values, units, kind):
    nanoseconds = {"D": 86400 * 10**9, "m": 60 * 10**9, "s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
    array = np.array(values, np.int64).view(f"{kind}8[{units[0]}]")
    target = np.dtype(f"{kind}8[{units[1]}]")
    found = without_loss(array, target)
    expected = []
    for value in values:
        if value == -(2**63):  # NaT
            expected.append(value)
            continue
        exact, rest = divmod(value * nanoseconds[units[0]], nanoseconds[units[1]])
        expected.append(exact if not rest and -(2**63) < exact < 2**63 else None)
    if None in expected:
        assert found is None
    else:
        assert found is not None
        assert found.view(np.int64).tolist() == expected


def test_refusal_names_the_variable_and_both_dtypes():
    spec = VariableSpec("name", "plain", np.dtype("S2"), ("x",), (Axis.regular(1, 1),))
    with pytest.raises(
        SchemaMismatchError, match=r"variable 'name' is \|S3, the dataset has \|S2: longer text"
    ):
        fitted(np.array([b"abc"]), spec)


def test_values_of_the_stored_dtype_are_not_copied():
    values = np.array([b"ab"])
    spec = VariableSpec("name", "plain", np.dtype("S2"), ("x",), (Axis.regular(1, 1),))
    assert fitted(values, spec) is values
