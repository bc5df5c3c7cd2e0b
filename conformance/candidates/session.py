"""A Session: the checker's only way to a candidate.  Plain arrays in, plain arrays out, every call logged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from . import wire
from .errors import FATAL, CallFailed, CandidateError, OpenError, ProtocolError, WorkerLost
from .target import Target
from .transport import InProcess, Subprocess, Transport

IMPORT_SECONDS = 60.0
CALL_SECONDS = 20.0
MAX_HANGS, MAX_LOSSES = 2, 4  # of one object: after so many it is not called again

Responder = Callable[[str, str, Sequence[Any], Mapping[str, Any]], Any]


@dataclass(frozen=True)
class Built:
    """An object as the candidate's side should have it: a path, and constructor arguments for a class."""

    path: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    double: bool = False
    variant: str = ""  # whose object it is, and which: keeps it apart from others of the same arguments
    called: bool = False  # the object is what a function returns for the arguments

    @property
    def key(self) -> str:
        return repr(
            (self.path, self.args, sorted(self.kwargs.items()), self.double, self.variant, self.called)
        )


@dataclass(frozen=True)
class Call:
    """One call of an object, by keyword except for what the candidate takes by position only.

    An argument may be a :class:`wire.Earlier` (what an earlier call of the frame returned), a
    :class:`Built` (another object of the candidate), or a list of such: none of them crosses to the checker.
    """

    built: Built
    method: str = ""
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    train: bool = False
    return_inputs: bool = False
    follows: bool = False  # it continues the call before it and means nothing without
    grad: bool = False  # with gradients recorded; a stand-in's numbers then ask for them
    frozen: tuple[str, ...] = ()  # parameters of the object that ask for no gradient meanwhile
    seed: int | None = None  # seeds the global generators first, so that draws can be told again


@dataclass(frozen=True)
class Logged:
    """An entry of the log: the call and what it came to."""

    call: Call
    result: Any = None
    error: CallFailed | None = None


