"""Bad input: whatever is wrong with a request, a target or a declaration, one clear sentence says so.

Each run of the command costs seconds, so one submission with several faults is checked once and read often.
"""

from __future__ import annotations

import io
import json
import os
import re
import stat
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout

import pytest
from triu.conformance import check
from triu.conformance.cli import main
from triu.reports import to_json, to_markdown, to_text, write_whole
from triu.spec import OUTCOMES, BoundObject, Evidence, Failure, Report, Verdict

GOOD = """
import numpy as np

def causal_mask(T):
    return ~np.tri(T, dtype=bool)
"""
FAULTS = """
import os
import numpy as np

def causal_mask(T):
    return np.zeros((T, T + 1), dtype=bool)

def subsequent_mask(T):
    return f"a mask for {T}"

def look_ahead_mask(T):
    return np.full((T, T), "no")

def future_mask(T):
    return np.full((T, T), np.nan)

def triangular_mask(T):
    return None

def tril_mask(T):
    os._exit(0)

def nopeak_mask(T):
    raise ValueError("bad \\x1b[31m \\x07 \\u202e | <b>x</b> `y`")

def tgt_mask(T, flavour):
    return T
"""
SPEC = """
[[claim]]
id = "course.first"
level = "MUST"
title = "A title"
statement = "A statement."
source = ["lesson 1"]
role = "causal_mask"
domain = { T = "1..3" }
property = "readable"
hint = "A hint."
"""


def triu(*arguments, cwd=None):
    """The command in a process of its own."""
    command = [sys.executable, "-m", "triu.conformance", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=600, check=False)


def quick(*arguments):
    """The command within this process, for what fails before much is judged."""
    out, error = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(error), pytest.raises(SystemExit) as caught:
        main([str(argument) for argument in arguments], prog_name="triu")
    return subprocess.CompletedProcess(arguments, caught.value.code, out.getvalue(), error.getvalue())


def write(folder, text, name="submission.py"):
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def unusable(result):
    """What the command says of an unusable request: on stderr, with status 2 and without a traceback."""
    assert (result.returncode, result.stdout) == (2, "")
    assert "Traceback" not in result.stderr
    assert result.stderr.startswith("triu: ")
    return result.stderr.removeprefix("triu: ")


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return write(tmp_path_factory.mktemp("good"), GOOD)


@pytest.fixture(scope="module")
def passed(good):
    """A run that conforms, with a report in JSON."""
    folder = good.parent
    result = triu("check", good, "--json", folder / "report.json", "--seed", 7)
    return result, folder / "report.json"


@pytest.fixture(scope="module")
def faulty(tmp_path_factory):
    """A run on a submission in which nearly everything is wrong, with both reports."""
    folder = tmp_path_factory.mktemp("faulty")
    path = write(folder, FAULTS)
    result = triu("check", path, "--json", folder / "report.json", "--markdown", folder / "report.md")
    return result, folder


def found(faulty, name):
    """The first claim that the object broke: verdict and sentence."""
    document = json.loads((faulty[1] / "report.json").read_text("utf-8"))
    return next(
        (v["verdict"], v["failure"]["what"])
        for v in document["verdicts"]
        if v["object"] == name and v["level"] == "MUST" and v["verdict"] in ("failed", "errored")
    )


# targets that are not there


def test_a_file_that_is_not_there_is_named(tmp_path):
    assert (
        unusable(triu("check", tmp_path / "nowhere.py")) == f"{tmp_path}/nowhere.py: no such file or folder\n"
    )


def test_a_file_that_is_not_python_is_refused(tmp_path):
    told = unusable(quick("check", write(tmp_path, "x", "answer.txt")))
    assert "is not a Python file" in told


def test_a_folder_without_python_is_refused(tmp_path):
    assert "holds no Python file" in unusable(quick("check", tmp_path))


def test_a_misspelt_built_in_candidate_is_refused_with_the_one_that_was_meant():
    assert "did you mean baseline?" in unusable(quick("check", "basline"))


@pytest.mark.parametrize(
    "name", ["no_such_module_anywhere", "no_such_module_anywhere.inner", "a b", "1x", " "]
)
def test_a_module_that_is_not_there_is_refused(name):
    assert unusable(quick("check", name)).startswith(f"{name}: ")


def test_a_target_without_a_name_is_refused_and_is_not_the_current_folder(good, monkeypatch):
    monkeypatch.chdir(good.parent)
    unusable(quick("check", "", "--claims", "causal-mask.shape"))


def test_an_object_that_the_file_lacks_is_named(good):
    told = unusable(quick("check", f"{good}:future_mask"))
    assert "It has no object 'future_mask'." in told


