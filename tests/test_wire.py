"""The wire: what crosses arrives as it was sent, what may not cross does not, and forged bytes are refused."""

from __future__ import annotations

import collections
import dataclasses
import io
import json
import math

import numpy as np
import pytest
import torch
from triu.conformance.candidates import wire
from triu.conformance.candidates.wire import Array, Opaque, Remote, WireError

DTYPES = sorted(wire.DTYPES)


def through(value):
    """A value as it arrives at the other side, by way of a whole frame."""
    buffers = []
    header = {"value": wire.encode(value, buffers)}
    frame = wire.read_frame(io.BytesIO(wire.pack(header, buffers)))
    assert frame is not None
    header, body = frame
    return wire.decode(header["value"], body)


def numbers(dtype, shape):
    """Numbers that every dtype of the wire can hold exactly."""
    size = math.prod(shape)
    values = np.arange(size).reshape(shape) % 2 if dtype == "bool" else np.arange(size).reshape(shape)
    return values.astype("float32" if dtype == "bfloat16" else dtype)


def forged(**changes):
    """An array's header over a body of 8 bytes, changed."""
    told = {"$": "array", "dtype": "float32", "shape": [2], "at": 0, "container": "numpy", **changes}
    return {name: value for name, value in told.items() if value is not ...}


def refused(value, body=bytes(8)):
    with pytest.raises(WireError) as caught:
        wire.decode(value, body)
    return str(caught.value)


# round trips


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (2, 3)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_an_array_arrives_as_it_was_sent(dtype, shape):
    values = numbers(dtype, shape)
    sent = Array(values, dtype, "torch" if dtype == "bfloat16" else "numpy")
    arrived = through(sent)
    assert (arrived.dtype, arrived.container, arrived.values.shape) == (dtype, sent.container, shape)
    assert arrived.values.dtype == values.dtype
    assert (arrived.values == values).all()


@pytest.mark.parametrize("dtype", [d for d in DTYPES if hasattr(torch, d)])
def test_a_tensor_arrives_with_its_dtype_by_name(dtype):
    tensor = torch.tensor([[0, 1], [1, 1]]).to(getattr(torch, dtype))
    arrived = through(tensor)
    assert (arrived.dtype, arrived.container) == (dtype, "torch")
    assert arrived.values.tolist() == [[0, 1], [1, 1]]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16"])
def test_infinity_and_not_a_number_cross_in_arrays(dtype):
    values = np.array([np.nan, np.inf, -np.inf, -0.0], dtype="float32" if dtype == "bfloat16" else dtype)
    arrived = through(Array(values, dtype)).values
    assert np.array_equal(arrived, values, equal_nan=True)
    assert np.signbit(arrived[3])


@pytest.mark.parametrize("bits", [0x7FC00000, 0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF], ids=hex)
def test_not_a_number_stays_one_in_bfloat16_whatever_its_bits(bits):
    values = np.array([bits], dtype="uint32").view("float32")
    assert np.isnan(through(Array(values, "bfloat16", "torch")).values).all()


def test_bfloat16_rounds_as_torch_does():
    values = np.random.default_rng(0).normal(size=1000).astype("float32")
    expected = torch.from_numpy(values).to(torch.bfloat16).float().numpy()
    assert (through(Array(values, "bfloat16", "torch")).values == expected).all()


@pytest.mark.parametrize("value", [math.inf, -math.inf, 0.1, -0.0, 1e300])
def test_a_float_arrives_exactly(value):
    assert repr(through(value)) == repr(value)


def test_not_a_number_arrives_as_such():
    assert math.isnan(through(math.nan))


@pytest.mark.parametrize(
    "value", [None, True, False, 0, -7, 2**63 - 1, "", "größer ≥ 0", "\ud800", (), [], {}]
)
def test_a_plain_value_arrives_with_its_type(value):
    arrived = through(value)
    assert arrived == value
    assert type(arrived) is type(value)


def test_containers_keep_their_nesting():
    value = {"a": [1, (2.5, "x", None)], "b": {"c": ({"d": [True]},)}}
    assert through(value) == value


