"""Confines the process that runs a submission.  Linux; each layer is used if the kernel and a library have it.

Runs in the forked worker before any of the submission's code.  Landlock lets it read the interpreter, the packages
(but triu) and a copy of the submission, and write one private folder; seccomp takes away sockets, programs, other
processes; limits bound memory, time and files; namespaces leave it no network and no other process to see.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import site
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = (
    0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000,
)  # fmt: skip
CLONE_THREAD = 0x00010000
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 1, 4, 38
ALL_LAYERS = ("namespaces", "no new privileges", "landlock", "seccomp", "limits")
MAX_FILE = 64 << 20
MAX_OPEN = 256
MAX_TASKS = 64

# What no submission needs; everything else is allowed, since libraries differ in what they call.
FORBIDDEN = (
    # the network, and programs and processes other than itself
    "socket socketpair connect bind listen accept accept4 sendto sendmsg sendmmsg execve execveat fork vfork ptrace "
    "process_vm_readv process_vm_writev process_madvise pidfd_open pidfd_getfd pidfd_send_signal rt_sigqueueinfo "
    "rt_tgsigqueueinfo setsid setpgid kcmp mq_open msgget semget shmget "
    # files that Landlock leaves alone
    "chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat utime utimes utimensat futimesat setxattr lsetxattr "
    "fsetxattr removexattr lremovexattr fremovexattr open_by_handle_at name_to_handle_at inotify_init1 fanotify_init "
    # the system
    "unshare setns mount umount2 pivot_root chroot open_tree move_mount fsopen fsmount fsconfig mount_setattr bpf "
    "perf_event_open keyctl add_key request_key io_uring_setup io_uring_enter io_uring_register userfaultfd "
    "kexec_load init_module finit_module delete_module reboot swapon swapoff sethostname setdomainname acct quotactl "
    "syslog iopl ioperm setuid setgid setreuid setregid setresuid setresgid setgroups personality memfd_secret "
    "modify_ldt vhangup clock_settime settimeofday adjtimex"
).split()


@dataclass(frozen=True)
class Allowance:
    """What the worker may use.

    Attributes:
        readable: the copy of the submission, read-only.
        writable: a private folder, its working directory.
        memory_mb: address space above what the process has at its start.
        cpu_seconds: processor time of one worker.
    """

    readable: str
    writable: str
    memory_mb: int = 2048
    cpu_seconds: int = 3600


def libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def enter_namespaces() -> bool:
    """New user, network, IPC, UTS and pid namespaces; the next fork is the first process of the last one."""
    if not hasattr(libc(), "unshare"):
        return False
    uid, gid = os.getuid(), os.getgid()
    flags = CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWPID
    if libc().unshare(flags) != 0:
        return False
    with contextlib.suppress(OSError):
        Path("/proc/self/setgroups").write_text("deny")
    try:
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    except OSError:
        pass  # without a map its ids are those of nobody, which is as good
    return True


def confine(allowance: Allowance, *, in_namespaces: bool) -> tuple[str, ...]:
    """Apply every layer that there is to this process, for good; returns those that are active."""
    layers = ["namespaces"] if in_namespaces else []
    os.chdir(allowance.writable)
    base = _address_space()
    if libc().prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0:
        layers.append("no new privileges")
    if _landlock(allowance):
        layers.append("landlock")
    _limit(allowance, base, in_namespaces)
    layers.append("limits")
    if _seccomp():
        layers.append("seccomp")
    return tuple(name for name in ALL_LAYERS if name in layers)


def die_with_parent() -> None:
    """Ask the kernel for SIGKILL when the parent ends."""
    libc().prctl(PR_SET_PDEATHSIG, 9, 0, 0, 0)


def _address_space() -> int:
    """Bytes of address space in use."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except OSError:
        return 4 << 30


def _limit(allowance: Allowance, base: int, in_namespaces: bool) -> None:
    def limit(what: int, value: int) -> None:
        hard = resource.getrlimit(what)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(what, (value, value))

    limit(resource.RLIMIT_AS, base + (allowance.memory_mb << 20))
    limit(resource.RLIMIT_CPU, allowance.cpu_seconds)
    limit(resource.RLIMIT_FSIZE, MAX_FILE)
    limit(resource.RLIMIT_NOFILE, MAX_OPEN)
    limit(resource.RLIMIT_CORE, 0)
    if in_namespaces:  # elsewhere it counts everything that this user runs
        limit(resource.RLIMIT_NPROC, MAX_TASKS)


@lru_cache(maxsize=1)
def readable_paths() -> tuple[str, ...]:
    """The interpreter, system libraries and installed packages, without triu itself."""
    paths = sysconfig.get_paths()
    roots = [
        *("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/share/zoneinfo"),
        *("/etc/ld.so.cache", "/etc/localtime", "/dev/null", "/dev/zero", "/dev/urandom", "/dev/random"),
        *("/proc/cpuinfo", "/sys/devices/system/cpu"),
        *(paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        *site.getsitepackages(),
    ]
    own = Path(__file__).resolve().parents[2]
    return tuple(sorted({found for root in roots for found in _without(root, own)}))


def _without(path: str, own: Path) -> list[str]:
    """A path, or, where triu lies below it, all that is below it but triu."""
    real = Path(path).resolve()
    if real == own or not real.exists():
        return []
    if not own.is_relative_to(real):
        return [path]
    return [found for entry in sorted(real.iterdir()) for found in _without(str(entry), own)]


def _landlock(allowance: Allowance) -> bool:
    try:
        from py_landlock import AccessFs, Landlock, LandlockError
    except ImportError:
        return False
    read = AccessFs.READ_FILE | AccessFs.READ_DIR
    try:
        ruleset = Landlock(strict=False)
        for path in readable_paths():
            ruleset.add_path_rule(path, access=read if os.path.isdir(path) else AccessFs.READ_FILE)
        ruleset.add_path_rule("/dev/null", access=AccessFs.READ_FILE | AccessFs.WRITE_FILE)
        ruleset.add_path_rule(allowance.readable, access=read)
        ruleset.allow_read_write(allowance.writable)
        ruleset.apply()
    except (LandlockError, OSError):
        return False
    return True


def _seccomp() -> bool:
    try:
        import pyseccomp
    except (ImportError, OSError, RuntimeError):
        return False
    denied = pyseccomp.ERRNO(errno.EPERM)
    try:
        rules = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
        for name in FORBIDDEN:
            with contextlib.suppress(ValueError, OSError):  # not known on this architecture
                rules.add_rule(denied, name)
        own = os.getpid()
        for name in ("kill", "tgkill"):
            rules.add_rule(denied, name, pyseccomp.Arg(0, pyseccomp.NE, own))
        rules.add_rule(denied, "tkill")
        rules.add_rule(denied, "prctl", pyseccomp.Arg(0, pyseccomp.EQ, PR_SET_PDEATHSIG))
        rules.add_rule(denied, "clone", pyseccomp.Arg(0, pyseccomp.MASKED_EQ, CLONE_THREAD, 0))
        # glibc falls back to clone, whose flags can be looked at.
        rules.add_rule(pyseccomp.ERRNO(errno.ENOSYS), "clone3")
        rules.load()
    except (OSError, RuntimeError, ValueError):
        return False
    return True


def missing(layers: Sequence[str]) -> list[str]:
    """The layers that are not active."""
    return [name for name in ALL_LAYERS if name not in layers]
