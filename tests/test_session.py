"""A Session, over both of its transports: every operation, and everything a candidate can do to one."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from triu.conformance.candidates import wire
from triu.conformance.candidates.errors import (
    CallFailed,
    CallTimeout,
    CandidateError,
    OpenError,
    ProtocolError,
    WorkerLost,
)
from triu.conformance.candidates.session import Built, Call, Session, open_session
from triu.conformance.candidates.target import Target, locate
from triu.conformance.candidates.wire import Array, Remote

MODULE = "candidate_of_these_tests"

CANDIDATE = """
import sys

import numpy as np
import torch
from torch import nn


def double(x):
    return 2 * x


def shift(x, by=1):
    return x + by


def overwrite(x):
    x[...] = 7
    return x


def second(x, y):
    x[...] = 7
    return y


def fail(x):
    raise ValueError("no such thing")


def leave(x):
    sys.exit("enough")


def repeat(n):
    return np.zeros(n)


def kind(x):
    return type(x).__module__.split(".")[0] + " " + type(x).__name__


def square_sum(x, y):
    return {"out": (x * x).sum() + 3 * y.sum(), "other": x}


def unrelated(x):
    return torch.zeros(2)


class Scale(nn.Module):
    def __init__(self, d, bias=False):
        super().__init__()
        self.weight = nn.Parameter(torch.full((d,), 2.0))
        self.heads = [torch.ones(2, 2), torch.zeros(2, requires_grad=True)]
        self.table = np.arange(3.0)
        self.tied = self.weight
        self.steps = torch.arange(4)
        self.size = d

    def forward(self, x):
        return self.weight * x

    def mode(self):
        return self.training

    def head(self):
        return self.heads[0]

    def row(self):
        return self.table


class Fussy:
    def __init__(self, d):
        raise RuntimeError(f"{d} is no width")


def generate(model, src, steps):
    memory = model.encode(src)
    tokens = [1]
    for _ in range(steps):
        tokens.append(int(model.decode_step(tokens, memory=memory)))
    return tokens, model(src), model.forward(src)


def misuse(model):
    return model.paint(3)
"""

NUMPY_CANDIDATE = """
import ctypes
import os
import sys

import numpy as np


def double(x):
    return 2 * x


def chatter(x):
    print("a line")
    sys.stdout.write("x" * 100000)
    sys.stderr.write("y" * 100000)
    os.write(1, b"raw bytes")
    os.write(2, b"raw bytes")
    return x


def loop(x):
    while True:
        pass


def ask(x):
    return input()


def end(x):
    os._exit(3)


def end_well(x):
    os._exit(0)


def crash(x):
    ctypes.string_at(0)


def interrupt(x):
    raise KeyboardInterrupt


def deep(x):
    return deep(x)


def objects(x):
    return [object(), {"x": lambda: 1}]


def unplug(x):
    for fd in range(3, 64):
        try:
            os.close(fd)
        except OSError:
            pass
    return x


def forge(x):
    import socket
    for fd in range(3, 64):
        try:
            os.write(fd, b"\\0\\0\\0\\5" + bytes(8) + b"hello")
        except OSError:
            pass
    return x
