"""Fixtures that the whole suite shares."""

from __future__ import annotations

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with golden vectors and real data, beside the project; tests that need it skip without it."""
    if not SHARED.is_dir():
        pytest.skip("the shared folder with golden vectors is not here")
    return SHARED
