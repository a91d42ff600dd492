"""Run mypy on the package as it is installed: ``typecheck.py [--build DIR]``.

In the repository the kernels and the integrations lie beside the package, under other names, and mypy does
not follow import hooks. So it is shown a throw-away tree of symlinks that has the installed layout.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MOVED = {"kernels": "cython_kernels", "integrations": "integrations"}


def link_tree(target: Path) -> None:
    """Fill `target` with symlinks that look like the installed package."""
    package = target / "colstore_io"
    package.mkdir()
    for entry in sorted((ROOT / "colstore_io").iterdir()):
        if entry.name not in MOVED and entry.name != "__pycache__":
            (package / entry.name).symlink_to(entry)
    for installed, folder in MOVED.items():
        (package / installed).symlink_to(ROOT / folder)


def main() -> None:
    """Run the command line; the exit status is mypy's."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="where mypy keeps its cache")
    arguments = parser.parse_args()
    options = [
        f"--config-file={ROOT / 'pyproject.toml'}",
        f"--cache-dir={arguments.build.resolve() / 'mypy'}",
        "--no-error-summary",
    ]
    status = 0
    with tempfile.TemporaryDirectory(prefix="colstore-io-types-") as folder:
        tree = Path(folder)
        link_tree(tree)
        for targets, where in ((["-p", "colstore_io"], tree), ([str(ROOT / "tools")], ROOT)):
            mypy = [sys.executable, "-m", "mypy", *options, *targets]
            status = subprocess.run(mypy, cwd=where, check=False).returncode or status
    sys.exit(status)


if __name__ == "__main__":
    main()
