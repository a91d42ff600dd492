"""N-D data: a directory of immutable `.cstore` members under one manifest (docs/format-grid.md).

`layout` cuts dimensions into chunks, `model` says what a container holds, `parsing` checks a manifest. `selecting` says
what a key means, `places` which file has a chunk; `source` has the files at hand, `jobs` and `fetching` bring what is
not mapped, `reading` makes arrays of it. `members` and `files` write, `commit` publishes, `compacting` merges files.
"""

from .commit import GridWriter
from .compacting import compact_grid
from .container import Container, open_container
from .reading import GridVariable
from .source import GridSource

__all__ = ["Container", "GridSource", "GridVariable", "GridWriter", "compact_grid", "open_container"]
