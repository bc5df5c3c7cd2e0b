"""The checker's side of forked, confined workers: a template that is started once, a transport for each submission."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..candidates import wire
from ..candidates.errors import TriuError, WorkerLost
from ..candidates.transport import OverSocket, obituary

START_SECONDS = 60.0
LOST_SECONDS = 2.0  # in which a worker that hung up is to end
END_SECONDS = 30.0  # after SIGKILL
MAX_OUTPUT = 20_000  # bytes that are kept of what a submission prints
MAX_STARTS = 40  # workers for one submission; each may be lost
ENVIRONMENT = {
    "PATH": "", "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "MPLBACKEND": "Agg",
    "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0",
}  # fmt: skip


class TemplateError(TriuError):
    """The template could not be started; that is never a submission's fault."""


class Template:
    """The process that forks workers.  One for a checker; started anew if it should be lost."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    @staticmethod
    def possible() -> bool:
        """Whether workers can be forked and confined here: on Linux."""
        return sys.platform == "linux" and hasattr(os, "pidfd_open")

    def start(self) -> None:
        """Start it, without waiting until it has imported everything."""
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        ours, theirs = socket.socketpair()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "triu.conformance.grading.template", str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            env={**_inherited(), **ENVIRONMENT},
            cwd="/",
            start_new_session=True,
        )
        theirs.close()
        self._control = ours
        self._ready = False

    def fork(self, request: Mapping[str, Any], descriptors: list[int]) -> None:
        """A worker with these descriptors.  Raises TemplateError if there is no template."""
        self.start()
        assert self._control is not None
        try:
            self._control.settimeout(START_SECONDS)
            if not self._ready:
                if self._control.recv(16) != b"ready\n":
                    raise ConnectionError("it ended while it imported its libraries")
                self._ready = True
            socket.send_fds(self._control, [json.dumps(request).encode()], descriptors)
        except (OSError, TimeoutError) as error:
            self.close()
            raise TemplateError(f"the process that runs submissions could not be started: {error}") from None

    def close(self) -> None:
        """End it, and with it its workers."""
        if self._control is not None:
            self._control.close()
            self._control = None
        process, self._process = self._process, None
        if process is not None:
            try:
                process.wait(timeout=2)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _inherited() -> dict[str, str]:
    """What Python needs to find its libraries, and nothing else of the environment."""
    names = ("PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "SYSTEMROOT", "TMPDIR")
    return {name: os.environ[name] for name in names if name in os.environ}


class Forked(OverSocket):
    """A confined worker of the template; another one is forked after it was lost.

    Attributes:
        layers: the layers of isolation that were active in the last worker.
        output: what the submission printed, the first and the last of it.
    """

    def __init__(
        self,
        template: Template,
        folder: Path,
        *,
        memory_mb: int = 2048,
        total_seconds: float = 600.0,
    ) -> None:
        super().__init__(total_seconds)
        self.layers: tuple[str, ...] = ()
        self._template, self._folder, self._memory_mb = template, folder, memory_mb
        self._output = Drain()
        self._ending, self._leash, self._private = -1, -1, ""

    @property
    def output(self) -> str:
        return self._output.text

    def start(self) -> None:
        """Raises TemplateError, or WorkerLost where a worker was lost too often."""
        if self._socket is not None:
            return
        if self.generation >= MAX_STARTS:
            raise WorkerLost(f"the worker was lost {self.generation} times; it is not started again")
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
        printed, printing = os.pipe()
        self._ending, ending = os.pipe()
        leash, self._leash = os.pipe()
        self._private = tempfile.mkdtemp(prefix="triu-")
        request = {
            "environment": {**ENVIRONMENT, "HOME": self._private, "TMPDIR": self._private},
            "allowance": {
                "readable": str(self._folder),
                "writable": self._private,
                "memory_mb": self._memory_mb,
                "cpu_seconds": max(1, int(self._total)),
            },
        }
        self._socket = ours
        self.generation += 1
        try:
            try:
                self._template.fork(request, [theirs.fileno(), printing, ending, leash])
            finally:
                theirs.close()
                for number in (printing, ending, leash):
                    os.close(number)
                self._output.follow(printed)
            hello, _ = self._receive(time.monotonic() + START_SECONDS)
        except TemplateError:
            self.close()
            raise
        except (OSError, EOFError, wire.WireError) as error:
            self.close()
            raise TemplateError(f"a worker could not be started: {error or type(error).__name__}") from None
        self.layers = tuple(map(str, hello.get("layers", ())))

    def lost(self) -> WorkerLost:
        code: int | None = None
        # It may have closed its end and go on.
        if select.select([self._ending], [], [], LOST_SECONDS)[0]:
            with contextlib.suppress(ValueError):
                code = int(os.read(self._ending, 32))
        self.close()
        found = obituary(code)
        if found.kind == "crash" and "bad_alloc" in self.output[-2000:]:
            return WorkerLost(f"{found}: it ran out of memory", "memory")
        return found

    def close(self) -> None:
        """Stop the worker and everything it started; its private folder is removed."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._leash >= 0:
            os.close(self._leash)
            # Its folder is removed only when nothing runs any more that could put links into it.
            if not select.select([self._ending], [], [], END_SECONDS)[0]:
                raise TemplateError("a worker does not end")
            os.close(self._ending)
        self._leash = self._ending = -1
        if self._private:
            _remove(self._private)
            self._private = ""


def _remove(folder: str) -> None:
    """Delete a folder that untrusted code could write, whatever it made of its permissions."""

    def again(function: Callable[..., Any], path: str, _: Any) -> None:
        with contextlib.suppress(OSError):
            os.chmod(os.path.dirname(path), 0o700)
            os.chmod(path, 0o700, follow_symlinks=False) if not os.path.islink(path) else None
            function(path)

    shutil.rmtree(folder, onerror=again)


class Drain:
    """Reads what workers print, as fast as it comes, and keeps its beginning and its end."""

    def __init__(self, limit: int = MAX_OUTPUT) -> None:
        self._half = limit // 2
        self._first, self._last, self._count = bytearray(), bytearray(), 0
        self._lock = threading.Lock()

    def follow(self, descriptor: int) -> None:
        """Read a pipe until all of its writers are gone."""
        threading.Thread(target=self._read, args=(descriptor,), daemon=True).start()

    def _read(self, descriptor: int) -> None:
        with contextlib.suppress(OSError):
            while data := os.read(descriptor, 1 << 16):
                with self._lock:
                    self._count += len(data)
                    room = self._half - len(self._first)
                    self._first += data[:room]
                    self._last = (self._last + data[max(room, 0) :])[-self._half :]
        os.close(descriptor)

    @property
    def text(self) -> str:
        with self._lock:
            cut = self._count - len(self._first) - len(self._last)
            middle = f"\n… {cut} bytes left out …\n".encode() if cut > 0 else b""
            return bytes(self._first + middle + self._last).decode("utf-8", "replace")
