"""Fixtures and options that xarray's own tests expect."""

from xarray.tests.conftest import *  # noqa: F403
