"""How frames travel between checker and candidate: through a worker process, or within this process.

Both transports carry the same bytes, so that whatever is true of a candidate in one is true in the other.
"""

from __future__ import annotations

import math
import os
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from . import wire
from .errors import CallTimeout, ProtocolError, TargetError, WorkerLost

Callback = Callable[[Mapping[str, Any], bytes], tuple[dict[str, Any], list[bytes]]]


class Transport(Protocol):
    """One request, one answer; callbacks in between are answered by ``on_callback``."""

    generation: int

    def request(
        self, header: dict[str, Any], buffers: list[bytes], timeout: float, on_callback: Callback | None
    ) -> tuple[dict[str, Any], bytes]: ...

    def close(self) -> None: ...


class InProcess:
    """The worker's operations in this very process: for a debugger, a notebook, and pytest by default."""

    def __init__(self, live: Mapping[str, Any] | None = None) -> None:
        from .worker import Worker

        self.generation = 0
        self._on_callback: Callback | None = None
        self._worker = Worker(self._ask)
        for name, value in (live or {}).items():
            self._worker.provide(name, value)

    def request(
        self, header: dict[str, Any], buffers: list[bytes], timeout: float, on_callback: Callback | None
    ) -> tuple[dict[str, Any], bytes]:
        self._on_callback = on_callback
        try:
            answer, answer_buffers = self._worker.handle(*_split(wire.pack(header, buffers)))
            return _split(wire.pack(answer, answer_buffers))
        except wire.WireError as error:
            raise ProtocolError(f"the worker broke the protocol: {error}") from None

    def _ask(self, header: dict[str, Any], buffers: list[bytes]) -> tuple[dict[str, Any], bytes]:
        callback, body = _split(wire.pack(header, buffers))
        if self._on_callback is None:
            return {"error": "no one answers callbacks here"}, b""
        answer, answer_buffers = self._on_callback(callback["callback"], body)
        return _split(wire.pack(answer, answer_buffers))

    def close(self) -> None:
        pass


def _split(frame: bytes) -> tuple[dict[str, Any], bytes]:
    size = wire.PREFIX.size
    header, body = wire.sizes(frame[:size])
    return wire.unpack(frame[size : size + header]), frame[size + header : size + header + body]


class OverSocket(ABC):
    """A worker at the other end of a socket, started on first use and again after it was lost.

    ``total_seconds`` is for everything that it is asked, from now on.

    ``generation`` grows with every start: handles of an earlier one are no longer valid.
    """

    def __init__(self, total_seconds: float = math.inf) -> None:
        self.generation = 0
        self._socket: socket.socket | None = None
        self._total, self._ends = total_seconds, time.monotonic() + total_seconds

    @abstractmethod
    def start(self) -> None:
        """Start the worker, if there is none, and set the socket."""

    @abstractmethod
    def close(self) -> None:
        """Stop the worker and everything it started."""

    @abstractmethod
    def lost(self) -> WorkerLost:
        """How the worker ended; called when its socket was closed."""

    def request(
        self, header: dict[str, Any], buffers: list[bytes], timeout: float, on_callback: Callback | None
    ) -> tuple[dict[str, Any], bytes]:
        if time.monotonic() >= self._ends:
            self.close()
            raise CallTimeout(self._late())
        self.start()
        deadline = min(time.monotonic() + timeout, self._ends)
        try:
            self._send(wire.pack(header, buffers), deadline)
            while True:
                answer, body = self._receive(deadline)
                if "callback" not in answer:
                    if answer.get("id") != header.get("id"):
                        raise wire.WireError("the answer is to another question")
                    return answer, body
                if on_callback is None:
                    reply, reply_buffers = {"error": "no one answers callbacks here"}, []
                else:
                    reply, reply_buffers = on_callback(answer["callback"], body)
                self._send(wire.pack(reply, reply_buffers), deadline)
        except wire.WireError as error:
            self.close()
            raise ProtocolError(f"the worker broke the protocol: {error}") from None
        except TimeoutError:
            self.close()
            late = f"no answer within {timeout:g} s; the worker was stopped"
            raise CallTimeout(self._late() if deadline == self._ends else late) from None
        except (BrokenPipeError, ConnectionError, EOFError):
            raise self.lost() from None

    def _late(self) -> str:
        return f"everything together took longer than {self._total:g} s"

    def _send(self, data: bytes, deadline: float) -> None:
        self._timed(deadline).sendall(data)

    def _receive(self, deadline: float) -> tuple[dict[str, Any], bytes]:
        header, body = wire.sizes(self._exactly(wire.PREFIX.size, deadline))
        return wire.unpack(self._exactly(header, deadline)), self._exactly(body, deadline)

    def _exactly(self, size: int, deadline: float) -> bytes:
        data = bytearray(size)
        view, filled = memoryview(data), 0
        while filled < size:
            received = self._timed(deadline).recv_into(view[filled:])
            if not received:
                raise EOFError
            filled += received
        return bytes(data)

    def _timed(self, deadline: float) -> socket.socket:
        """The socket, with what is left of the time as its limit."""
        left = deadline - time.monotonic()
        if self._socket is None or left <= 0:
            raise TimeoutError
        self._socket.settimeout(left)
        return self._socket