class Session:
    """Open a target and perform operations on it.

    The log of operations is the one source of the snippet in a report.  After a crash or a time-out the
    worker is started again on the next call and objects are built anew.
    """

    def __init__(
        self,
        target: Target,
        transport: Transport,
        *,
        named: Sequence[str] = (),
        import_seconds: float = IMPORT_SECONDS,
        call_seconds: float = CALL_SECONDS,
        device: str = "",
    ) -> None:
        self.target = target
        self.log: list[Logged] = []
        self._transport = transport
        self._named = list(named)
        self._import_seconds, self._call_seconds = import_seconds, call_seconds
        self._device = device
        self._handles: dict[str, int] = {}
        self._generation = -1
        self._count = 0
        self._lost: dict[str, list[CallFailed]] = {}  # by path, the calls after which the worker was gone
        self.description: dict[str, Any] = {}

    def open(self) -> dict[str, Any]:
        """Import the target; returns its objects as plain data.

        Raises:
            OpenError: importing raised, ended the process, or took too long.
        """
        header = {
            "op": "open",
            "target": dict(self.target.wire),
            "named": self._named,
            "device": self._device,
        }
        try:
            answer, _ = self._request(header, [], self._import_seconds)
        except CallFailed as error:
            raise OpenError(f"{self.target.text}: importing it failed: {error}", error.kind) from None
        if "error" in answer:
            raise OpenError(f"{self.target.text}: importing it failed: {describe_error(answer['error'])}")
        if self.target.wire["kind"] == "command":
            try:
                with _well_formed():
                    answer = {**answer, "objects": [completed(entry) for entry in answer["objects"]]}
            except ProtocolError as error:
                raise OpenError(f"{self.target.text}: {error}", error.kind) from None
        self._generation = self._transport.generation
        self._handles.clear()
        self.description = answer
        return answer

    def build(self, built: Built) -> int:
        """The handle of an object, built once per worker.

        Raises:
            CallFailed: the constructor raised or took too long.
        """
        if self._generation != self._transport.generation:
            self._reopen()
        handle = self._handles.get(built.key)
        if handle is None:
            buffers: list[bytes] = []
            header = {
                "op": "build",
                "path": built.path,
                "args": [wire.encode(a, buffers) for a in built.args],
                "kwargs": {k: wire.encode(v, buffers) for k, v in built.kwargs.items()},
                "double": built.double,
                "called": built.called,
            }
            answer, _ = self._request(header, buffers, self._call_seconds)
            _raise(answer)
            with _well_formed():
                handle = self._handles[built.key] = int(answer["handle"])
        return handle

    def drop(self, built: Built) -> None:
        """Have the object built anew when it is needed next, with the weights that it has at first."""
        self._handles.pop(built.key, None)

    def holds(self, built: Built) -> bool:
        """Whether the present worker has the object already, with whatever was loaded into it."""
        return self._generation == self._transport.generation and built.key in self._handles

    def calls(self, calls: Sequence[Call], responder: Responder | None = None) -> list[Any]:
        """Several calls in one frame; each result is a decoded value or a CallFailed (not raised)."""
        path = calls[-1].built.path if calls else ""
        try:
            self._still_called(path)
            buffers: list[bytes] = []
            header = {"op": "calls", "calls": [self._encode_call(call, buffers) for call in calls]}
        except CallFailed as error:  # an object could not be built
            self.log += [Logged(call, error=error) for call in calls]
            return [error for _ in calls]
        try:
            answer, body = self._request(header, buffers, self._call_seconds, responder)
            _raise(answer)
            with _well_formed():
                results = [self._result(item, body) for item in answer["answers"]]
            if len(results) != len(calls):
                raise ProtocolError("the worker answered another number of calls")
        except CallFailed as error:
            if error.kind in FATAL:
                self._lost.setdefault(path, []).append(error)
            results = [error for _ in calls]
        for call, result in zip(calls, results, strict=True):
            failed = result if isinstance(result, CallFailed) else None
            self.log.append(Logged(call, None if failed else result, failed))
        return results

    def call(self, call: Call, responder: Responder | None = None) -> Any:
        """One call.  Raises CallFailed where the candidate did not return."""
        result = self.calls([call], responder)[0]
        if isinstance(result, CallFailed):
            raise result
        return result

    def vjp(
        self,
        call: Call,
        wrt: Sequence[str | int],
        pick: Sequence[str | int],
        cotangent: wire.Array,
        parameters: Sequence[str] = (),
    ) -> list[wire.Array] | None:
        """Gradients of the picked part of the result against a cotangent; None if nothing connects them.

        With respect to arguments, and after them to parameters by name.
        """
        buffers: list[bytes] = []
        header = {
            "op": "vjp",
            "call": self._encode_call(call, buffers),
            "wrt": list(wrt),
            "parameters": list(parameters),
            "pick": list(pick),
            "cotangent": wire.encode(cotangent, buffers),
        }
        answer, body = self._request(header, buffers, self._call_seconds)
        self.log.append(Logged(call))
        _raise(answer)
        with _well_formed():
            if not answer["connected"]:
                return None
            return [wire.decode(item, body) for item in answer["gradients"]]

    def sensitivities(
        self, call: Call, pick: Sequence[str | int], names: Sequence[str], cotangents: wire.Array
    ) -> list[Any]:
        """d⟨result, cotangent⟩/dp for each named parameter p: arrays (K, *shape), K cotangents.

        Raises:
            CallFailed: the call raised, or its result has another shape than the cotangents.
        """
        buffers: list[bytes] = []
        header = {
            "op": "sensitivities",
            "call": self._encode_call(call, buffers),
            "pick": list(pick),
            "names": list(names),
            "cotangents": wire.encode(cotangents, buffers),
        }
        answer, body = self._request(header, buffers, 60.0)
        _raise(answer)
        with _well_formed():
            return [wire.decode(item, body).values for item in answer["gradients"]]

    def parameters(self, built: Built, *, repeated: bool = False) -> list[dict[str, Any]]:
        """Every floating-point array of an object: name, ``value`` (Array), ``trainable``, ``alias``, ``kind``.

        ``kind`` is ``parameter``, ``buffer`` (registered as one), or ``plain`` (in an attribute, list or dict).
        With ``repeated`` a part that stands in several places is listed in each of them.
        """
        header = {"op": "parameters", "handle": self.build(built), "repeated": repeated}
        answer, body = self._request(header, [], self._call_seconds)
        _raise(answer)
        with _well_formed():
            return [{**item, "value": wire.decode(item["value"], body)} for item in answer["parameters"]]

    def load(self, built: Built, values: Mapping[str, Any]) -> None:
        """Overwrite parameters by name (arrays of the same shapes)."""
        buffers: list[bytes] = []
        encoded = {name: wire.encode(value, buffers) for name, value in values.items()}
        answer, _ = self._request(
            {"op": "load", "handle": self.build(built), "values": encoded}, buffers, 60.0
        )
        _raise(answer)

    def state(self, built: Built, into: Built | None = None) -> list[str] | None:
        """The names that an object saves (its ``state_dict``), None where it saves nothing.

        With ``into`` what is saved is loaded into that other object, strictly.
        """
        header: dict[str, Any] = {"op": "state", "handle": self.build(built)}
        if into is not None:
            header["into"] = self.build(into)
        answer, _ = self._request(header, [], self._call_seconds)
        _raise(answer)
        with _well_formed():
            names = answer["names"]
            return None if names is None else [str(name) for name in names]

    @property
    def generation(self) -> int:
        """Which worker it is; another one has built its objects anew."""
        return self._transport.generation

    def renew(self) -> None:
        """End the worker; the next call is the first one of another."""
        self._transport.close()
        self._generation = -1
        self._handles.clear()

    def close(self) -> None:
        self._transport.close()

    # helpers

    def _still_called(self, path: str) -> None:
        """Raises what a call raised before, where an object has ended its worker too often: each takes its time."""
        lost = self._lost.get(path, [])
        hung = [error for error in lost if error.kind == "time-out"]
        if len(hung) >= MAX_HANGS or len(lost) >= MAX_LOSSES:
            raise (hung or lost)[-1]

    def _reopen(self) -> None:
        try:
            self.open()
        except OpenError as error:
            raise WorkerLost(f"the worker could not be started again: {error}") from None

    def _encode_call(self, call: Call, buffers: list[bytes]) -> dict[str, Any]:
        return {
            "handle": self.build(call.built),
            "method": call.method,
            "args": [wire.encode(self._placed(a), buffers) for a in call.args],
            "kwargs": {k: wire.encode(self._placed(v), buffers) for k, v in call.kwargs.items()},
            "train": call.train,
            "return_inputs": call.return_inputs,
            "grad": call.grad,
            "frozen": list(call.frozen),
            "seed": call.seed,
        }

    def _placed(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._placed(item) for item in value]
        return wire.Handle(self.build(value)) if isinstance(value, Built) else value

    def _result(self, item: Mapping[str, Any], body: bytes) -> Any:
        try:
            with _well_formed():
                if "error" in item:
                    return CandidateError(describe_error(item["error"]), item["error"])
                result = wire.decode(item["result"], body)
                return (result, wire.decode(item["inputs"], body)) if "inputs" in item else result
        except ProtocolError as error:
            return error

    def _request(
        self, header: dict[str, Any], buffers: list[bytes], timeout: float, responder: Responder | None = None
    ) -> tuple[dict[str, Any], bytes]:
        self._count += 1
        header = {**header, "id": self._count}

        def on_callback(callback: Mapping[str, Any], body: bytes) -> tuple[dict[str, Any], list[bytes]]:
            assert responder is not None
            out: list[bytes] = []
            try:
                args = [wire.decode(a, body) for a in callback["args"]]
                kwargs = {k: wire.decode(v, body) for k, v in callback["kwargs"].items()}
                value = responder(callback["name"], callback["method"], args, kwargs)
            except Exception as error:
                return {"error": f"{type(error).__name__}: {error}"}, []
            return {"value": wire.encode(value, out)}, out

        try:
            return self._transport.request(header, buffers, timeout, on_callback if responder else None)
        except CallFailed:
            self._generation = -1
            self._handles.clear()
            raise


