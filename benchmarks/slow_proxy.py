"""A proxy for HTTP that lets every request wait before it passes it on, and counts requests and bytes.

    python benchmarks/slow_proxy.py HOST PORT LATENCY_SECONDS

Prints its own port. Host names pass through, so that signed requests stay valid. ``GET /-counts`` gives JSON: requests
by kind, failures, and bytes of bodies that clients received, since the last time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys
from collections import Counter

HOST, PORT, LATENCY = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
counts: Counter[str] = Counter()

_LENGTH = re.compile(rb"(?im)^content-length:\s*(\d+)")
_CHUNKED = re.compile(rb"(?im)^transfer-encoding:\s*chunked")
_LISTING = re.compile(rb"[?&](list-type|prefix|delimiter)=")


async def body(source: asyncio.StreamReader, head: bytes, target: asyncio.StreamWriter) -> int:
    """Pass the body behind `head` on and return its size."""
    found = _LENGTH.search(head)
    size = 0
    if _CHUNKED.search(head):
        while True:
            line = await source.readline()
            length = int(line.split(b";")[0], 16)
            target.write(line + await source.readexactly(length + 2))
            size += length
            if length == 0:
                break
    elif found is not None:
        left = int(found.group(1))
        size = left
        while left:
            data = await source.read(min(left, 1 << 18))
            if not data:
                raise ConnectionError
            left -= len(data)
            target.write(data)
            await target.drain()
    await target.drain()
    return size


def kind_of(method: bytes, path: bytes, head: bytes) -> str:
    if method == b"HEAD":
        return "metadata"
    if method == b"GET":
        if _LISTING.search(path):
            return "listings"
        return "data" if re.search(rb"(?im)^range:", head) else "whole"
    return "writes"


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    up_reader, up_writer = await asyncio.open_connection(HOST, PORT)
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            method, path, _ = head.split(b" ", 2)
            if path.endswith(b"/-counts"):
                found = json.dumps(counts).encode()
                counts.clear()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(found) + found)
                await writer.drain()
                continue
            await asyncio.sleep(LATENCY)
            up_writer.write(head)
            await body(reader, head, up_writer)
            answer = await up_reader.readuntil(b"\r\n\r\n")
            status = int(answer.split(b" ", 2)[1])
            while status == 100:
                writer.write(answer)
                answer = await up_reader.readuntil(b"\r\n\r\n")
                status = int(answer.split(b" ", 2)[1])
            counts["requests"] += 1
            counts[kind_of(method, path, head)] += 1
            if status >= 400:
                counts["failed"] += 1
            writer.write(answer)
            if method != b"HEAD" and status not in (204, 304):
                size = await body(up_reader, answer, writer)
                counts["bytes"] += size
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        for stream in (writer, up_writer):
            with contextlib.suppress(Exception):
                stream.close()


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 20)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


asyncio.run(main())
