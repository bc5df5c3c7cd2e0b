"""The candidate's side of a Session: opens the target, builds, calls, differentiates; answers in frames.

Run as ``python -m triu.conformance.candidates.worker FD`` it serves a socket until that closes.  In the
same process :class:`Worker` is used directly, over the same encoder.  Operations: ``open``, ``build``,
``calls``, ``vjp``, ``parameters``, ``load``; a Remote argument calls back (``callback`` frames).
"""

from __future__ import annotations

import contextlib
import inspect
import linecache
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from . import discover, wire

Ask = Callable[[dict[str, Any], list[bytes]], tuple[dict[str, Any], bytes]]


class Worker:
    """Holds the candidate's objects and performs operations on them, one at a time."""

    def __init__(self, ask: Ask | None = None) -> None:
        self._ask = ask
        self._modules: dict[str, Any] = {}
        self._handles: list[Any] = []
        self._live: dict[str, Any] = {}
        self._roots: tuple[str, ...] = ()
        self._device = ""

    def provide(self, name: str, value: Any) -> None:
        """In the same process: make a live object known under a name of its own."""
        self._live[name] = value

    def handle(self, header: Mapping[str, Any], body: bytes) -> tuple[dict[str, Any], list[bytes]]:
        """Answer one request; what the candidate raises becomes an ``error`` in the answer."""
        buffers: list[bytes] = []
        try:
            operation = getattr(self, "_do_" + str(header.get("op")))
            answer = operation(header, body, buffers)
        except discover.ImportFailed as error:
            answer = {"error": self._report(error.cause, importing=error.name)}
        except (Exception, SystemExit) as error:
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
        modules, failed = discover.open_target(target)
        self._modules.update(modules)
        entries = discover.describe(
            modules, discover.own_modules(target, modules), list(header.get("named", ()))
        )
        return {
            "objects": entries,
            "failed": [self._report(f.cause, importing=f.name) for f in failed],
            "versions": _versions(),
        }

    def _do_build(self, header: Mapping[str, Any], body: bytes, buffers: list[bytes]) -> dict[str, Any]:
        value = self._object(header["path"])
        if isinstance(value, type):
            torch = sys.modules.get("torch")
            np.random.seed(0)  # a constructor that draws its weights draws the same ones each time
            if torch is not None:
                torch.manual_seed(0)
            arguments = self._positional(value, [wire.decode(a, body) for a in header.get("args", ())])
            named = {k: wire.decode(v, body) for k, v in header.get("kwargs", {}).items()}
            value = value(*arguments, **named)
        if hasattr(value, "eval") and hasattr(value, "parameters"):
            value.eval()
        if header.get("double"):
            value = value.double()
        if self._device and hasattr(value, "parameters") and hasattr(value, "to"):
            value = value.to(self._device)
        self._handles.append(value)
        return {"handle": len(self._handles) - 1, "type": type(value).__qualname__}

    def _do_calls(self, header: Mapping[str, Any], body: bytes, buffers: list[bytes]) -> dict[str, Any]:
        answers = []
        for call in header["calls"]:
            try:
                answers.append(self._call(call, body, buffers))
            except (Exception, SystemExit) as error:
                answers.append({"error": self._report(error)})
        return {"answers": answers}

    def _do_vjp(self, header: Mapping[str, Any], body: bytes, buffers: list[bytes]) -> dict[str, Any]:
        """Pull a gradient back: the result at ``pick`` against a cotangent, with respect to ``wrt``."""
        import torch

        function, args, kwargs, _ = self._prepare(header["call"], body)
        wanted = {}
        for name in header["wrt"]:
            tensor = args[name] if isinstance(name, int) else kwargs[name]
            tensor.requires_grad_(True)
            wanted[name] = tensor
        result = function(*args, **kwargs)
        for step in header["pick"]:
            result = (
                getattr(result, step)
                if isinstance(step, str) and not isinstance(result, dict)
                else result[step]
            )
        cotangent = self._materialise(wire.decode(header["cotangent"], body))
        if not result.requires_grad:
            return {"connected": False, "gradients": []}
        # A scalar, since autograd.grad with a cotangent imports half a second of symbolic algebra.
        scalar = (result * cotangent.to(result.dtype)).sum()
        gradients = torch.autograd.grad(scalar, list(wanted.values()), allow_unused=True)
        filled = [
            torch.zeros_like(t) if g is None else g for t, g in zip(wanted.values(), gradients, strict=True)
        ]
        return {"connected": True, "gradients": [wire.encode(g, buffers) for g in filled]}

    def _do_parameters(self, header: Mapping[str, Any], body: bytes, buffers: list[bytes]) -> dict[str, Any]:
        value = self._handles[header["handle"]]
        found, places = [], {}
        for name, _owner, _key, tensor in _parameters_of(value):
            pointer = (
                tensor.data_ptr() if hasattr(tensor, "data_ptr") else tensor.__array_interface__["data"][0]
            )
            alias = places.setdefault(pointer, name)
            found.append(
                {
                    "name": name,
                    "trainable": bool(getattr(tensor, "requires_grad", False)),
                    "alias": alias if alias != name else "",
                    "value": wire.encode(tensor, buffers),
                }
            )
        return {"parameters": found}

    def _do_load(self, header: Mapping[str, Any], body: bytes, buffers: list[bytes]) -> dict[str, Any]:
        value = self._handles[header["handle"]]
        new = {name: wire.decode(item, body).values for name, item in header["values"].items()}
        known = _parameters_of(value)
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
        training = bool(call.get("train"))
        if training and hasattr(value, "train"):
            value.train()
        try:
            with torch.no_grad() if torch is not None else contextlib.nullcontext():
                result = function(*args, **kwargs)
        finally:
            if training and hasattr(value, "eval"):
                value.eval()
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
        if isinstance(value, tuple | list):
            return type(value)(self._materialise(item) for item in value)
        if isinstance(value, dict):
            return {name: self._materialise(item) for name, item in value.items()}
        return value

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
        return self._materialise(wire.decode(answer["value"], body))

    def _report(self, error: BaseException, importing: str = "") -> dict[str, Any]:
        """An exception as plain data: type, message, and the last line of the candidate's own code."""
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