# targets that cannot be imported


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("def causal_mask(T)\n    return T\n", "SyntaxError: expected ':'"),
        (
            "import math\n\nraise RuntimeError('no weights')\n",
            "RuntimeError: no weights (submission.py, line 3",
        ),
        ("import sys\nsys.exit(0)\n", "SystemExit: 0 (submission.py, line 2"),
        ("raise SystemExit\n", "SystemExit (submission.py, line 1"),
        ("raise KeyboardInterrupt\n", "KeyboardInterrupt"),
        ("import os\nos._exit(0)\n", "the worker exited with status 0"),
        ("import ctypes\nctypes.string_at(0)\n", "SIGSEGV"),
        ("import no_such_module_anywhere\n", "No module named 'no_such_module_anywhere'"),
        ("x = '\\ud800'\nraise ValueError(x)\n", "ValueError"),
        ("\x00", "SyntaxError"),
    ],
    ids=[
        "syntax",
        "exception",
        "exit",
        "bare",
        "ctrl-c",
        "hard",
        "segfault",
        "missing",
        "surrogate",
        "nul",
    ],
)
def test_a_file_that_fails_at_import_is_unusable_and_says_why(tmp_path, text, told):
    message = unusable(quick("check", write(tmp_path, text)))
    assert "importing it failed" in message
    assert told in message


def test_a_file_that_is_not_text_is_unusable(tmp_path):
    path = tmp_path / "submission.py"
    path.write_bytes(b"x = '\xff\xfe'\n")
    assert "importing it failed: SyntaxError" in unusable(quick("check", path))


def test_a_syntax_error_is_placed_once(tmp_path):
    message = unusable(quick("check", write(tmp_path, "def causal_mask(T)\n    return T\n")))
    assert message.count("line 1") == 1


def test_a_file_that_never_ends_its_import_is_stopped(tmp_path):
    message = unusable(triu("check", write(tmp_path, "while True: pass"), "--timeout", 2))
    assert "no answer within 2 s" in message


def test_importing_in_this_process_tells_the_same(tmp_path):
    message = unusable(
        quick("check", write(tmp_path, "import sys\nsys.exit(0)\n", "leaving.py"), "--in-process")
    )
    assert "SystemExit: 0 (leaving.py, line 2" in message


def test_what_an_import_error_says_cannot_steer_the_terminal(tmp_path):
    message = unusable(quick("check", write(tmp_path, "raise ValueError('\\x1b[2J \\x9b31m \\u202e')")))
    assert "\\x1b[2J \\x9b31m \\x202e" in message


def test_a_folder_with_one_broken_file_is_judged_by_the_others(tmp_path):
    write(tmp_path, GOOD)
    write(tmp_path, "def f(:\n", "broken.py")
    result = quick("check", tmp_path, "--claims", "causal-mask.shape")
    assert result.returncode == 0
    assert "note: not imported: SyntaxError" in result.stdout


# targets that fill no role


@pytest.fixture(scope="module")
def roleless(tmp_path_factory):
    source = "def casual_mask(T): return T\ndef attention(query, key): return key\ndef helper(x): return x"
    return unusable(triu("check", write(tmp_path_factory.mktemp("roleless"), source)))


def test_a_file_with_none_of_the_roles_says_what_it_defines(roleless):
    assert "It defines: casual_mask, attention, helper." in roleless


def test_a_file_with_none_of_the_roles_says_which_names_are_looked_for(roleless):
    assert "  causal_mask: causal_mask, build_causal_mask, create_causal_mask," in roleless


def test_a_file_with_none_of_the_roles_tells_near_misses(roleless):
    assert "casual_mask looks like causal_mask (role causal_mask)" in roleless


def test_a_signature_that_cannot_be_bound_says_which_argument_is_missing(roleless):
    assert "attention has the name of a" in roleless
    assert "no parameter for value" in roleless


def test_an_object_of_the_right_name_is_no_near_miss_of_itself(roleless):
    assert "attention looks like" not in roleless


def test_an_empty_file_defines_nothing(tmp_path):
    assert "It defines: no function or class." in unusable(quick("check", write(tmp_path, "")))


# wrong results


def test_a_submission_with_faults_does_not_conform(faulty):
    assert (faulty[0].returncode, faulty[0].stderr) == (1, "")