"""


@pytest.fixture(autouse=True)
def _modules_and_path_as_before():
    """A candidate in this process leaves its module behind."""
    modules, path = set(sys.modules), list(sys.path)
    yield
    for name in set(sys.modules) - modules:
        file = getattr(sys.modules[name], "__file__", None) or ""
        if MODULE in file:
            del sys.modules[name]
    sys.path[:] = path


def opened(folder, text, **options):
    path = folder / f"{MODULE}.py"
    path.write_text(text, "utf-8")
    session = open_session(locate(str(path)), **options)
    session.open()
    return session


@pytest.fixture(scope="module", params=[False, True], ids=["worker", "in process"])
def session(request, tmp_path_factory):
    session = opened(tmp_path_factory.mktemp("torch"), CANDIDATE, in_process=request.param)
    yield session
    session.close()


@pytest.fixture(scope="module")
def worker(tmp_path_factory):
    """A worker with a candidate in NumPy, which is started again after each crash."""
    session = opened(tmp_path_factory.mktemp("numpy"), NUMPY_CANDIDATE, call_seconds=30)
    yield session
    session.close()


def called(name, *args, **kwargs):
    return Call(Built(f"{MODULE}:{name}"), "", args, kwargs)


def tensor(values, dtype="float64"):
    return Array(np.asarray(values, dtype=dtype), dtype, "torch")


def array(values, dtype="float64"):
    return Array(np.asarray(values, dtype=dtype), dtype, "numpy")


SCALE = Built(f"{MODULE}:Scale", (3,))


def scale(variant):
    """A Scale of its own, since these tests share a session."""
    return Built(SCALE.path, (3,), variant=variant)


# opening


def test_opening_describes_what_the_candidate_defines(session):
    names = {entry["name"] for entry in session.description["objects"]}
    assert {"double", "Scale", "generate"} <= names
    assert "nn" not in names


def test_opening_tells_the_versions_of_the_candidates_side(session):
    assert {"python", "numpy", "torch"} <= set(session.description["versions"])


def test_a_worker_of_a_candidate_in_numpy_does_not_import_torch(worker):
    worker.open()
    assert "torch" not in worker.description["versions"]


# calls


def test_a_call_returns_plain_arrays(session):
    result = session.call(called("double", tensor([1, 2])))
    assert isinstance(result, Array)
    assert result.values.tolist() == [2, 4]


@pytest.mark.parametrize(
    ("container", "seen"), [("torch", "torch Tensor"), ("numpy", "numpy ndarray"), ("list", "builtins list")]
)
def test_an_array_reaches_the_candidate_in_the_container_that_is_asked_for(session, container, seen):
    assert session.call(called("kind", Array(np.zeros(2), "float64", container))) == seen


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int64", "bool"])
def test_a_tensor_keeps_its_dtype_there_and_back(session, dtype):
    values = np.array([0, 1], dtype="float32" if dtype == "bfloat16" else dtype)
    assert session.call(called("overwrite", Array(values, dtype, "torch"))).dtype == dtype


def test_arguments_go_by_keyword(session):
    assert session.call(called("shift", by=10, x=tensor([1]))).values.tolist() == [11]


def test_several_calls_in_a_frame_are_answered_in_order(session):
    answers = session.calls([called("shift", tensor([n])) for n in range(5)])
    assert [answer.values.tolist() for answer in answers] == [[1], [2], [3], [4], [5]]


def test_a_call_that_fails_does_not_spoil_the_others_of_its_frame(session):
    answers = session.calls([called("double", 1), called("fail", 0), called("double", 3)])
    assert [answers[0], type(answers[1]), answers[2]] == [2, CandidateError, 6]


def test_no_calls_have_no_answers(session):
    assert session.calls([]) == []


def test_the_caller_keeps_what_it_passed(session):
    given = tensor([1, 2])
    session.call(called("overwrite", given))
    assert given.values.tolist() == [1, 2]


def test_every_call_of_a_frame_gets_a_fresh_copy(session):
    given = array([1, 2])
    before = called("shift", given, by=0)
    answers = session.calls([called("overwrite", given), before])
    assert answers[1].values.tolist() == [1, 2]


def test_two_arguments_of_a_call_share_no_memory(session):
    given = array([1, 2])
    assert session.call(called("second", given, given)).values.tolist() == [1, 2]


def test_a_call_may_return_what_became_of_its_arguments(session):
    call = Call(Built(f"{MODULE}:overwrite"), args=(tensor([1, 1]),), return_inputs=True)
    result, (args, kwargs) = session.call(call)
    assert result.values.tolist() == args[0].values.tolist() == [7, 7]
    assert kwargs == {}


def test_the_log_holds_every_call_with_what_it_came_to(session):
    start = len(session.log)
    session.calls([called("double", tensor([1])), called("fail", 0)])
    good, bad = session.log[start:]
    assert (good.result.values.tolist(), good.error) == ([2], None)
    assert (bad.result, type(bad.error)) == (None, CandidateError)


# exceptions


def test_an_exception_comes_back_as_data_with_file_line_and_code(session):
    with pytest.raises(CandidateError) as caught:
        session.call(called("fail", 0))
    line = CANDIDATE.splitlines().index('    raise ValueError("no such thing")') + 1
    assert caught.value.detail == {
        "type": "ValueError",
        "message": "no such thing",
        "importing": "",
        "file": "candidate_of_these_tests.py",
        "line": line,
        "code": 'raise ValueError("no such thing")',
    }


def test_an_exception_is_told_in_a_sentence(session):
    with pytest.raises(
        CandidateError, match=r"ValueError: no such thing \(candidate_of_these_tests\.py, line \d+"
    ):
        session.call(called("fail", 0))


def test_an_exception_within_a_library_is_placed_in_the_candidates_own_line(session):
    with pytest.raises(CandidateError) as caught:
        session.call(called("square_sum", tensor([1]), 3))
    assert "3 * y.sum()" in caught.value.detail["code"]


def test_sys_exit_in_a_call_is_an_exception_like_any_other(session):
    with pytest.raises(CandidateError, match="SystemExit: enough"):
        session.call(called("leave", 0))


def test_a_wrong_call_is_an_exception_of_the_candidate(session):
    with pytest.raises(CandidateError, match="TypeError"):
        session.call(called("double", nonsense=1))


def test_the_next_call_works_after_an_exception(session):
    session.calls([called("fail", 0), called("leave", 0)])
    assert session.call(called("double", 4)) == 8


def test_a_constructor_that_raises_fails_the_call(session):
    with pytest.raises(CandidateError, match="RuntimeError: 3 is no width"):
        session.call(Call(Built(f"{MODULE}:Fussy", (3,)), args=(tensor([1]),)))


def test_an_answer_that_is_larger_than_allowed_fails_the_call(session, monkeypatch):
    monkeypatch.setattr(wire, "MAX_BODY", 1000)
    with pytest.raises(CallFailed, match="larger than allowed"):
        session.call(called("repeat", 1000))


def test_an_object_that_is_not_there_fails_the_call(session):
    with pytest.raises(CallFailed):
        session.call(called("nothing_of_that_name", 1))


# objects


def test_a_class_is_built_once_for_the_same_arguments(session):
    assert session.build(scale("once")) == session.build(scale("once"))
    assert session.build(scale("once")) != session.build(scale("twice"))


def test_an_instance_is_called(session):
    assert session.call(Call(SCALE, args=(tensor([1, 2, 3], "float32"),))).values.tolist() == [2, 4, 6]


def test_a_module_is_built_for_evaluation(session):
    assert session.call(Call(SCALE, "mode")) is False


def test_a_call_may_ask_for_training_and_leaves_none_behind(session):
    answers = session.calls([Call(SCALE, "mode", train=True), Call(SCALE, "mode")])
    assert answers == [True, False]


def test_a_module_in_double_precision_computes_in_it(session):
    built = Built(SCALE.path, (3,), double=True)
    assert session.call(Call(built, args=(tensor([1, 2, 3]),))).dtype == "float64"


# parameters


def parameters(session, built=SCALE):
    return {item["name"]: item for item in session.parameters(built)}


def test_parameters_are_found_registered_in_plain_lists_and_in_attributes(session):
    assert set(parameters(session)) == {"weight", "heads.0", "heads.1", "table", "tied"}


def test_parameters_come_with_their_values(session):
    found = parameters(session)
    assert found["weight"]["value"].values.tolist() == [2, 2, 2]
    assert found["table"]["value"].values.tolist() == [0, 1, 2]


def test_parameters_say_whether_they_are_trained(session):
    trainable = {name for name, item in parameters(session).items() if item["trainable"]}
    assert trainable == {"weight", "tied", "heads.1"}


def test_aliasing_is_noticed(session):
    found = parameters(session)
    aliases = {name: item["alias"] for name, item in found.items() if item["alias"]}
    assert aliases in ({"tied": "weight"}, {"weight": "tied"})


def test_loading_overwrites_parameters_wherever_they_are(session):
    built = scale("loaded")
    session.load(
        built,
        {
            "weight": array([5, 6, 7], "float32"),
            "heads.0": array(np.full((2, 2), 9), "float32"),
            "table": array([8, 8, 8]),
        },
    )
    head, row, out = session.calls(
        [Call(built, "head"), Call(built, "row"), Call(built, args=(tensor([1, 1, 1], "float32"),))]
    )
    assert head.values.tolist() == [[9, 9], [9, 9]]
    assert row.values.tolist() == [8, 8, 8]
    assert out.values.tolist() == [5, 6, 7]


def test_loading_one_object_leaves_another_as_it_is(session):
    session.load(scale("changed"), {"weight": array([0, 0, 0], "float32")})
    assert parameters(session, scale("unchanged"))["weight"]["value"].values.tolist() == [2, 2, 2]


def test_loading_a_wrong_shape_fails(session):
    with pytest.raises(CandidateError):
        session.load(scale("shape"), {"weight": array(np.zeros((4, 4)), "float32")})


def test_loading_a_name_that_is_not_there_fails(session):
    with pytest.raises(CallFailed):
        session.load(scale("name"), {"wieght": array([0, 0, 0], "float32")})


# gradients


def test_a_gradient_is_pulled_back_through_a_call(session):
    call = called("square_sum", x=tensor([1, 2]), y=tensor([5]))
    dx, dy = session.vjp(call, ["x", "y"], ["out"], tensor(10.0))
    assert dx.values.tolist() == [20, 40]
    assert dy.values.tolist() == [30]


def test_a_gradient_can_be_asked_for_a_positional_argument(session):
    (gradient,) = session.vjp(called("double", tensor([1, 2])), [0], [], tensor([1, 10]))
    assert gradient.values.tolist() == [2, 20]


def test_a_result_that_does_not_depend_on_the_input_has_no_gradient(session):
    assert session.vjp(called("unrelated", tensor([1])), [0], [], tensor([1, 1])) is None


def test_an_input_that_the_picked_part_does_not_depend_on_gets_zeros(session):
    call = called("square_sum", x=tensor([1, 2]), y=tensor([5]))
    _, dy = session.vjp(call, ["x", "y"], ["other"], tensor([1, 1]))
    assert dy.values.tolist() == [0]


def test_an_exception_while_a_gradient_is_computed_comes_back_as_data(session):
    with pytest.raises(CandidateError, match="no such thing"):
        session.vjp(called("fail", tensor([1])), [0], [], tensor([1]))


# callbacks


class Table:
    """Answers a stand-in model's calls from a table and keeps a log of them."""

    def __init__(self):
        self.log = []

    def __call__(self, name, method, args, kwargs):
        self.log.append(method)
        if method == "encode":
            return tensor([4, 2])
        if method == "decode_step":
            (tokens,) = args
            return len(tokens) + int(kwargs["memory"].values[0])
        return args[0]