class StandIn:
    """A model that is none: every method goes back to the checker.  Also callable, as ``forward``."""

    def __init__(self, remote: wire.Remote, worker: Worker) -> None:
        self._remote, self._worker = remote, worker
        self.training = False

    def __getattr__(self, method: str) -> Any:
        if method.startswith("_") or method not in self._remote.methods:
            raise AttributeError(
                f"the stand-in model has no {method!r}; it has {', '.join(self._remote.methods)}"
            )
        return lambda *args, **kwargs: self._worker.ask(self._remote.name, method, args, kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._worker.ask(self._remote.name, "forward", args, kwargs)

    def eval(self) -> StandIn:
        return self

    def train(self, mode: bool = True) -> StandIn:
        return self


def _parameters_of(value: Any) -> list[tuple[str, Any, Any, Any]]:
    """Trainable and plain arrays of an object wherever they are: registered, in lists, in attributes."""
    torch = sys.modules.get("torch")
    found: list[tuple[str, Any, Any, Any]] = []
    seen: set[int] = set()

    def is_array(item: Any) -> bool:
        if torch is not None and isinstance(item, torch.Tensor):
            return item.is_floating_point()
        return isinstance(item, np.ndarray) and item.dtype.kind == "f"

    def visit(item: Any, name: str, owner: Any, key: Any, depth: int) -> None:
        if depth > 12:
            return
        if is_array(item):
            found.append((name, owner, key, item))
            return
        if id(item) in seen:
            return
        if isinstance(item, list | tuple):
            seen.add(id(item))
            for index, child in enumerate(item):
                visit(child, f"{name}.{index}", item, index, depth + 1)
        elif isinstance(item, dict):
            seen.add(id(item))
            for child_name, child in item.items():
                visit(child, f"{name}.{child_name}", item, child_name, depth + 1)
        elif (
            hasattr(item, "__dict__")
            and not isinstance(item, type)
            and not callable(getattr(item, "__code__", None))
        ):
            seen.add(id(item))
            attributes = dict(vars(item))
            for group in ("_parameters", "_buffers", "_modules"):
                attributes.update(attributes.pop(group, None) or {})
            for child_name, child in attributes.items():
                if not child_name.startswith("_") or is_array(child):
                    visit(child, f"{name}.{child_name}" if name else child_name, item, child_name, depth + 1)

    visit(value, "", None, None, 0)
    return found


def _versions() -> dict[str, str]:
    versions = {"python": ".".join(map(str, sys.version_info[:3])), "numpy": np.__version__}
    torch = sys.modules.get("torch")
    if torch is not None:
        versions["torch"] = str(torch.__version__)
    return versions


def serve(descriptor: int) -> None:
    """Answer frames on a socket until it closes."""
    import socket

    connection = socket.socket(fileno=descriptor)
    stream = connection.makefile("rwb")

    def ask(header: dict[str, Any], buffers: list[bytes]) -> tuple[dict[str, Any], bytes]:
        stream.write(wire.pack(header, buffers))
        stream.flush()
        answer = wire.read_frame(stream)
        if answer is None:
            raise SystemExit(0)
        return answer

    worker = Worker(ask)
    while (frame := wire.read_frame(stream)) is not None:
        header, buffers = worker.handle(*frame)
        stream.write(wire.pack(header, buffers))
        stream.flush()


if __name__ == "__main__":
    fd = int(sys.argv[1])
    for library in sys.argv[2:]:
        with contextlib.suppress(ImportError):
            __import__(library)
    sys.argv = ["candidate"]
    serve(fd)