@pytest.mark.parametrize(
    ("name", "verdict", "told"),
    [
        ("causal_mask", "failed", r"the shape is \[1, 2\], expected \[1, 1\]"),
        ("subsequent_mask", "failed", "it returned a str; a mask is an array"),
        ("look_ahead_mask", "failed", "array of dtype str"),
        ("future_mask", "failed", r"the entry at \[0, 0\] is NaN"),
        ("triangular_mask", "failed", "it returned None; a mask is an array"),
        ("tril_mask", "errored", "the worker exited with status 0"),
        ("nopeak_mask", "errored", "the call failed: ValueError: bad"),
    ],
)
def test_a_wrong_result_is_told_in_a_sentence(faulty, name, verdict, told):
    outcome, what = found(faulty, name)
    assert outcome == verdict
    assert re.search(told, what)


def test_every_wrong_result_reaches_the_terminal(faulty):
    assert all(
        told in faulty[0].stdout
        for told in (
            "[1, 2], expected [1, 1]",
            "it returned a str",
            "dtype str",
            "is NaN",
            "it returned None",
        )
    )


def test_an_object_that_cannot_be_bound_is_shown_and_not_judged(faulty):
    told = " ".join(faulty[0].stdout.split())
    assert (
        "not judged: tgt_mask (causal_mask): it needs 'flavour', which is none of the role's arguments"
        in told
    )


@pytest.mark.parametrize("name", ["subsequent_mask", "look_ahead_mask", "triangular_mask", "tril_mask"])
def test_no_claim_passes_on_a_function_that_returns_no_mask(faulty, name):
    verdicts = json.loads((faulty[1] / "report.json").read_text("utf-8"))["verdicts"]
    assert [v["claim"] for v in verdicts if v["object"] == name and v["verdict"] == "passed"] == []


def test_a_call_that_never_returns_is_stopped(tmp_path):
    path = write(tmp_path, "def causal_mask(T):\n    while True: pass\n")
    (verdict,) = check(path, claims="causal-mask.shape", call_seconds=0.3).verdicts
    assert (verdict.verdict, verdict.failure.what) == (
        "errored",
        "no answer within 0.3 s; the worker was stopped",
    )


# declarations


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[role]\n", "unknown key 'role'; did you mean [roles]?"),
        (
            "[roles]\ncausal_masks = 'causal_mask'\n",
            "role 'causal_masks' is not known; did you mean causal_mask?",
        ),
        (
            "[roles]\ncausal_mask = 'causl_mask'\n",
            "object 'causl_mask' is not known; did you mean causal_mask?",
        ),
        ("[roles]\ncausal_mask = 3\n", "roles.causal_mask: found 3, expected a name"),
        ("roles = 'x'\n", "found 'x', expected a table [roles]"),
        (
            "[conventions.causal_mask]\npolarty = 'block'\n",
            "convention 'polarty' is not known; did you mean polarity?",
        ),
        ("[conventions.causal_mask]\npolarity = 'blok'\n", "value 'blok' is not known; did you mean block?"),
        ("[conventions.causal_mask]\npolarity = true\n", "expected a table of strings"),
        (
            "[conventions.casual_mask]\npolarity = 'block'\n",
            "'casual_mask' is not known; did you mean causal_mask?",
        ),
        ("[arguments.causal_mask]\nTT = 'T'\n", "argument 'TT' is not known; did you mean T?"),
        ("[arguments.causal_mask]\nT = 'size'\n", "'size' is not known"),
        ("polarity = \n", "is not TOML"),
    ],
)
def test_a_mistake_in_declarations_is_told_with_what_was_meant(good, tmp_path, text, told):
    path = write(tmp_path, text, "mine.toml")
    message = unusable(quick("check", good, "--conventions", path))
    assert message.startswith(f"{path}: ")
    assert told in message


def test_a_mistake_in_the_file_beside_the_target_is_told_too(tmp_path):
    write(tmp_path, "[convention]\n", "triu.toml")
    message = unusable(triu("check", write(tmp_path, GOOD)))
    assert message.startswith(f"{tmp_path}/triu.toml: unknown key 'convention'; did you mean [conventions]?")


def test_a_mistake_in_a_project_file_is_told_with_its_table(tmp_path):
    write(tmp_path, "[tool.triu.convention]\n", "pyproject.toml")
    assert "[tool.triu]: unknown key 'convention'" in unusable(quick("check", write(tmp_path, GOOD)))


def test_declarations_that_are_not_there_are_named(good, tmp_path):
    message = unusable(quick("check", good, "--conventions", tmp_path / "nowhere.toml"))
    assert "nowhere.toml: no such conventions file" in message


# spec files and the choice of claims


