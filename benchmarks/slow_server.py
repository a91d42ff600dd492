"""A web server over a folder that waits before each answer and counts requests and bytes.

    python benchmarks/slow_server.py FOLDER LATENCY_SECONDS

Prints its port. Answers byte ranges, ``HEAD``, and ``/-counts`` (as JSON, since the last time, not counted itself).
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path

ROOT, LATENCY = Path(sys.argv[1]), float(sys.argv[2])
counts = {"requests": 0, "bytes": 0}


def answer(method: str, path: str, header: str) -> tuple[str, list[str], bytes]:
    """Return status, headers and body."""
    file = ROOT / path.lstrip("/")
    if not file.is_file():
        return "404 Not Found", ["Content-Length: 0"], b""
    size, stat = file.stat().st_size, file.stat()
    headers = ["Accept-Ranges: bytes", f'ETag: "{stat.st_mtime_ns:x}-{size:x}"']
    found = re.search(r"(?im)^range:\s*bytes=(\d*)-(\d*)", header)
    if method == "HEAD" or found is None:
        body = b"" if method == "HEAD" else file.read_bytes()
        return "200 OK", [*headers, f"Content-Length: {size}"], body
    first, last = found.groups()
    start = int(first) if first else max(0, size - int(last))
    stop = min(size, int(last) + 1) if first and last else size
    if start >= size:
        return "416 Range Not Satisfiable", ["Content-Length: 0", f"Content-Range: bytes */{size}"], b""
    with file.open("rb") as stream:
        stream.seek(start)
        body = stream.read(stop - start)
    ranged = [f"Content-Length: {len(body)}", f"Content-Range: bytes {start}-{stop - 1}/{size}"]
    return "206 Partial Content", [*headers, *ranged], body


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            header = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            method, path, _ = header.split(" ", 2)
            if path == "/-counts":
                body = json.dumps(counts).encode()
                counts.update(requests=0, bytes=0)
                status, headers = "200 OK", [f"Content-Length: {len(body)}"]
            else:
                await asyncio.sleep(LATENCY)
                status, headers, body = answer(method, path, header)
                counts["requests"] += 1
                counts["bytes"] += len(body)
            writer.write("\r\n".join([f"HTTP/1.1 {status}", *headers, "", ""]).encode() + body)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


asyncio.run(main())
