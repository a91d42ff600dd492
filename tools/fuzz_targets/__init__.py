"""What `fuzz.py` feeds damaged bytes to: every decoder, the seeds for it, and how to make its checksums fit again.

A target is one function of bytes. Only errors of this library may leave it; those of `from_json` may be any
`ValueError`. Seeds are files and messages that the package itself writes, made anew in each run. `repair`
recomputes checksums in damaged bytes, as a hostile writer would: otherwise hardly any input gets past them.
"""

from __future__ import annotations

from . import colbin, columns, cstore, grid, kernels
from .target import Target

__all__ = ["TARGETS", "Target"]

TARGETS: dict[str, Target] = {
    name: target
    for module in (cstore, columns, kernels, colbin, grid)
    for name, target in module.TARGETS.items()
}
"""By name. Every decoder of bytes that may come from strangers is in one of them."""