MODEL = Remote("model", ("encode", "decode_step", "forward"))


def test_a_stand_in_model_is_answered_by_the_checker(session):
    call = called("generate", MODEL, tensor([1, 2], "int64"), 3)
    tokens, called_out, forward = session.call(call, Table())
    assert tokens == [1, 5, 6, 7]
    assert called_out.values.tolist() == forward.values.tolist() == [1, 2]


def test_the_calls_of_a_stand_in_model_are_counted(session):
    table = Table()
    session.call(called("generate", MODEL, tensor([1, 2], "int64"), 3), table)
    assert table.log == ["encode", "decode_step", "decode_step", "decode_step", "forward", "forward"]


def test_a_stand_in_has_no_other_methods(session):
    with pytest.raises(CandidateError, match="the stand-in model has no 'paint'"):
        session.call(called("misuse", MODEL), Table())


def test_an_error_of_the_checker_in_a_callback_reaches_the_candidate_as_an_exception(session):
    def refuse(name, method, args, kwargs):
        raise ValueError("the source is empty")

    with pytest.raises(CandidateError, match="ValueError: the source is empty"):
        session.call(called("generate", MODEL, 0, 1), refuse)


def test_without_a_responder_a_callback_fails_the_call(session):
    with pytest.raises(CandidateError, match="no one answers"):
        session.call(called("generate", MODEL, 0, 1))


