"""The wire: length-prefixed frames of a JSON header and raw little-endian bytes.

Only plain values and arrays cross: no pickle, no object of the candidate.  A frame is::

    4 bytes  header length, big-endian
    8 bytes  body length, big-endian
    header   UTF-8 JSON; an array stands as {"$": "array", dtype, shape, at, container}
    body     the arrays' bytes, one after another

The worker imports this module too, so it depends on NumPy alone and finds torch only if it is loaded.
"""

from __future__ import annotations

import json
import math
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

PREFIX = struct.Struct(">IQ")
MAX_HEADER = 16 << 20
MAX_BODY = 512 << 20
MAX_DEPTH = 24
MAX_TEXT = 4000
DTYPES = frozenset(
    "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 float32 float64 bfloat16".split()
)


class WireError(ValueError):
    """Bytes that are no frame, or a value that may not cross."""


@dataclass(frozen=True)
class Array:
    """An array on its way: the values, their dtype by name, and what holds them on the candidate's side.

    ``container`` is ``torch``, ``numpy`` or ``list``.  bfloat16 has no NumPy dtype: ``values`` is float32.
    """

    values: np.ndarray
    dtype: str
    container: str = "numpy"


@dataclass(frozen=True)
class Opaque:
    """A value that does not cross: only the name of its type does."""

    type: str


DEFAULT = Opaque("triu: the parameter's own default")  # stands where a positional argument is left out


@dataclass(frozen=True)
class Earlier:
    """What an earlier call of the same frame returned, or was given: it never leaves the candidate's side.

    ``back`` counts calls backwards, ``path`` leads into the value; ``argument`` names a keyword argument of
    that call, and is empty for its result.
    """

    back: int
    path: tuple[str | int, ...] = ()
    argument: str = ""


@dataclass(frozen=True)
class Handle:
    """An object that was built on the candidate's side, as an argument."""

    number: int


@dataclass(frozen=True)
class Remote:
    """A stand-in: an object on the candidate's side whose methods come back to the checker.

    ``attributes`` are plain values that can be read from it, without asking the checker.
    """

    name: str
    methods: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return self.name  # as a snippet calls it


@dataclass(frozen=True)
class Layer:
    """A small layer with weights, made on the candidate's side, to be passed to what takes a module."""

    size: int
    container: str = "torch"


@dataclass(frozen=True)
class Random:
    """A generator of random numbers, made on the candidate's side: of ``torch``, ``numpy``, or Python's own."""

    seed: int
    container: str = "numpy"


def encode(value: Any, buffers: list[bytes], depth: int = 0) -> Any:
    """A value as JSON, its arrays' bytes appended to ``buffers``.  Unknown types become opaque."""
    if depth > MAX_DEPTH:
        return {"$": "opaque", "type": "nested too deeply"}
    if value is None or isinstance(value, bool | str):
        return value[:MAX_TEXT] if isinstance(value, str) else value
    if type(value) is int:
        return value if abs(value) < 1 << 63 else {"$": "opaque", "type": "int beyond 64 bits"}
    if type(value) is float:
        return value if math.isfinite(value) else {"$": "float", "value": repr(value)}
    if isinstance(value, Opaque):
        return {"$": "opaque", "type": value.type}
    if isinstance(value, Array):
        return _encode_array(value.values, value.dtype, value.container, buffers)
    if isinstance(value, Earlier):
        return {"$": "earlier", "back": value.back, "path": list(value.path), "argument": value.argument}
    if isinstance(value, Handle):
        return {"$": "handle", "number": value.number}
    if isinstance(value, Remote):
        remote = {"$": "remote", "name": value.name, "methods": list(value.methods)}
        if value.attributes:
            remote["attributes"] = encode(value.attributes, buffers, depth + 1)
        return remote
    if isinstance(value, Layer):
        return {"$": "layer", "size": value.size, "container": value.container}
    if isinstance(value, Random):
        return {"$": "random", "seed": value.seed, "container": value.container}
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _encode_tensor(value, torch, buffers)
    if isinstance(value, np.bool_ | np.integer | np.floating):
        plain = (
            bool(value)
            if isinstance(value, np.bool_)
            else int(value)
            if isinstance(value, np.integer)
            else float(value)
        )
        return encode(plain, buffers, depth)
    if isinstance(value, np.ndarray):
        plain = np.asarray(value)
        return _encode_array(plain, plain.dtype.name, "numpy", buffers)
    if isinstance(value, tuple | list):
        items = [encode(item, buffers, depth + 1) for item in value]
        fields = getattr(value, "_fields", None)
        if isinstance(value, tuple) and isinstance(fields, tuple):
            return {
                "$": "dict",
                "items": [[str(name), item] for name, item in zip(fields, items, strict=False)],
            }
        return {"$": "tuple" if isinstance(value, tuple) else "list", "items": items}
    if isinstance(value, Mapping):
        return {"$": "dict", "items": [[str(k), encode(v, buffers, depth + 1)] for k, v in value.items()]}
    named = getattr(type(value), "__dataclass_fields__", None)
    if isinstance(named, dict):
        pairs = [[name, encode(getattr(value, name, None), buffers, depth + 1)] for name in named]
        return {"$": "dict", "items": pairs}
    return {"$": "opaque", "type": f"{type(value).__module__}.{type(value).__qualname__}"[:200]}


