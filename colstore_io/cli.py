"""The command line: ``colstore-io info|schema|head|inspect|verify|compact|index|calibrate``.

Errors of the user (a missing file, a damaged one) are one line on stderr and exit status 1; wrong usage is status 2.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import colstore_io as cs

from . import tuning

__all__ = ["main"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="colstore-io", description="Look at columnar files: local paths or any fsspec URL."
    )
    parser.add_argument("--version", action="version", version=f"colstore-io {cs.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, text: str, what: str = "file, directory, pattern or URL") -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("path", nargs="+", help=what)
        command.add_argument(
            "--storage-option",
            action="append",
            default=[],
            metavar="KEY=VALUE",
            help="option for the URL's file system; VALUE may be JSON; repeatable",
        )
        return command

    info = add("info", "Rows, records, columns and sizes, from the headers alone.")
    info.add_argument("--json", action="store_true", help="one JSON object per path")
    schema = add("schema", "Columns with dtypes, nulls, time zones, categories and attributes.")
    schema.add_argument("--json", action="store_true", help="the column objects as they stand in the file")
    head = add("head", "The first rows as a table.")
    head.add_argument("-n", "--rows", type=int, default=10, help="number of rows (default 10)")
    head.add_argument("-c", "--columns", help="column names, separated by commas")
    head.add_argument("-q", "--query", help='only rows where this holds, e.g. "delay > 60"')
    inspect = add(
        "inspect",
        "The parts of a file: records, chunks with encodings and sizes, or messages. Of a directory: its files.",
    )
    inspect.add_argument(
        "--candidates",
        action="store_true",
        help="what every layout of a columns file would cost (reads it whole)",
    )
    add("verify", "Check everything the format allows; exit status 1 when a file is damaged.")
    compact = add(
        "compact",
        "Merge the records of each file into one, in place or into another file; of a directory its small files.",
        "file or directory",
    )
    compact.add_argument("-o", "--out", help="write here and leave the source as it is (one source only)")
    _add_calibrate(commands)
    add(
        "index",
        "Write an index beside each local file, or each file of a directory: opens and filters faster.",
        "local file, directory or pattern",
    )
    return parser


def _add_calibrate(commands: Any) -> None:
    text = "Measure this machine once, so that reads use as many threads and as much look-ahead as pay here."
    actions = commands.add_parser("calibrate", help=text, description=text).add_subparsers(
        dest="action", required=True, metavar="ACTION"
    )
    run = actions.add_parser("run", help="measure, and keep the results for this machine")
    show = actions.add_parser("show", help="fingerprint, files, whether they match, and what they say")
    clear = actions.add_parser("clear", help="remove the results")
    for command in (run, show, clear):
        # Not `choices`: argparse would refuse the empty list.
        command.add_argument(
            "target",
            nargs="*",
            type=_target,
            metavar="TARGET",
            help=f"{' or '.join(tuning.TARGETS)}; default all",
        )
    run.add_argument("--rounds", type=int, default=10, help="rounds that count (default 10)")
    for target in tuning.TARGETS:
        run.add_argument(f"--{target}-rounds", type=int, metavar="N", help=f"the same for {target} alone")
    run.add_argument(
        "--quick", action="store_true", help="less work: seconds instead of a minute, and rougher"
    )
    run.add_argument("--no-persist", action="store_true", help="print the results without keeping them")


def _target(text: str) -> str:
    try:
        tuning.cache_path(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _calibrate(args: argparse.Namespace) -> int:
    targets = args.target or tuning.TARGETS
    if args.action == "clear":
        for target, removed in tuning.clear(targets).items():
            print(f"{target}: {'removed' if removed else 'there was nothing'}")
        return 0
    if args.action == "show":
        print(f"fingerprint  {tuning.fingerprint()}")
        for target in targets:
            known = tuning.inspect(target)
            value = "" if known.result is None else f"  {_value(known.result)}  ({known.timestamp})"
            print(f"{target:<11}  {known.path}  {known.status}{value}")
        return 0
    from . import calibrate

    own = {target: getattr(args, f"{target}_rounds") for target in tuning.TARGETS}
    rounds = {target: args.rounds if count is None else count for target, count in own.items()}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        results = calibrate.calibrate(targets, rounds=rounds, persist=not args.no_persist, quick=args.quick)
    for warning in caught:
        print(f"colstore-io calibrate: {warning.message}", file=sys.stderr)
    for result in results.values():
        print(f"{result.target:<11}  {_value(result.value)}  ({result.path or 'not kept'})")
    return 0


def _value(result: Any) -> str:
    if isinstance(result, dict):
        return " ".join(f"{name}={value}" for name, value in result.items())
    return str(result)


def _storage_options(pairs: Sequence[str]) -> dict[str, Any] | None:
    options: dict[str, Any] = {}
    for pair in pairs:
        key, separator, text = pair.partition("=")
        if not separator:
            raise ValueError(f"--storage-option takes KEY=VALUE, got {key!r}")
        try:
            options[key] = json.loads(text)
        except ValueError:
            options[key] = text
    return options or None


def _info(path: str, args: argparse.Namespace, options: dict[str, Any] | None) -> int:
    with cs.open(path, storage_options=options) as table:
        sizes = [file.size for file in table.source.files]
        facts: dict[str, Any] = {
            "path": path,
            "format": table.source.plan.format,
            "files": len(table.paths),
            "rows": table.n_rows,
            "records": table.source.plan.segments.n_segments,
            "columns": table.n_columns,
            "row_bytes": table.source.plan.row_bytes(),
            "bytes": sum(sizes),
            "statistics": any(s is not None for s in table.source.statistics),
            "uniform_rows": table.source.plan.segments.uniform_rows or None,
        }
        if args.json:
            print(json.dumps(facts))
        else:
            width = max(map(len, facts))
            for name, value in facts.items():
                shown = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else value
                print(f"{name.replace('_', ' '):<{width}}  {'-' if shown is None else shown}")
    return 0


def _schema(path: str, args: argparse.Namespace, options: dict[str, Any] | None) -> int:
    if args.json:
        print(json.dumps(cs.schema(path, storage_options=options)))
        return 0
    with cs.open(path, storage_options=options) as table:
        width = max([4, *map(len, table.columns)])
        for field in table.schema:
            notes = []
            if field.nullable:
                notes.append("nullable")
            if field.logical:
                notes.append(field.logical)
            if field.tz:
                notes.append(f"tz {field.tz}")
            if field.ordered is not None:
                known = "" if field.categories is None else f" of {len(field.categories)}"
                notes.append(f"{'ordered ' if field.ordered else ''}categories{known}")
            if field.attrs:
                notes.append(f"attrs {dict(field.attrs)}")
            print(f"{field.name:<{width}}  {field.dtype.str:<10}  {', '.join(notes)}".rstrip())
        if table.attrs:
            print(f"\nattrs {table.attrs}")
    return 0


def _head(path: str, args: argparse.Namespace, options: dict[str, Any] | None) -> int:
    with cs.open(path, storage_options=options) as table:
        view: Any = table if args.query is None else table.query(args.query)
        if args.columns:
            view = view.select(*args.columns.split(","))
        print(view.head(args.rows))
    return 0


def _inspect(path: str, args: argparse.Namespace, options: dict[str, Any] | None) -> int:
    print(cs.inspect(path, candidates=args.candidates, storage_options=options))
    return 0


def _verify(path: str, args: argparse.Namespace, options: dict[str, Any] | None) -> int:
    bad = 0
    for name, problems in cs.verify(path, storage_options=options).items():
        print(f"{name}: {'ok' if not problems else f'{len(problems)} problems'}")
        for problem in problems:
            print(f"  {problem}")
        bad += bool(problems)
    return 1 if bad else 0


def _compact(path: str, args: argparse.Namespace, options: dict[str, Any] | None) -> int:
    if args.out is not None and len(args.path) > 1:
        raise ValueError("--out takes one source file")
    print(cs.compact(path, args.out, storage_options=options))
    return 0


def _index(path: str, args: argparse.Namespace, options: dict[str, Any] | None) -> int:
    written = cs.index(path)
    for name in written if isinstance(written, list) else [written]:
        print(name)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    args = _parser().parse_args(argv)
    if args.command == "calibrate":
        try:
            return _calibrate(args)
        except (OSError, ValueError) as error:
            print(f"colstore-io calibrate: {error}", file=sys.stderr)
            return 1
    commands = {
        "info": _info,
        "schema": _schema,
        "head": _head,
        "inspect": _inspect,
        "verify": _verify,
        "compact": _compact,
        "index": _index,
    }
    run = commands[args.command]
    status = 0
    for number, path in enumerate(args.path):
        if number and args.command not in ("verify", "compact", "index"):
            print()
        try:
            status = max(status, run(path, args, _storage_options(args.storage_option)))
        except BrokenPipeError:
            return 0
        except (cs.ColstoreError, OSError, ValueError, KeyError) as error:
            print(f"colstore-io {args.command}: {error}", file=sys.stderr)
            status = 1
    return status