class Started(OverSocket):
    """A worker that is a process which this one starts."""

    def __init__(self, total_seconds: float = math.inf) -> None:
        super().__init__(total_seconds)
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def popen(self, theirs: socket.socket) -> subprocess.Popen[bytes]:
        """Start the process with its end of the socket."""

    def start(self) -> None:
        """Start the worker without waiting for it, so that it imports while the checker does."""
        if self._process is not None:
            return
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        try:
            self._process = self.popen(theirs)
        finally:
            theirs.close()
        self._socket = ours
        self.generation += 1

    def lost(self) -> WorkerLost:
        process = self._process
        code = None
        if process is not None:
            try:
                code = process.wait(timeout=2)
            except subprocess.TimeoutExpired:
                code = None
        self.close()
        return obituary(code)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        process, self._process = self._process, None
        if process is not None:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                process.kill()
            process.wait()


class Subprocess(Started):
    """A worker process of its own.  ``preload`` names libraries that it imports before it is asked for anything."""

    def __init__(self, preload: tuple[str, ...] = (), total_seconds: float = math.inf) -> None:
        super().__init__(total_seconds)
        self._preload = preload

    def popen(self, theirs: socket.socket) -> subprocess.Popen[bytes]:
        worker = [sys.executable, "-m", "triu.conformance.candidates.worker", str(theirs.fileno())]
        environment = {
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "PYTHONHASHSEED": "0",
            "PYTHONDONTWRITEBYTECODE": "1",
            "MPLBACKEND": "Agg",
        }
        return subprocess.Popen(
            [*worker, *self._preload],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            env={**os.environ, **environment},
            start_new_session=True,
        )


class Command(Started):
    """A program in any language that speaks the protocol on its standard input and output (docs/protocol.md)."""

    def __init__(self, command: Sequence[str]) -> None:
        super().__init__()
        self._command = list(command)

    def popen(self, theirs: socket.socket) -> subprocess.Popen[bytes]:
        try:
            end = theirs.fileno()
            return subprocess.Popen(self._command, stdin=end, stdout=end, start_new_session=True)
        except OSError as error:
            raise TargetError(f"{self._command[0]}: cannot be started: {error.strerror}") from None


def obituary(code: int | None) -> WorkerLost:
    """How a worker ended: its exit status, minus the number of a signal, or None where nobody knows."""
    if code is None:
        return WorkerLost("the worker closed its connection")
    if code >= 0:
        return WorkerLost(f"the worker exited with status {code}")
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = str(-code)
    kind = {"SIGKILL": "killed", "SIGTERM": "killed", "SIGINT": "killed", "SIGXCPU": "time-out"}
    return WorkerLost(f"the worker was ended by signal {name}", kind.get(name, "crash"))