def open_session(
    target: Target,
    *,
    in_process: bool = False,
    live: Mapping[str, Any] | None = None,
    named: Sequence[str] = (),
    transport: Transport | None = None,
    **options: Any,
) -> Session:
    """A session on a target, not yet opened: in a worker process by default.

    ``live`` (in the same process only) gives objects by name instead of a target to import.
    """
    if transport is None:
        transport = InProcess(live) if in_process or live is not None else Subprocess()
    if live is not None:
        target = replace(target, wire={"kind": "live"})
    return Session(target, transport, named=named, **options)


def completed(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The description of an object by a program that is not Python, which may leave out most of it."""
    name = str(entry["name"])
    blank = {
        "path": f"program:{name}", "kind": "function", "own": True, "named": True, "defined_as": name,
        "doc": "", "file_doc": "", "frameworks": ["numpy"], "methods": {}, "module_class": False, "line": 0,
    }  # fmt: skip

    def parameter(given: Any) -> dict[str, Any]:
        given = {"name": given} if isinstance(given, str) else given
        default = {"kind": "POSITIONAL_OR_KEYWORD", "has_default": "default" in given, "default": None}
        return {**default, "annotation": "", **given}

    found = {**blank, **entry, "params": [parameter(p) for p in entry.get("params", ())]}
    if "init" in entry:
        found["init"] = [parameter(p) for p in entry["init"]]
    found["methods"] = {m: [parameter(p) for p in ps] for m, ps in dict(found["methods"]).items()}
    return found


def _raise(answer: Mapping[str, Any]) -> None:
    if "error" in answer:
        with _well_formed():
            raise CandidateError(describe_error(answer["error"]), answer["error"])


@contextmanager
def _well_formed() -> Iterator[None]:
    """What is read from an answer may be anything; what is not of the protocol's form is told as that."""
    try:
        yield
    except CallFailed:
        raise
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        raise ProtocolError(f"the worker broke the protocol: {type(error).__name__}: {error}") from None


def describe_error(error: Mapping[str, Any]) -> str:
    """``TypeError: … (submission.py, line 12: the code)``."""
    message = str(error.get("message", "")).strip()
    text = f"{error.get('type', 'Error')}: {message}" if message else str(error.get("type", "Error"))
    if error.get("line"):
        place = f"{error.get('file')}, line {error['line']}"
        code = f": {error['code']}" if error.get("code") else ""
        text = text.removesuffix(f" ({place})") + f" ({place}{code})"
    elif error.get("importing"):
        text += f" (while importing {error['importing']})"
    return text