def test_a_spec_file_with_a_mistake_is_told_with_file_claim_and_field(good, tmp_path):
    path = write(tmp_path, SPEC.replace('"MUST"', '"must"'), "course.toml")
    message = unusable(triu("check", good, "--spec", path))
    assert message.startswith(f'{path}: claim course.first: field level: found "must", expected one of MUST')


def test_a_spec_file_with_a_mistake_cannot_be_listed_either(tmp_path):
    path = write(tmp_path, SPEC.replace('"readable"', '"redable"'), "course.toml")
    assert "did you mean readable?" in unusable(quick("claims", "--spec", path))


@pytest.mark.parametrize("field", ['evidence = ["1 / (T - 1) > 0"]', 'requires = ["sqrt(T - 2) >= 0"]'])
def test_a_formula_that_cannot_be_evaluated_is_told_with_its_claim(good, tmp_path, field):
    result = quick(
        "check", good, "--spec", write(tmp_path, SPEC + field, "course.toml"), "--claims", "course.*"
    )
    assert result.returncode in (2, 3)
    assert "course.first" in result.stdout + result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("pattern", ["nothing.*", "causal-mask", ",", "CAUSAL-MASK.*"])
def test_claims_that_match_nothing_are_no_pass(good, pattern):
    assert f"--claims {pattern}: no claim matches" in unusable(quick("check", good, "--claims", pattern))


def test_claims_that_match_nothing_are_no_pass_of_the_command(good):
    assert "no claim matches" in unusable(triu("check", good, "--claims", "nothing.*"))


def test_claims_on_roles_that_the_candidate_lacks_are_no_pass(good):
    result = quick("check", good, "--claims", "attention.*")
    assert result.returncode == 2
    assert "nothing could be judged" in " ".join(result.stdout.split())


def test_a_claim_that_is_not_there_cannot_be_explained():
    assert "did you mean causal-mask.pattern?" in unusable(quick("claims", "causal-mask.patern"))


def test_a_role_that_is_not_there_has_no_claims():
    assert "causal_mask" in unusable(quick("claims", "--role", "causal-mask"))


@pytest.mark.parametrize(
    "arguments",
    [
        ["check"],
        ["check", "baseline", "--examples", "0"],
        ["check", "baseline", "--seed", "-1"],
        ["check", "baseline", "--timeout", "0"],
        ["check", "baseline", "--nonsense"],
        ["nonsense"],
    ],
    ids=" ".join,
)
def test_a_request_that_is_none_is_status_2(arguments):
    assert quick(*arguments).returncode == 2


# exit statuses and the report in JSON


def test_a_candidate_that_conforms_is_status_0(passed):
    assert (passed[0].returncode, passed[0].stderr) == (0, "")
    assert passed[0].stdout.startswith(f"{passed[1].parent}/submission.py conforms\n")


def test_the_report_in_json_has_the_promised_keys(passed):
    document = json.loads(passed[1].read_text("utf-8"))
    assert {"conforms", "seed", "candidate", "binding", "environment", "counts", "verdicts"} <= set(document)
    assert (document["conforms"], document["seed"]) == (True, 7)


def test_every_verdict_in_json_has_the_promised_keys(passed):
    document = json.loads(passed[1].read_text("utf-8"))
    promised = {"claim", "role", "level", "object", "verdict", "evidence", "margin"}
    assert all(promised <= set(verdict) for verdict in document["verdicts"])
    assert {verdict["verdict"] for verdict in document["verdicts"]} <= set(OUTCOMES)


def test_the_counts_in_json_add_up(passed):
    document = json.loads(passed[1].read_text("utf-8"))
    assert sum(document["counts"].values()) == len(document["verdicts"])


def test_a_verdict_that_is_no_pass_in_json_has_its_failure(faulty):
    document = json.loads((faulty[1] / "report.json").read_text("utf-8"))
    assert document["conforms"] is False
    assert all("failure" in v for v in document["verdicts"] if v["verdict"] in ("failed", "errored"))


def test_writing_a_report_leaves_nothing_else_behind(passed, good):
    assert {p.name for p in good.parent.iterdir()} - {"__pycache__"} == {"submission.py", "report.json"}


# output that cannot be written


@pytest.fixture(scope="module")
def unwritable(good, tmp_path_factory):
    """A run whose JSON goes nowhere and whose Markdown goes somewhere."""
    folder = tmp_path_factory.mktemp("unwritable")
    options = ["--json", folder / "nowhere" / "report.json", "--markdown", folder / "report.md"]
    return triu("check", good, *options, "--claims", "causal-mask.*"), folder


def test_an_unwritable_path_is_told_and_status_2(unwritable):
    assert unwritable[0].returncode == 2
    assert "nowhere/report.json: cannot be written: No such file or directory" in unwritable[0].stderr


