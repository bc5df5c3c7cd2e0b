"""A worker where it cannot be confined: a process alone, whose memory is looked at again and again."""

from __future__ import annotations

import subprocess
import threading
import time

import psutil

from ..candidates.errors import WorkerLost
from ..candidates.transport import Subprocess

LIBRARIES_MB = 600  # that torch and its like take themselves
EVERY = 0.1  # seconds


class Watched(Subprocess):
    """Ends its worker when that and what it started take more than ``memory_mb`` above what libraries take."""

    def __init__(self, memory_mb: int, total_seconds: float) -> None:
        super().__init__(("torch",), total_seconds)
        self._memory_mb, self._exceeded = memory_mb, False

    def start(self) -> None:
        fresh = self._process is None
        super().start()
        if fresh and self._process is not None:
            threading.Thread(target=self._watch, args=(self._process,), daemon=True).start()

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        limit = (self._memory_mb + LIBRARIES_MB) << 20
        while process.poll() is None:
            if _resident(process.pid) > limit:
                self._exceeded = True
                process.kill()
            time.sleep(EVERY)

    def lost(self) -> WorkerLost:
        found = super().lost()
        if self._exceeded:
            self._exceeded = False
            return WorkerLost(f"it took more than {self._memory_mb} MB of memory", "memory")
        return found


def _resident(pid: int) -> int:
    """Bytes of memory of a process and all that it started."""
    try:
        process = psutil.Process(pid)
        return sum(p.memory_info().rss for p in [process, *process.children(recursive=True)])
    except psutil.Error:
        return 0