def test_the_next_call_works_after_a_callback_that_failed(session):
    session.calls([called("generate", MODEL, 0, 1)])
    assert session.call(called("double", 4)) == 8


# what only a worker survives


@pytest.mark.parametrize(
    ("name", "error", "told"),
    [
        ("end", WorkerLost, "status 3"),
        ("end_well", WorkerLost, "status 0"),
        ("crash", WorkerLost, "SIGSEGV"),
        ("interrupt", CandidateError, "KeyboardInterrupt"),
        ("unplug", WorkerLost, "worker"),
        ("forge", ProtocolError, "protocol"),
        ("deep", CandidateError, "RecursionError"),
    ],
)
def test_a_call_that_takes_the_worker_down_has_its_own_error(worker, name, error, told):
    with pytest.raises(error, match=told):
        worker.call(called(name, array([1])))


@pytest.mark.parametrize("name", ["end", "crash", "interrupt", "unplug", "forge", "deep", "objects"])
def test_the_next_call_works_again(worker, name):
    worker.calls([called(name, array([1]))])
    assert worker.call(called("double", array([1]))).values.tolist() == [2]


def test_an_endless_loop_is_stopped_in_time_and_the_next_call_works(tmp_path):
    session = opened(tmp_path, NUMPY_CANDIDATE, call_seconds=3)
    try:
        with pytest.raises(CallTimeout, match="no answer within 3 s"):
            session.call(called("loop", 0))
        assert session.call(called("double", 4)) == 8
    finally:
        session.close()


