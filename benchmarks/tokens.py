"""Tokenize and decode beside the ``tokenizers`` package: ``tokens.py TOKENIZER.json TEXT [TEXT ...]``.

Values are the lines of the texts. Rounds are interleaved; printed are medians in MB of text per second, and
per second of processor time, which other load on the machine moves less.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tokenizers

from colstore_io import threads
from colstore_io.formats.columns.tokenized import TokenStreams, decode_tokenized
from colstore_io.formats.columns.tokenizer import Tokenizer

ROUNDS = 5


def main(model: str, *texts: str) -> None:
    lines = [line for text in texts for line in Path(text).read_text("utf-8").split("\n")]
    encoded = [line.encode() for line in lines]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    data = np.frombuffer(b"".join(encoded), np.uint8)
    ours, theirs = Tokenizer.from_file(model), tokenizers.Tokenizer.from_file(model)
    streams = TokenStreams.tokenize(offsets, data, ours)
    ids = [part.tolist() for part in np.split(streams.ids, np.cumsum(streams.counts)[:-1])]
    cases: dict[str, Callable[[], object]] = {
        "encode": lambda: TokenStreams.tokenize(offsets, data, ours),
        "encode, not verified": lambda: TokenStreams.tokenize(offsets, data, ours, verify=False),
        "encode, tokenizers": lambda: theirs.encode_batch_fast(lines, add_special_tokens=False),
        "decode, tokenizers": lambda: theirs.decode_batch(ids, skip_special_tokens=False),
    }
    for name, layout in (
        ("raw", ("raw", "counts")),
        ("remap", ("remap", "deltas")),
        ("bits", ("bits", "offsets")),
    ):
        stream = streams.encode(*layout)  # type: ignore[arg-type]
        cases[f"decode {name}"] = lambda stream=stream: decode_tokenized(  # type: ignore[misc]
            stream, ours, len(lines), max_bytes=1 << 40
        )
    megabytes = len(data) / 1e6
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
    for _ in range(ROUNDS):
        for name, call in cases.items():
            wall, cpu = time.perf_counter(), time.process_time()
            call()
            found[name].append(
                (megabytes / (time.perf_counter() - wall), megabytes / (time.process_time() - cpu))
            )
    print(f"{megabytes:.1f} MB, {len(lines)} values, {len(streams.ids)} ids, {threads.budget()} threads")
    for name, rates in found.items():
        wall, cpu = (statistics.median(column) for column in zip(*rates, strict=True))
        print(f"{name:22} {wall:9.1f} MB/s {cpu:9.1f} MB per cpu second")


if __name__ == "__main__":
    main(*sys.argv[1:])