def test_the_report_is_printed_although_it_cannot_be_written(unwritable, good):
    assert unwritable[0].stdout.startswith(f"{good} conforms\n")


def test_the_other_file_is_written_nevertheless_and_no_part_of_the_first(unwritable):
    assert [p.name for p in unwritable[1].iterdir()] == ["report.md"]


def test_a_folder_is_no_place_for_a_report(good, tmp_path):
    (tmp_path / "here").mkdir()
    result = quick("check", good, "--claims", "causal-mask.shape", "--json", tmp_path / "here")
    assert result.returncode == 2
    assert "cannot be written: Is a directory" in result.stderr
    assert [p.name for p in tmp_path.rglob("*")] == ["here"]


def test_a_report_that_cannot_be_written_whole_leaves_the_old_one(tmp_path, monkeypatch):
    path = write(tmp_path, "old", "report.json")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, "new")
    assert [(p.name, p.read_text("utf-8")) for p in tmp_path.iterdir()] == [("report.json", "old")]


def test_a_report_is_written_through_a_link(tmp_path):
    (tmp_path / "link.json").symlink_to(tmp_path / "real.json")
    write_whole(tmp_path / "link.json", "new")
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "real.json").read_text("utf-8") == "new"


def test_a_report_to_a_pipe_or_a_device_does_not_replace_it(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    end = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    try:
        write_whole(path, "new")
        assert stat.S_ISFIFO(path.stat().st_mode)
        assert os.read(end, 10) == b"new"
    finally:
        os.close(end)


# text that would steer a terminal or a page


HOSTILE = (
    "x\x1b[31m\x07\x9b2J\u202e\u2066\u2028\r\n# heading | `code` <script>a</script> [a](javascript:b) \ud800"
)
CONTROLS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800]")


def hostile_report():
    """A report in which everything that a candidate can write is hostile."""
    failure = Failure(
        what=HOSTILE,
        expected=HOSTILE,
        observed=[[HOSTILE, 1], [2, 3]],
        index=(0, 0),
        case={"T": HOSTILE},
        inputs={"x": HOSTILE},
        meant=HOSTILE,
        snippet=f"print({HOSTILE!s})\n```\n# out of the fence",
        error={"message": HOSTILE},
    )
    verdicts = [
        Verdict("a.b", "Title", "attention", "MUST", HOSTILE, outcome, Evidence(1), None, HOSTILE, failure)
        for outcome in OUTCOMES
    ]
    told = ("attention", HOSTILE, HOSTILE, {"query": HOSTILE}, {"layout": (HOSTILE, "declared")})
    bound = [BoundObject(*told, judged=True), BoundObject(*told, judged=False, problem=HOSTILE)]
    return Report({"target": HOSTILE, "kind": "file"}, 0, tuple(bound), tuple(verdicts), {}, (HOSTILE,))


@pytest.mark.parametrize("binding", [False, True])
def test_nothing_that_a_candidate_wrote_steers_the_terminal(binding):
    assert CONTROLS.findall(to_text(hostile_report(), binding=binding)) == []


def test_nothing_that_a_candidate_wrote_is_a_control_character_in_markdown():
    assert CONTROLS.findall(to_markdown(hostile_report())) == []


def test_nothing_that_a_candidate_wrote_is_markup_in_markdown():
    lines, fence = [], ""
    for line in to_markdown(hostile_report()).split("\n"):
        ticks = re.match("`{3,}", line)
        if ticks and (not fence or line == fence):
            fence = "" if fence else ticks.group()
        elif not fence:
            lines.append(line)
    outside = "\n".join(lines)
    assert fence == ""
    assert not re.search(r"(?<!\\)<|(?<!\\)\]\(|^# heading|^# out", outside, re.MULTILINE)


def test_a_hostile_report_in_json_is_one_that_any_reader_takes(tmp_path):
    write_whole(tmp_path / "report.json", to_json(hostile_report()))
    assert json.loads((tmp_path / "report.json").read_bytes())["verdicts"][0]["object"].startswith(
        "x\x1b[31m"
    )


def test_a_hostile_message_is_harmless_in_what_the_command_prints(faulty):
    assert CONTROLS.findall(faulty[0].stdout) == []
    assert "bad \\x1b[31m \\x07 \\x202e" in faulty[0].stdout


def test_a_hostile_message_is_harmless_in_the_markdown_that_the_command_writes(faulty):
    assert CONTROLS.findall((faulty[1] / "report.md").read_text("utf-8")) == []
