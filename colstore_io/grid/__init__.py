"""N-D data: a directory of immutable `.cstore` members under one manifest (docs/format-grid.md).

`layout` cuts dimensions into chunks, `model` says what a container holds, `parsing` checks a manifest, `selecting`,
`places` and `reading` read parts of variables, `members` and `commit` write, `compacting` merges files.
"""

from .commit import GridWriter
from .compacting import compact_grid
from .container import Container, open_container
from .reading import GridSource, GridVariable

__all__ = ["Container", "GridSource", "GridVariable", "GridWriter", "compact_grid", "open_container"]