def test_all_calls_of_a_frame_that_ended_the_worker_failed(worker):
    answers = worker.calls([called("double", array([1])), called("end", 0)])
    assert [type(answer) for answer in answers] == [WorkerLost, WorkerLost]


def test_what_a_candidate_prints_does_no_harm(worker):
    assert worker.call(called("chatter", array([1]))).values.tolist() == [1]


def test_a_candidate_cannot_wait_for_input(worker):
    with pytest.raises(CandidateError, match="EOFError"):
        worker.call(called("ask", 0))


def test_closing_ends_the_worker(tmp_path):
    session = opened(tmp_path, NUMPY_CANDIDATE)
    process = session._transport._process
    session.close()
    assert process.poll() is not None


# answers that are none


class Forger:
    """A transport whose worker answers anything it likes."""

    generation = 0

    def __init__(self, answer):
        self.answer = answer

    def request(self, header, buffers, timeout, on_callback):
        usual = {
            "open": {"objects": [], "failed": [], "versions": {}},
            "build": {"handle": 0},
        }
        return usual.get(header["op"], self.answer), b""

    def close(self):
        pass


def forging(answer):
    session = Session(Target("forged", {"kind": "file", "path": "forged.py"}), Forger(answer))
    session.open()
    return session


ONE = called("double", 1)
BAD_ARRAY = {"$": "array", "dtype": "float64", "shape": [9], "at": 0, "container": "numpy"}


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"answers": []},
        {"answers": 3},
        {"answers": "x"},
        {"answers": [3]},
        {"answers": [{}]},
        {"answers": [{"result": BAD_ARRAY}]},
        {"answers": [{"error": 3}]},
        {"answers": [{"error": {"line": {}}}, {}]},
        {"error": "x"},
    ],
    ids=repr,
)
def test_an_answer_to_a_call_that_is_none_breaks_the_protocol_and_nothing_else(answer):
    with pytest.raises(CallFailed):
        forging(answer).call(ONE)


@pytest.mark.parametrize(
    "answer", [{}, {"parameters": 3}, {"parameters": [{}]}, {"parameters": [{"value": BAD_ARRAY}]}], ids=repr
)
def test_an_answer_to_a_question_for_parameters_that_is_none_breaks_the_protocol(answer):
    with pytest.raises(CallFailed):
        forging(answer).parameters(ONE.built)


@pytest.mark.parametrize(
    "answer", [{}, {"connected": True}, {"connected": True, "gradients": [BAD_ARRAY]}], ids=repr
)
def test_an_answer_to_a_question_for_gradients_that_is_none_breaks_the_protocol(answer):
    with pytest.raises(CallFailed):
        forging(answer).vjp(ONE, [0], [], array([1]))


# targets that cannot be opened


@pytest.mark.parametrize("in_process", [False, True], ids=["worker", "in process"])
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("def f(:\n    pass\n", r"SyntaxError.*candidate_of_these_tests\.py, line 1"),
        ("import numpy\n\nraise RuntimeError('no weights')\n", r"RuntimeError: no weights.*line 3"),
        ("import sys\nsys.exit(4)\n", r"SystemExit: 4.*line 2"),
        (
            "import no_such_module_anywhere\n",
            "ModuleNotFoundError: No module named 'no_such_module_anywhere'",
        ),
    ],
    ids=["syntax", "exception", "exit", "missing module"],
)
def test_a_file_that_fails_at_import_cannot_be_opened(tmp_path, text, told, in_process):
    with pytest.raises(OpenError, match=told):
        opened(tmp_path, text, in_process=in_process)


def test_a_file_that_ends_its_process_at_import_cannot_be_opened(tmp_path):
    with pytest.raises(OpenError, match="the worker exited with status 5"):
        opened(tmp_path, "import os\nos._exit(5)\n")


def test_a_file_that_never_ends_its_import_cannot_be_opened(tmp_path):
    with pytest.raises(OpenError, match="no answer within 1 s"):
        opened(tmp_path, "while True:\n    pass\n", import_seconds=1)
