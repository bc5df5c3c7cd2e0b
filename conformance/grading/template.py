"""The template: a process that has imported what submissions need, and forks one confined worker for each.

Run as ``python -m triu.conformance.grading.template FD``.  It imports torch with one thread and runs no operation
(a fork from a process that has used several threads deadlocks), and holds no claims and no secrets.  A request is a
JSON line with four file descriptors: the worker's socket, a pipe for what it prints, a pipe for how it ended, and a
leash: when that is closed, by the checker or by its end, the worker is killed.  Between template and worker stand
a keeper, which holds the leash, and the first process of a pid namespace, which waits for the worker and tells how
it ended; with that process everything ends that the worker started.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

MAX_REQUEST = 1 << 16


def main(descriptor: int) -> NoReturn:
    """Serve requests until the checker's end of the socket is closed."""
    _preload()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers tell by themselves how workers ended
    control = socket.socket(fileno=descriptor)
    control.sendall(b"ready\n")
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, MAX_REQUEST, 4)
        if not message:
            os._exit(0)
        pid = os.fork()
        if pid == 0:
            control.close()
            _keep(json.loads(message), descriptors)
        for number in descriptors:
            os.close(number)


def _preload() -> None:
    """Everything that a worker imports, in this process; what is missing is missing there too."""
    for name in (
        "torch",
        "numpy",
        "py_landlock",
        "pyseccomp",
        "inspect",
        "linecache",
        "tokenize",
        "traceback",
    ):
        with contextlib.suppress(ImportError, OSError, RuntimeError):
            __import__(name)
    from ..candidates import worker  # noqa: F401
    from . import confine

    confine.readable_paths()
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


def _keep(request: Mapping[str, Any], descriptors: Sequence[int]) -> NoReturn:
    """The keeper: forks the worker, kills it when the leash is closed, tells how it ended."""
    from . import confine

    serving, printing, ending, leash = descriptors
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    confine.die_with_parent()
    inside = confine.enter_namespaces()
    pid = os.fork()
    if pid == 0:
        confine.die_with_parent()
        os.close(leash)
        if inside:
            _be_first(request, descriptors)
        os.close(ending)
        _work(request, serving, printing, inside)
    for number in (serving, printing):
        os.close(number)
    watched = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(watched, select.POLLIN)
    poll.register(leash, select.POLLHUP)
    poll.poll()
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(watched, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if not inside:
        _tell(ending, status)
    os._exit(0)


def _be_first(request: Mapping[str, Any], descriptors: Sequence[int]) -> NoReturn:
    """The first process of a pid namespace, which no signal from within reaches: it waits for the worker."""
    serving, printing, ending, _ = descriptors
    pid = os.fork()
    if pid == 0:
        os.close(ending)
        _work(request, serving, printing, True)
    for number in (serving, printing):
        os.close(number)
    while True:
        ended, status = os.wait()
        if ended == pid:
            _tell(ending, status)
            os._exit(0)


def _tell(ending: int, status: int) -> None:
    with contextlib.suppress(OSError):
        os.write(ending, str(os.waitstatus_to_exitcode(status)).encode())


def _work(request: Mapping[str, Any], serving: int, printing: int, inside: bool) -> NoReturn:
    """The worker: confines itself, tells which layers are active, and serves."""
    from ..candidates import wire, worker
    from . import confine

    status = 70
    try:
        confine.die_with_parent()
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(printing, 1)
        os.dup2(printing, 2)
        kept = os.dup2(serving, 3)
        os.closerange(4, 4096)
        os.environ.clear()
        os.environ.update(request["environment"])
        sys.dont_write_bytecode = True
        sys.argv = ["candidate"]
        layers = confine.confine(confine.Allowance(**request["allowance"]), in_namespaces=inside)
        sys.stdout.reconfigure(line_buffering=True)  # pyright: ignore[reportAttributeAccessIssue]
        os.write(kept, wire.pack({"layers": list(layers)}, []))
        worker.serve(kept)
        status = 0
    except SystemExit:
        status = 0
    except BaseException as error:
        print(f"the worker ended: {type(error).__name__}: {error}", file=sys.stderr)
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    main(int(sys.argv[1]))
