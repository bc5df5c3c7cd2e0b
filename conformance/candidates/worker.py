"""The candidate's side of a Session: opens the target, builds, calls, differentiates; answers in frames.

Run as ``python -m triu.conformance.candidates.worker FD`` it serves a socket until that closes.  In the
same process :class:`Worker` is used directly, over the same encoder.  Operations: ``open``, ``build``,
``calls``, ``vjp``, ``sensitivities``, ``parameters``, ``load``, ``state``; a Remote argument calls back
(``callback`` frames).
"""

from __future__ import annotations

import contextlib
import inspect
import io
import linecache
import os
import random
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from . import discover, importing, settings, wire
from .arrays import (
    by_autograd,
    by_differences,
    empty_is_nan,
    fill_uninitialised,
    frozen,
    is_lazy,
    kind_of,
    parameters_of,
)
from .proxy import StandIn

MAX_YIELDED = 10_000

Ask = Callable[[dict[str, Any], list[bytes]], tuple[dict[str, Any], bytes]]


class Worker:
    """Holds the candidate's objects and performs operations on them, one at a time."""

    def __init__(self, ask: Ask | None = None) -> None:
        self._ask = ask
        # What ends a call and not the worker; a process of its own has no one who presses Ctrl-C.
        self.caught: tuple[type[BaseException], ...] = (Exception, SystemExit)
        self._modules: dict[str, Any] = {}
        self._handles: list[Any] = []
        self._first: dict[int, frozenset[str]] = {}  # the arrays of what is no module, before any call
        self._own: frozenset[str] = frozenset()
        self._constants: dict[int, tuple[type, dict[str, Any]]] = {}
        self._live: dict[str, Any] = {}
        self._roots: tuple[str, ...] = ()
        self._device = ""
        self._frame: list[tuple[Any, list[Any], dict[str, Any]] | None] = []  # what its calls came to

    @property
    def device(self) -> str:
        """The torch device that was asked for."""
        return self._device or "cpu"

    def provide(self, name: str, value: Any) -> None:
        """In the same process: make a live object known under a name of its own."""
        self._live[name] = value

    def handle(self, header: Mapping[str, Any], body: bytes) -> tuple[dict[str, Any], list[bytes]]:
        """Answer one request; what the candidate raises becomes an ``error`` in the answer."""
        buffers: list[bytes] = []
        try:
            operation = getattr(self, "_do_" + str(header.get("op")))
            call = header.get("call")
            with self._as_built(call["handle"]) if call else contextlib.nullcontext():
                answer = operation(header, body, buffers)
        except importing.ImportFailed as error:
            answer = {"error": self._report(error.cause, importing=error.name)}
        except self.caught as error:
            answer = {"error": self._report(error)}
        return {"id": header.get("id"), **answer}, buffers

    # operations

    def _do_open(self, header: Mapping[str, Any], body: bytes, buffers: list[bytes]) -> dict[str, Any]:
        target = header["target"]
        self._device = header.get("device", "")
        if self._device:
            import torch

            try:
                torch.empty(0, device=self._device)
            except (RuntimeError, AssertionError) as error:
                return {"error": {"type": "no such device", "message": f"--device {self._device}: {error}"}}
        if target["kind"] == "live":
            entries = []
            for name, value in self._live.items():
                entry = discover.describe_object(f"live:{name}", name, value, set())
                if entry is not None:
                    entries.append({**entry, "own": True, "named": True})
            return {"objects": entries, "failed": [], "versions": _versions()}
        self._roots = (str(Path(target["path"]).resolve()),) if "path" in target else ()
        if "path" in target and target["kind"] == "file":
            self._roots = (str(Path(target["path"]).resolve().parent),)
        modules, failed = importing.open_target(target)
        self._modules.update(modules)
        self._own = frozenset(importing.own_modules(target, modules))
        entries = discover.describe(modules, set(self._own), list(header.get("named", ())))
        return {
            "objects": entries,
            "failed": [self._report(f.cause, importing=f.name) for f in failed],
            "versions": _versions(),
        }

    def _do_build(self, header: Mapping[str, Any], body: bytes, buffers: list[bytes]) -> dict[str, Any]:
        value = self._object(header["path"])
        torch = sys.modules.get("torch")
        random.seed(0)
        np.random.seed(0)  # weights that a constructor draws, and tokens, are the same each time
        if torch is not None:
            torch.manual_seed(0)
        if isinstance(value, type) or header.get("called"):
            arguments = self._positional(value, [wire.decode(a, body) for a in header.get("args", ())])
            named = {k: self._materialise(wire.decode(v, body)) for k, v in header.get("kwargs", {}).items()}
            home, (named, constants) = value, settings.filled(value, named, self._own)
            with settings.constants_set(home, constants, self._own), empty_is_nan(torch):
                value = value(*arguments, **named)
            fill_uninitialised(value, torch)
            if constants:
                self._constants[len(self._handles)] = (home, constants)
        if hasattr(value, "eval") and hasattr(value, "parameters"):
            value.eval()
        if header.get("double"):
            value = value.double()
        if self._device and hasattr(value, "parameters") and hasattr(value, "to"):
            value = value.to(self._device)
        if torch is None or not isinstance(value, torch.nn.Module):
            self._first[len(self._handles)] = frozenset(name for name, *_ in parameters_of(value, True))
        self._handles.append(value)
        return {"handle": len(self._handles) - 1, "type": type(value).__qualname__}

    def _do_calls(self, header: Mapping[str, Any], body: bytes, buffers: list[bytes]) -> dict[str, Any]:
        answers = []
        self._frame = []
        for number, call in enumerate(header["calls"]):
            try:
                with self._as_built(call["handle"]):
                    answers.append(self._call(call, body, buffers))
            except self.caught as error:
                answers.append({"error": self._report(error)})
            self._frame += [None] * (number + 1 - len(self._frame))
        self._frame = []
        return {"answers": answers}

    def _do_vjp(self, header: Mapping[str, Any], body: bytes, buffers: list[bytes]) -> dict[str, Any]:
        """Pull a gradient back: the result at ``pick`` against a cotangent.

        With respect to the arguments ``wrt`` and, after them, the object's ``parameters``.
        """
        import torch

        function, args, kwargs, value = self._prepare(header["call"], body)
        wanted = [args[name] if isinstance(name, int) else kwargs[name] for name in header["wrt"]]
        for tensor in wanted:
            tensor.requires_grad_(True)
        if header.get("parameters"):
            known = {name: tensor for name, _, _, tensor in parameters_of(value)}
            wanted += [known[name] for name in header["parameters"]]
        with frozen(value, header["call"].get("frozen", ())):
            result = _inside(function(*args, **kwargs), header["pick"])
        cotangent = self._materialise(wire.decode(header["cotangent"], body))
        if not result.requires_grad:
            return {"connected": False, "gradients": []}
        # A scalar, since autograd.grad with a cotangent imports half a second of symbolic algebra.
        scalar = (result * cotangent.to(result.dtype)).sum()
        gradients = torch.autograd.grad(scalar, wanted, allow_unused=True)
        filled = [torch.zeros_like(t) if g is None else g for t, g in zip(wanted, gradients, strict=True)]
        return {"connected": True, "gradients": [wire.encode(g, buffers) for g in filled]}

    def _do_parameters(self, header: Mapping[str, Any], body: bytes, buffers: list[bytes]) -> dict[str, Any]:
        value = self._handles[header["handle"]]
        first = self._first.get(header["handle"])
        found, places = [], {}
        for name, _owner, _key, tensor in parameters_of(value, bool(header.get("repeated"))):
            if first and name not in first:
                continue  # a call left it behind
            pointer = (
                tensor.data_ptr() if hasattr(tensor, "data_ptr") else tensor.__array_interface__["data"][0]
            )
            alias = places.setdefault(pointer, name)
            found.append(
                {
                    "name": name,
                    "trainable": bool(getattr(tensor, "requires_grad", False)),
                    "kind": kind_of(_owner, _key, tensor),
                    "alias": alias if alias != name else "",
                    "value": wire.encode(tensor, buffers),
                }
            )
        return {"parameters": found}

    def _do_sensitivities(
        self, header: Mapping[str, Any], body: bytes, buffers: list[bytes]
    ) -> dict[str, Any]:
        """How ⟨result, cotangent⟩ depends on every named parameter, for each of several cotangents.

        By autograd where it connects them, otherwise by central differences, element by element.
        """
        function, args, kwargs, value = self._prepare(header["call"], body)
        known = {name: tensor for name, _, _, tensor in parameters_of(value)}
        tensors = [known[name] for name in header["names"]]
        cotangents = wire.decode(header["cotangents"], body).values  # (K, *result)

        def result() -> Any:
            return _inside(function(*args, **kwargs), header["pick"])

        gradients = by_autograd(tensors, result, cotangents) or by_differences(tensors, result, cotangents)
        return {"gradients": [wire.encode(gradient, buffers) for gradient in gradients]}

    def _do_load(self, header: Mapping[str, Any], body: bytes, buffers: list[bytes]) -> dict[str, Any]:
        value = self._handles[header["handle"]]
        new = {name: wire.decode(item, body).values for name, item in header["values"].items()}
        known = parameters_of(value)
        missing = sorted(new.keys() - {name for name, *_ in known})
        if missing:
            raise KeyError(f"no parameter {', '.join(missing)}")
        for name, _owner, _key, tensor in known:
            if name in new:
                if hasattr(tensor, "data_ptr"):
                    import torch

                    with torch.no_grad():
                        tensor.copy_(torch.from_numpy(new[name]).to(tensor.dtype))
                else:
                    tensor[...] = new[name]
        return {}

    def _do_state(self, header: Mapping[str, Any], body: bytes, buffers: list[bytes]) -> dict[str, Any]:
        """What an object saves, by name; loaded into another one where that is asked for."""
        saved = getattr(self._handles[header["handle"]], "state_dict", None)
        if not callable(saved):
            return {"names": None}
        state: Any = saved()
        if "into" in header:
            self._handles[header["into"]].load_state_dict(state, strict=True)
        return {"names": [str(name)[: wire.MAX_TEXT] for name in state]}

    # helpers

    def _object(self, path: str) -> Any:
        module, _, dotted = path.partition(":")
        if module == "live":
            return self._live[dotted]
        return discover.resolve(self._modules[module], dotted)

    def _prepare(self, call: Mapping[str, Any], body: bytes) -> tuple[Any, list[Any], dict[str, Any], Any]:
        value = self._handles[call["handle"]]
        function = getattr(value, call["method"]) if call.get("method") else value
        args = self._positional(function, [wire.decode(item, body) for item in call.get("args", ())])
        kwargs = {
            name: self._materialise(wire.decode(item, body)) for name, item in call.get("kwargs", {}).items()
        }
        return function, args, kwargs, value

    def _as_built(self, handle: int) -> contextlib.AbstractContextManager[None]:
        """The constants of the candidate's modules as they were when an object was built."""
        home, constants = self._constants.get(handle, (None, {}))
        return settings.constants_set(home, constants, self._own)

    def _positional(self, function: Any, values: list[Any]) -> list[Any]:
        """Positional arguments, with the parameter's own default where one was left out."""
        if wire.DEFAULT in [value for value in values if isinstance(value, wire.Opaque)]:
            parameters = list(inspect.signature(function).parameters.values())
            values = [
                parameter.default if isinstance(value, wire.Opaque) else value
                for value, parameter in zip(values, parameters, strict=False)
            ]
        return [self._materialise(value) for value in values]

    def _call(self, call: Mapping[str, Any], body: bytes, buffers: list[bytes]) -> dict[str, Any]:
        function, args, kwargs, value = self._prepare(call, body)
        torch = sys.modules.get("torch")
        if call.get("seed") is not None:
            _seed(int(call["seed"]), torch)
        elif is_lazy(value):  # weights that are drawn in the first call are the same ones each time, too
            _seed(0, torch)
        training = bool(call.get("train"))
        if training and hasattr(value, "train"):
            value.train()
        gradients = torch.set_grad_enabled(bool(call.get("grad"))) if torch else contextlib.nullcontext()
        try:
            with gradients, frozen(value, call.get("frozen", ())):
                result = function(*args, **kwargs)
                if inspect.isgenerator(result):  # it is a list to the checker, as far as it goes
                    result = list(islice(result, MAX_YIELDED))
        finally:
            if training and hasattr(value, "eval"):
                value.eval()
        self._frame.append((result, args, kwargs))
        answer = {"result": wire.encode(result, buffers)}
        if call.get("return_inputs"):
            answer["inputs"] = wire.encode([args, kwargs], buffers)
        return answer

    def _materialise(self, value: Any) -> Any:
        """A decoded value as the candidate sees it: tensors, arrays, lists, stand-ins; always fresh."""
        if isinstance(value, wire.Array):
            if value.container == "torch":
                import torch

                tensor = torch.from_numpy(value.values)
                tensor = tensor.to(torch.bfloat16) if value.dtype == "bfloat16" else tensor
                return tensor.to(self._device) if self._device else tensor
            return value.values.tolist() if value.container == "list" else value.values
        if isinstance(value, wire.Remote):
            return StandIn(value, self)
        if isinstance(value, wire.Layer):
            return _layer(value)
        if isinstance(value, wire.Random):
            return _generator(value)
        if isinstance(value, wire.Earlier):
            return self._earlier(value)
        if isinstance(value, wire.Handle):
            return self._handles[value.number]
        if isinstance(value, tuple | list):
            return type(value)(self._materialise(item) for item in value)
        if isinstance(value, dict):
            return {name: self._materialise(item) for name, item in value.items()}
        return value

    def _earlier(self, value: wire.Earlier) -> Any:
        """What an earlier call of this frame returned or was given, itself and not a copy."""
        known = self._frame[-value.back] if 0 < value.back <= len(self._frame) else None
        if known is None:
            raise RuntimeError("the earlier call that this one continues gave no result")
        result, _, kwargs = known
        return _inside(kwargs[value.argument] if value.argument else result, value.path)

    def ask(self, name: str, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call back: what a stand-in's method was given goes to the checker, its answer comes back."""
        if self._ask is None:
            raise RuntimeError("no one answers callbacks here")
        buffers: list[bytes] = []
        header = {
            "callback": {
                "name": name,
                "method": method,
                "args": [wire.encode(a, buffers) for a in args],
                "kwargs": {k: wire.encode(v, buffers) for k, v in kwargs.items()},
            }
        }
        answer, body = self._ask(header, buffers)
        if "error" in answer:
            raise RuntimeError(str(answer["error"]))
        value = self._materialise(wire.decode(answer["value"], body))
        torch = sys.modules.get("torch")
        if (
            torch
            and isinstance(value, torch.Tensor)
            and value.is_floating_point()
            and torch.is_grad_enabled()
        ):
            value.requires_grad_()
        return value

    def _report(self, error: BaseException, importing: str = "") -> dict[str, Any]:
        """An exception as plain data: type, message, and the last line of the candidate's own code."""
        if isinstance(error, MemoryError):  # what took it all must go before anything can be said of it
            traceback.clear_frames(error.__traceback__)
        where: dict[str, Any] = {}
        for frame in traceback.extract_tb(error.__traceback__):
            file = (
                str(Path(frame.filename).resolve()) if not frame.filename.startswith("<") else frame.filename
            )
            if any(file.startswith(root) for root in self._roots) and "site-packages" not in file:
                linecache.checkcache(frame.filename)
                where = {"file": Path(file).name, "line": frame.lineno, "code": (frame.line or "")[:200]}
        if isinstance(error, SyntaxError) and error.filename:
            where = {
                "file": Path(error.filename).name,
                "line": error.lineno,
                "code": (error.text or "").strip()[:200],
            }
        try:
            message = str(error)
        except Exception:
            message = "(its message cannot be shown)"
        name = type(error).__name__
        return {"type": name, "message": message[:600], "importing": importing, **where}


def _seed(seed: int, torch: Any) -> None:
    """Seed the generators that code draws from if it has none of its own."""
    random.seed(seed)
    np.random.seed(seed)
    if torch is not None:
        torch.manual_seed(seed)


def _generator(wanted: wire.Random) -> Any:
    """A generator of random numbers of PyTorch, NumPy or Python."""
    if wanted.container == "torch":
        import torch

        return torch.Generator().manual_seed(wanted.seed)
    return np.random.default_rng(wanted.seed) if wanted.container == "numpy" else random.Random(wanted.seed)


def _layer(wanted: wire.Layer) -> Any:
    """A linear layer of PyTorch, or its like in NumPy."""
    if wanted.container == "torch":
        import torch

        return torch.nn.Linear(wanted.size, wanted.size)
    return PlainLayer(wanted.size)


class PlainLayer:
    """x ↦ x Wᵀ + b in NumPy."""

    def __init__(self, size: int) -> None:
        self.weight = np.random.normal(0.0, size**-0.5, (size, size))
        self.bias = np.zeros(size)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return x @ self.weight.T + self.bias


def _inside(value: Any, path: Iterable[str | int]) -> Any:
    """The part of a value to which a path of indices, keys and fields leads."""
    for step in path:
        is_field = isinstance(step, str) and not isinstance(value, Mapping)
        value = getattr(value, str(step)) if is_field else value[step]
    return value


def _versions() -> dict[str, str]:
    versions = {"python": ".".join(map(str, sys.version_info[:3])), "numpy": np.__version__}
    torch = sys.modules.get("torch")
    if torch is not None:
        versions["torch"] = str(torch.__version__)
    return versions


def serve(descriptor: int) -> None:
    """Answer frames on a socket until it closes.  Reads and writes it as a file: sockets may be forbidden."""
    incoming = io.BufferedReader(io.FileIO(descriptor), 1 << 16)
    outgoing = io.BufferedWriter(io.FileIO(os.dup(descriptor), "w"), 1 << 16)

    def send(header: dict[str, Any], buffers: list[bytes]) -> None:
        outgoing.write(wire.pack(header, buffers))
        outgoing.flush()

    def ask(header: dict[str, Any], buffers: list[bytes]) -> tuple[dict[str, Any], bytes]:
        send(header, buffers)
        answer = wire.read_frame(incoming)
        if answer is None:
            raise SystemExit(0)
        return answer

    worker = Worker(ask)
    worker.caught = (BaseException,)
    while (frame := wire.read_frame(incoming)) is not None:
        send(*worker.handle(*frame))


if __name__ == "__main__":
    fd = int(sys.argv[1])
    for library in sys.argv[2:]:
        with contextlib.suppress(ImportError):
            __import__(library)
    sys.argv = ["candidate"]
    serve(fd)
