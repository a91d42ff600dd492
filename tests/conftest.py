"""Fixtures that the whole suite shares."""

from __future__ import annotations

from pathlib import Path

import pytest
from servers import moto_s3, nginx_server, plain_http_server, seaweed_s3

__all__ = ["moto_s3", "nginx_server", "plain_http_server", "seaweed_s3"]  # fixtures of real servers

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with golden vectors and real data, beside the project; tests that need it skip without it."""
    if not SHARED.is_dir():
        pytest.skip("the shared folder with golden vectors is not here")
    return SHARED
