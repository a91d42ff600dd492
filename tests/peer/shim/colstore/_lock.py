"""The reference's ``colstore._lock``: the two functions of the same names in ours."""

from __future__ import annotations

from colstore_io.locks import lock_exclusive_nonblocking, unlock

__all__ = ["lock_exclusive_nonblocking", "unlock"]
