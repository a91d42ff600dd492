"""Print the requirements of the project, one per line: ``requirements.py [--build-system] [EXTRA ...]``.

pip can install an extra only together with the project, which builds it. The Makefile wants the
requirements alone, so that an edit of a source file costs one build and nothing else.
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Sequence
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"


def requirements(extras: Sequence[str], *, build_system: bool = False) -> list[str]:
    """Return the run-time requirements and those of `extras`, or what building needs.

    Parameters
    ----------
    extras : sequence of str
        Names of ``[project.optional-dependencies]``.
    build_system : bool, optional
        Give ``[build-system] requires`` instead.

    Raises
    ------
    SystemExit
        If an extra does not exist.
    """
    settings = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))
    if build_system:
        return list(settings["build-system"]["requires"])
    optional = settings["project"]["optional-dependencies"]
    unknown = [extra for extra in extras if extra not in optional]
    if unknown:
        raise SystemExit(f"no extra {unknown[0]!r} in pyproject.toml; there are {', '.join(optional)}")
    wanted = [*settings["project"]["dependencies"]]
    for extra in extras:
        wanted += optional[extra]
    return list(dict.fromkeys(wanted))


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--build-system", action="store_true", help="what building the package needs")
    parser.add_argument("extras", nargs="*")
    arguments = parser.parse_args()
    print("\n".join(requirements(arguments.extras, build_system=arguments.build_system)))


if __name__ == "__main__":
    main()