def test_an_array_within_containers_arrives():
    arrived = through({"out": [np.eye(2), (np.zeros(3, dtype="int8"),)]})
    assert arrived["out"][0].values.tolist() == [[1, 0], [0, 1]]
    assert arrived["out"][1][0].dtype == "int8"


def test_a_named_tuple_arrives_as_a_dictionary():
    Output = collections.namedtuple("Output", "hidden weights")
    assert through(Output(1, [2])) == {"hidden": 1, "weights": [2]}


def test_a_dataclass_arrives_as_a_dictionary():
    Output = dataclasses.make_dataclass("Output", ["hidden", "weights"])
    assert through(Output(1, None)) == {"hidden": 1, "weights": None}


def test_numbers_of_numpy_arrive_as_numbers():
    assert [through(n) for n in (np.int8(3), np.float32(0.5), np.bool_(True))] == [3, 0.5, True]


def test_a_number_of_extended_precision_does_not_hang_the_encoder():
    assert through(np.longdouble(1.5)) in (1.5, Opaque("numpy.longdouble"))


def test_a_stand_in_arrives_with_its_methods():
    assert through(Remote("model", ("encode", "forward"))) == Remote("model", ("encode", "forward"))


@pytest.mark.parametrize(
    "values", [np.arange(12.0).reshape(3, 4).T[::2], np.arange(3, dtype=">f4"), np.arange(6)[::-2]]
)
def test_layout_and_byte_order_of_the_sender_do_not_matter(values):
    arrived = through(values).values
    assert arrived.tolist() == values.tolist()
    assert arrived.dtype.isnative
    assert arrived.flags.c_contiguous


@pytest.mark.parametrize(
    "tensor",
    [
        torch.ones(2, 3, requires_grad=True),
        torch.ones(3, 2).T,
        torch.ones(1, 3).expand(2, 3),
        torch.nn.Parameter(torch.ones(2, 3)),
        torch.ones(2, 3).to_sparse(),
    ],
    ids=["with gradient", "transposed", "expanded", "parameter", "sparse"],
)
def test_a_tensor_of_any_kind_arrives_as_its_numbers(tensor):
    assert through(tensor).values.tolist() == [[1, 1, 1], [1, 1, 1]]


def test_what_arrives_has_memory_of_its_own():
    buffers = []
    header = wire.encode([np.zeros(2)] * 2, buffers)
    body = bytearray(b"".join(buffers))
    first, second = wire.decode(header, body)
    first.values[0] = 7
    assert second.values[0] == 0
    assert body == bytearray(32)


# what does not cross


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (object(), "builtins.object"),
        (print, "builtin_function_or_method"),
        (1j, "complex"),
        ({1, 2}, "set"),
        (b"bytes", "bytes"),
        (2**63, "int beyond 64 bits"),
        (np.array(["x"]), "str"),
        (np.array([object()]), "object"),
        (np.array([1j]), "complex128"),
        (torch.tensor([1j]), "complex64"),
        (np.zeros(2, dtype=[("a", "i4")]), "void"),
        (torch.nn.Linear(1, 1), "torch.nn.modules.linear.Linear"),
    ],
    ids=lambda part: part if isinstance(part, str) else type(part).__name__,
)
def test_of_anything_else_only_the_name_of_its_type_crosses(value, named):
    arrived = through(value)
    assert isinstance(arrived, Opaque)
    assert named in arrived.type


def test_a_list_that_holds_itself_crosses_up_to_a_depth():
    endless = []
    endless.append(endless)
    arrived = through(endless)
    for _ in range(wire.MAX_DEPTH):
        (arrived,) = arrived
    assert arrived == [Opaque("nested too deeply")]


def test_a_very_long_text_is_cut():
    assert len(through("x" * 10**6)) == wire.MAX_TEXT


# forged values


@pytest.mark.parametrize(
    "changes",
    [
        {"shape": [3]},
        {"shape": [2, 2]},
        {"at": 1},
        {"at": 8},
        {"at": 1 << 62},
        {"shape": [1 << 39, 1 << 39, 1 << 39]},
        {"dtype": "float64", "shape": [2]},
        {"dtype": "bfloat16", "shape": [5]},
    ],
    ids=str,
)
def test_an_array_that_reaches_beyond_its_frame_is_refused(changes):
    assert "beyond the frame" in refused(forged(**changes))


