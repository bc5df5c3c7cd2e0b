"""Candidates in other languages: a program that speaks the protocol on its standard input and output."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from triu.conformance.api import open_check
from triu.conformance.candidates.errors import OpenError, TargetError
from triu.conformance.candidates.target import command_target
from triu.conformance.candidates.transport import Command
from triu.spec import Report, load_spec

ROOT = Path(__file__).parents[1]
SPEC = load_spec()

PROGRAM = """
import json, struct, sys

def answer(header, body=b""):
    text = json.dumps(header).encode()
    sys.stdout.buffer.write(struct.pack(">IQ", len(text), len(body)) + text + body)
    sys.stdout.buffer.flush()

while prefix := sys.stdin.buffer.read(12):
    head, body = struct.unpack(">IQ", prefix)
    request = json.loads(sys.stdin.buffer.read(head))
    sys.stdin.buffer.read(body)
    found = {"id": request["id"]}
    if request["op"] == "open":
        found["objects"] = [{"name": "causal_mask", "params": ["T"], "doc": "True = blocked"}]
    elif request["op"] == "build":
        found["handle"] = 7
    elif request["op"] == "calls":
        found["answers"], out = [], b""
        for call in request["calls"]:
            T = call["kwargs"].get("T", (call["args"] or [0])[0])
            if T < 0:
                found["answers"].append({"error": {"type": "ValueError", "message": "no"}})
                continue
            array = {"$": "array", "dtype": "bool", "shape": [T, T], "at": len(out)}
            out += bytes(RULE for i in range(T) for j in range(T))
            found["answers"].append({"result": array})
        answer(found, out)
        continue
    else:
        found["error"] = {"type": "Unknown", "message": request["op"]}
    answer(found)
"""


def judged(command: list[str]) -> Report:
    opened = open_check(
        command_target(" ".join(command)), spec=SPEC, transport=Command(command), call_seconds=30
    )
    try:
        return opened.report([claim for claim in SPEC.claims.values() if claim.role == "causal_mask"])
    finally:
        opened.close()


def program(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "program.py"
    path.write_text(text)
    return [sys.executable, str(path)]


def test_a_right_program_conforms(tmp_path: Path) -> None:
    report = judged(program(tmp_path, PROGRAM.replace("RULE", "j > i")))
    assert report.conforms
    assert report.counts["passed"] >= 9


def test_a_wrong_one_does_not_and_its_mistake_is_named(tmp_path: Path) -> None:
    report = judged(program(tmp_path, PROGRAM.replace("RULE", "j >= i")))
    failed = [v for v in report.verdicts if v.verdict == "failed"]
    assert failed
    assert {v.failure.likely.mutant for v in failed if v.failure and v.failure.likely} == {
        "mask-hides-itself"
    }
    assert all("import" not in (v.failure.snippet if v.failure else "") for v in failed)


@pytest.mark.skipif(shutil.which("perl") is None, reason="there is no perl here")
def test_the_example_in_perl_conforms() -> None:
    command = f"perl {ROOT / 'examples' / 'decoder.pl'}"
    done = subprocess.run(
        [sys.executable, "-m", "triu.conformance", "check", "--command", command, "--quiet"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "conforms" in done.stdout


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("print('hello, I am no frame, and long enough')", "protocol"),
        ("raise SystemExit(3)", "status"),
        (
            PROGRAM.replace('[{"name": "causal_mask", "params": ["T"], "doc": "True = blocked"}]', "[{}]"),
            "protocol",
        ),
        (PROGRAM.replace('found = {"id": request["id"]}', 'found = {"id": 0}'), "another question"),
    ],
)
def test_a_program_that_speaks_something_else_gets_a_clear_error(
    tmp_path: Path, text: str, told: str
) -> None:
    with pytest.raises(OpenError, match=told):
        judged(program(tmp_path, text))


def test_a_program_that_is_not_there_gets_a_clear_error() -> None:
    with pytest.raises(TargetError, match="no-such-program: cannot be started"):
        judged(["no-such-program"])


def test_target_and_command_exclude_each_other() -> None:
    for given in ([], ["file.py", "--command", "x"]):
        done = subprocess.run(
            [sys.executable, "-m", "triu.conformance", "check", *given],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2
        assert "--command" in done.stderr


MASK = """
def causal_mask(T):
    '''True = blocked'''
    return [[j > i for j in range(T)] for i in range(T)]
"""
UNBUILDABLE = """
from torch import nn


class GPT(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.words = nn.Embedding(cfg.vocab_size, cfg.dim)
        self.heads, self.groups = cfg.n_heads, 3
        assert cfg.n_heads % 3 == 0, "heads in groups of three"

    def forward(self, ids):
        return self.words(ids)
"""
PARTS = """
import torch
from torch import nn


class Seq2Seq(nn.Module):
    def __init__(self, reader, writer, oracle):
        super().__init__()
        self.reader, self.writer, self.oracle = reader, writer, oracle

    def forward(self, src, trg):
        return self.writer(trg, self.reader(src), self.oracle)
"""


def checked(tmp_path: Path, text: str, *options: str) -> tuple[int, str]:
    """Exit status and first line for a file."""
    path = tmp_path / "file.py"
    path.write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "triu.conformance", "check", path.name, "--quiet", *options],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    return done.returncode, done.stdout.split("\n")[0]


def test_where_nothing_could_be_judged_nothing_is_wrong(tmp_path: Path) -> None:
    status, line = checked(tmp_path, UNBUILDABLE)
    assert status == 2
    assert line.startswith("file.py: nothing could be judged: GPT: ")
    assert "heads in groups of three" in line
    status, line = checked(tmp_path, MASK, "--claims", "attention.*")
    assert (status, line) == (2, "file.py: nothing could be judged: it provides no attention")
    assert checked(tmp_path, MASK.replace("j > i", "j >= i"))[0] == 1


def test_what_conforms_says_what_was_not_judged(tmp_path: Path) -> None:
    assert checked(tmp_path, MASK) == (0, "file.py conforms")
    status, line = checked(tmp_path, MASK + PARTS)
    assert (status, line) == (0, "file.py conforms in what was judged; not judged: Seq2Seq")
    status, line = checked(tmp_path, MASK.replace("j > i", "j >= i") + PARTS)
    assert status == 1
    assert "not judged" not in line