def _encode_array(values: np.ndarray, dtype: str, container: str, buffers: list[bytes]) -> Any:
    if dtype not in DTYPES:
        return {"$": "opaque", "type": f"array of dtype {dtype}"}
    if dtype == "bfloat16":
        bits = np.ascontiguousarray(values, dtype="<f4").view("<u4")
        rounded = np.where(np.isnan(values), 0x7FC0, (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)
        raw = rounded.astype("<u2").tobytes()
    else:
        raw = np.ascontiguousarray(values, dtype=np.dtype(dtype).newbyteorder("<")).tobytes()
    at = sum(map(len, buffers))
    buffers.append(raw)
    return {"$": "array", "dtype": dtype, "shape": list(values.shape), "at": at, "container": container}


def _encode_tensor(value: Any, torch: Any, buffers: list[bytes]) -> Any:
    plain = torch.Tensor.detach(value)
    if plain.layout is not torch.strided:
        plain = plain.to_dense()
    plain = plain.as_subclass(torch.Tensor)
    plain = plain.cpu().resolve_conj().resolve_neg().contiguous()
    dtype = str(plain.dtype).removeprefix("torch.")
    if dtype == "bfloat16":
        return _encode_array(plain.float().numpy(), dtype, "torch", buffers)
    if dtype not in DTYPES:
        return {"$": "opaque", "type": f"tensor of dtype {dtype}"}
    return _encode_array(plain.numpy(), dtype, "torch", buffers)


def decode(value: Any, body: bytes | memoryview) -> Any:
    """The inverse of :func:`encode`; arrays arrive as :class:`Array` with memory of their own.

    Raises:
        WireError: a value is not of the form that encode gives: sizes that do not fit the body, a dtype that
            is not on the list, an unknown tag, something missing.
    """
    try:
        return _decode(value, body, 0)
    except WireError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise WireError(f"a value is malformed: {type(error).__name__}: {error}") from None


def _decode(value: Any, body: bytes | memoryview, depth: int) -> Any:
    if depth > MAX_DEPTH + 1:
        raise WireError("a value is nested too deeply")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if not isinstance(value, dict):
        raise WireError(f"a value of type {type(value).__name__} may not cross")
    tag = value.get("$")
    if tag == "array":
        return _decode_array(value, body)
    if tag in ("tuple", "list"):
        items = [_decode(item, body, depth + 1) for item in value["items"]]
        return tuple(items) if tag == "tuple" else items
    if tag == "dict":
        return {str(name): _decode(item, body, depth + 1) for name, item in value["items"]}
    if tag == "float":
        return float(value["value"])
    if tag == "opaque":
        return Opaque(str(value.get("type"))[:200])
    if tag == "earlier":
        path = tuple(step if isinstance(step, int) else str(step) for step in value["path"])
        return Earlier(int(value["back"]), path, str(value["argument"]))
    if tag == "handle":
        return Handle(int(value["number"]))
    if tag == "remote":
        attributes = _decode(value["attributes"], body, depth + 1) if "attributes" in value else {}
        if not isinstance(attributes, dict):
            raise WireError("the attributes of a stand-in are no mapping")
        return Remote(str(value["name"]), tuple(map(str, value["methods"])), attributes)
    if tag == "layer":
        return Layer(int(value["size"]), str(value["container"]))
    if tag == "random":
        return Random(int(value["seed"]), str(value["container"]))
    raise WireError(f"unknown tag {tag!r}")


def _decode_array(value: Mapping[str, Any], body: bytes | memoryview) -> Array:
    dtype, shape, at = value["dtype"], value["shape"], value["at"]
    if dtype not in DTYPES:
        raise WireError(f"dtype {dtype!r} may not cross")
    if not (
        isinstance(shape, list)
        and len(shape) <= 16
        and all(type(n) is int and 0 <= n < 1 << 40 for n in shape)
    ):
        raise WireError(f"shape {shape!r} is none")
    stored = np.dtype("<u2") if dtype == "bfloat16" else np.dtype(dtype).newbyteorder("<")
    count = math.prod(shape)
    if type(at) is not int or at < 0 or at + count * stored.itemsize > len(body):
        raise WireError("an array reaches beyond the frame")
    values = np.frombuffer(body, stored, count, at).reshape(shape)
    if dtype == "bfloat16":
        values = (values.astype("<u4") << 16).view("<f4")
    return Array(
        values.astype(values.dtype.newbyteorder("="), copy=True), dtype, str(value.get("container", "numpy"))
    )


def pack(header: Mapping[str, Any], buffers: list[bytes]) -> bytes:
    """One frame.  ``header`` holds values that :func:`encode` made."""
    text = json.dumps(header, separators=(",", ":"), allow_nan=False).encode()
    return b"".join((PREFIX.pack(len(text), sum(map(len, buffers))), text, *buffers))


def unpack(header: bytes) -> dict[str, Any]:
    try:
        value = json.loads(header)
    except (ValueError, RecursionError) as error:
        raise WireError(f"the header is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise WireError("the header is not an object")
    return value


def sizes(prefix: bytes) -> tuple[int, int]:
    """Header and body length of a frame, checked against the caps."""
    header, body = PREFIX.unpack(prefix)
    if header > MAX_HEADER or body > MAX_BODY:
        raise WireError(f"a frame of {header + body} bytes is larger than allowed")
    return header, body


class Readable(Protocol):
    """Something that frames are read from."""

    def read(self, size: int, /) -> bytes: ...


def read_frame(stream: Readable) -> tuple[dict[str, Any], bytes] | None:
    """The next frame of a blocking stream, or None at its end."""
    prefix = stream.read(PREFIX.size)
    if len(prefix) < PREFIX.size:
        return None
    header, body = sizes(prefix)
    return unpack(stream.read(header)), stream.read(body)