@pytest.mark.parametrize(
    "shape", [[-1], [2, -1], [-2, -1], 2, "2", [True], [2.0], [None], [1] * 17, [1 << 40, 0]], ids=str
)
def test_a_shape_that_is_none_is_refused(shape):
    refused(forged(shape=shape))


@pytest.mark.parametrize("at", [-1, 1.0, "0", None, True], ids=repr)
def test_a_place_that_is_none_is_refused(at):
    refused(forged(at=at))


@pytest.mark.parametrize(
    "dtype", ["object", "O", "str", "complex64", "datetime64", "f4", "", "void", "float128"]
)
def test_a_dtype_that_is_not_on_the_list_is_refused(dtype):
    assert "may not cross" in refused(forged(dtype=dtype))


@pytest.mark.parametrize("dtype", [None, 4, ["float32"], {"name": "float32"}], ids=repr)
def test_a_dtype_that_is_no_name_is_refused(dtype):
    refused(forged(dtype=dtype))


@pytest.mark.parametrize("tag", ["pickle", "", None, 1, ["array"], "Array"], ids=repr)
def test_an_unknown_tag_is_refused(tag):
    assert "tag" in refused({"$": tag, "items": []})


def test_an_object_without_a_tag_is_refused():
    assert "tag" in refused({"items": []})


@pytest.mark.parametrize("value", [[1, 2], [[]]], ids=repr)
def test_a_bare_list_is_refused(value):
    refused(value)


@pytest.mark.parametrize(
    "value",
    [
        forged(dtype=...),
        forged(shape=...),
        forged(at=...),
        {"$": "list"},
        {"$": "list", "items": 3},
        {"$": "tuple", "items": None},
        {"$": "dict"},
        {"$": "dict", "items": [["a"]]},
        {"$": "dict", "items": [3]},
        {"$": "dict", "items": [["a", 1, 2]]},
        {"$": "float"},
        {"$": "float", "value": "many"},
        {"$": "float", "value": []},
        {"$": "remote"},
        {"$": "remote", "name": "model", "methods": 3},
    ],
    ids=repr,
)
def test_a_value_with_parts_that_are_missing_or_wrong_is_refused(value):
    refused(value)


def test_a_value_that_is_nested_too_deeply_is_refused():
    value = 0
    for _ in range(wire.MAX_DEPTH + 2):
        value = {"$": "list", "items": [value]}
    assert "too deeply" in refused(value)


# forged frames


@pytest.mark.parametrize(
    "header", [b"", b"{", b"not json", b"\xff\xfe", b"[]", b"3", b"null", b'"x"', b"{'a': 1}"], ids=repr
)
def test_a_header_that_is_no_json_object_is_refused(header):
    with pytest.raises(WireError):
        wire.unpack(header)


def test_a_header_that_is_nested_without_end_is_refused():
    with pytest.raises(WireError):
        wire.unpack(b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}")


@pytest.mark.parametrize(
    ("header", "body"), [(wire.MAX_HEADER + 1, 0), (0, wire.MAX_BODY + 1), (2**32 - 1, 2**64 - 1)]
)
def test_a_frame_that_claims_to_be_too_large_is_refused_before_it_is_read(header, body):
    with pytest.raises(WireError, match="larger than allowed"):
        wire.read_frame(io.BytesIO(wire.PREFIX.pack(header, body)))


def test_the_end_of_a_stream_is_no_frame():
    assert wire.read_frame(io.BytesIO(b"")) is None


def test_a_frame_that_was_cut_off_is_refused():
    frame = wire.pack({"value": wire.encode(np.zeros(4), buffers := [])}, buffers)
    header, body = wire.read_frame(io.BytesIO(frame[:-8]))
    with pytest.raises(WireError):
        wire.decode(header["value"], body)


def test_a_frame_is_a_prefix_a_header_and_the_bytes():
    frame = wire.pack({"value": wire.encode(np.array([1, 2], dtype="uint8"), buffers := [])}, buffers)
    header, body = wire.PREFIX.unpack(frame[: wire.PREFIX.size])
    assert body == 2
    assert json.loads(frame[wire.PREFIX.size :][:header])["value"]["dtype"] == "uint8"
    assert frame[-2:] == b"\x01\x02"
