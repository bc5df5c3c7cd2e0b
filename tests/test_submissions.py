"""From what students hand in to a folder of Python files, whatever they hand in."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import zipfile

import pytest
from triu.conformance.candidates.errors import TargetError
from triu.conformance.candidates.session import describe_error
from triu.conformance.grading import clean_copy
from triu.conformance.grading.notebooks import read_notebook
from triu.conformance.grading.submissions import (
    Submission,
    SubmissionError,
    as_submission,
    find_submissions,
    prepare,
)

CODE = "def attention(q, k, v):\n    return v\n"
OPENED = """
import inspect, json, sys
from triu.conformance.candidates import discover, importing
from triu.conformance.candidates.worker import Worker

kind, path, *run = sys.argv[1:]
worker = Worker()
target = {"kind": kind, "path": path}
answer, _ = worker.handle({"op": "open", "target": target}, b"")
modules = worker._modules
found = {
    "objects": {e["path"]: e for e in answer.get("objects", ())},
    "failed": answer.get("failed", [answer.get("error")]),
    "cells": {n: m.__triu_cells__ for n, m in modules.items() if hasattr(m, "__triu_cells__")},
    "source": {
        f"{n}:{k}": inspect.getsource(v)
        for n, m in modules.items() for k, v in vars(m).items()
        if inspect.isfunction(v) and v.__module__ == n or inspect.isclass(v) and v.__module__ == n
    },
    "values": {f"{n}:{k}": v for n, m in modules.items() for k, v in vars(m).items() if type(v) in (int, str)},
}
for name in run:
    module, _, function = name.partition(":")
    try:
        getattr(modules[module], function)()
    except Exception as error:
        found["raised"] = worker._report(error)
print("\\n" + json.dumps(found))
"""


def notebook(*cells, version=4, **metadata):
    """The text of a notebook with these code cells; a tuple is a markdown cell."""
    made = [
        {"cell_type": "markdown" if isinstance(cell, tuple) else "code", "metadata": {}, "source": cell}
        for cell in (c if isinstance(c, str) else ("".join(c),) for c in cells)
    ]
    for cell in made:
        if cell["cell_type"] == "markdown":
            cell["source"] = cell["source"][0]
        else:
            cell.update(outputs=[], **({"execution_count": None} if version == 4 else {"language": "python"}))
    if version == 4:
        return json.dumps({"nbformat": 4, "nbformat_minor": 4, "metadata": metadata, "cells": made})
    for cell in made:
        if cell["cell_type"] == "code":
            cell["input"] = cell.pop("source")
    sheet = {"cells": made, "metadata": {}}
    return json.dumps({"nbformat": 3, "nbformat_minor": 0, "metadata": metadata, "worksheets": [sheet]})


def put(folder, files):
    """Write files, text or bytes by name."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def pack(path, files, method=zipfile.ZIP_DEFLATED):
    """Write a zip of files, text by name or by ZipInfo."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in files:
            archive.writestr(name, content)
    return path


def ready(path, tmp_path):
    return prepare(Submission(path.stem, path, ""), tmp_path / "prepared")


def refused(path, tmp_path):
    with pytest.raises(SubmissionError) as error:
        ready(path, tmp_path)
    return error.value.word, str(error.value)


def opened(prepared, *run):
    """What a worker finds in it, in a process of its own."""
    kind = "file" if prepared.target.is_file() else "folder"
    command = [sys.executable, "-c", OPENED, kind, str(prepared.target), *run]
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def names(prepared):
    return sorted(str(p.relative_to(prepared.folder)) for p in prepared.folder.rglob("*") if p.is_file())


# finding


def test_every_kind_is_found_by_name_and_the_rest_is_listed(tmp_path):
    put(
        tmp_path,
        {"carol.py": CODE, "bob/a.py": CODE, "alice.ipynb": notebook("1"), "notes.pdf": "", ".x": ""},
    )
    pack(tmp_path / "dora.ZIP", [("a.py", CODE)])
    (tmp_path / "link.py").symlink_to(tmp_path / "carol.py")
    found, ignored = find_submissions(tmp_path)
    assert [s.name for s in found] == ["alice", "bob", "carol", "dora"]
    assert ignored == [".x", "link.py", "notes.pdf"]


def test_names_that_collide_get_a_number(tmp_path):
    put(tmp_path, {"a.py": CODE, "a/x.py": CODE, "a.ipynb": notebook("1"), "a-2.py": CODE})
    found, _ = find_submissions(tmp_path)
    assert len({s.name for s in found}) == len(found) == 4
    assert {"a", "a-2", "a-3"} <= {s.name for s in found}


def test_names_stay_apart_where_case_does_not_count(tmp_path):
    put(tmp_path, {"Ann.py": CODE, "ann.ipynb": notebook("1")})
    assert [s.name for s in find_submissions(tmp_path)[0]] == ["Ann", "ann-2"]


def test_one_submission_by_its_path(tmp_path, monkeypatch):
    put(tmp_path, {"a/x.py": CODE, "b.py": CODE, "c.pdf": ""})
    monkeypatch.chdir(tmp_path / "a")
    assert as_submission(tmp_path / "b.py") == find_submissions(tmp_path)[0][1]
    assert as_submission(type(tmp_path)(".")).name == "a"
    with pytest.raises(TargetError, match=r"c\.pdf: is not one"):
        as_submission(tmp_path / "c.pdf")
    with pytest.raises(TargetError, match="no such file"):
        as_submission(tmp_path / "d.py")


def test_a_name_cannot_steer_a_terminal(tmp_path):
    put(tmp_path, {"ev\x1b[31mil\u202e.py": CODE, "with space.py": CODE})
    os.mkdir(os.fsencode(tmp_path) + b"/bad\xff")
    assert [s.name for s in find_submissions(tmp_path)[0]] == ["bad_", "ev_[31mil_", "with space"]


def test_a_digest_tells_whether_contents_changed(tmp_path):
    put(tmp_path, {"a/x.py": CODE, "a/.git/y": "1", "b.py": CODE, "c.py": CODE})

    def digests():
        return {s.name: s.digest for s in find_submissions(tmp_path)[0]}

    before = digests()
    assert before["b"] == before["c"]
    put(tmp_path, {"a/.git/y": "2"})
    assert digests() == before
    put(tmp_path, {"a/x.py": CODE + "\n", "b.py": CODE + "#"})
    (tmp_path / "c.py").touch()
    after = digests()
    assert after["a"] != before["a"]
    assert after["b"] != before["b"]
    assert after["c"] == before["c"]
    (tmp_path / "a/x.py").rename(tmp_path / "a/z.py")
    assert digests()["a"] != after["a"]


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(TargetError, match="expected a folder with submissions"):
        find_submissions(tmp_path / "no")


def test_a_folder_that_is_not_empty_is_not_used(tmp_path):
    put(tmp_path, {"a.py": CODE, "prepared/old.py": ""})
    with pytest.raises(ValueError, match="empty folder"):
        ready(tmp_path / "a.py", tmp_path)


# files and folders


def test_a_file_is_the_target(tmp_path):
    prepared = ready(put(tmp_path, {"a.py": CODE}) / "a.py", tmp_path)
    assert prepared.target.read_text() == CODE
    assert prepared.target.name == "a.py"
    assert prepared.notes == ()


def test_a_folder_with_helpers_is_the_target(tmp_path):
    files = {"a.py": "from utils import f\n" + CODE, "utils.py": "def f(): pass\n", "vocab.txt": "x\r\n"}
    prepared = ready(put(tmp_path / "s", {**files, "__pycache__/a.pyc": "", ".git/x.py": ""}), tmp_path)
    assert prepared.target == prepared.folder
    assert names(prepared) == ["a.py", "utils.py", "vocab.txt"]
    assert (prepared.folder / "vocab.txt").read_bytes() == b"x\r\n"
    assert "a:attention" in opened(prepared)["objects"]


def test_folders_around_the_code_are_entered(tmp_path):
    files = {"README.md": "", "hw/src/a.py": "from b import f\n" + CODE, "hw/src/b.py": "def f(): pass\n"}
    prepared = ready(put(tmp_path / "s", files), tmp_path)
    assert prepared.target == prepared.folder / "hw" / "src"
    assert "a:attention" in opened(prepared)["objects"]


def test_code_in_several_folders_is_found(tmp_path):
    prepared = ready(put(tmp_path / "s", {"part1/a.py": CODE, "part2/b.py": CODE}), tmp_path)
    assert set(opened(prepared)["objects"]) == {"part1.a:attention", "part2.b:attention"}
    assert prepared.notes == ("part1 was taken as a package", "part2 was taken as a package")


@pytest.mark.parametrize("above", ["", "my hw/"])
def test_relative_imports_of_a_package_work_whatever_its_folder_is_called(tmp_path, above):
    files = {
        f"{above}__init__.py": "",
        f"{above}a.py": "from .b import f\n" + CODE,
        f"{above}b.py": "def f(): 0\n",
    }
    found = opened(ready(put(tmp_path / "17 hw", files), tmp_path))
    assert found["failed"] == []
    assert {path.split(".")[-1] for path in found["objects"]} == {"a:attention", "b:f"}


def test_links_are_never_followed(tmp_path):
    folder = put(tmp_path / "s", {"a.py": CODE, "b.py": CODE})
    secret = put(tmp_path, {"secret/key.py": "KEY = 1"}) / "secret"
    (folder / "file.py").symlink_to(secret / "key.py")
    (folder / "folder").symlink_to(secret)
    os.mkfifo(folder / "pipe.py")
    prepared = ready(folder, tmp_path)
    assert names(prepared) == ["a.py", "b.py"]
    assert [note.split(":")[0] for note in prepared.notes] == [
        "file.py was left out",
        "folder was left out",
        "pipe.py was left out",
    ]


def test_names_stay_importable(tmp_path):
    awkward = ["my attention (1).py", "hw2.v1.py", "2.py", "x\x1b[31m.PY"]
    prepared = ready(
        put(tmp_path / "s", {name: f"def f{n}(): 0\n" for n, name in enumerate(awkward)}), tmp_path
    )
    found = opened(prepared)
    assert found["failed"] == []
    assert {e["name"] for e in found["objects"].values()} == {"f0", "f1", "f2", "f3"}
    assert prepared.notes == ("hw2.v1.py was renamed to hw2_v1.py", "x_[31m.PY was renamed to x_[31m.py")


def test_names_that_become_equal_are_kept_apart(tmp_path):
    prepared = ready(put(tmp_path / "s", {"a.b.py": "x = 1\n", "a_b.py": "x = 2\n"}), tmp_path)
    assert names(prepared) == ["a_b.py", "a_b_2.py"]


def test_a_long_name_is_cut(tmp_path):
    prepared = ready(put(tmp_path, {"ä" * 120 + ".py": CODE}) / ("ä" * 120 + ".py"), tmp_path)
    assert prepared.target.read_text() == CODE
    assert len(prepared.target.name.encode()) <= clean_copy.MAX_NAME


@pytest.mark.parametrize(
    ("files", "word", "said"),
    [
        ({"x/.keep": ""}, "empty", "no Python file"),
        ({"report.pdf": "", "ev\x1b[0m.txt": ""}, "empty", "it holds ev_[0m.txt, report.pdf"),
        ({"a.py": " \n", "b.py": ""}, "empty", "hold nothing"),
        ({"a.ipynb": notebook("", ("words",))}, "empty", "hold nothing"),
        ({"a.py": b"x = 1\0"}, "unreadable", "a.py was left out: it holds NUL bytes"),
        ({"a.ipynb": "{"}, "unreadable", "a.ipynb was left out: it is not a notebook"),
        ({"a.ipynb": "[" * 100_000}, "unreadable", "not a notebook"),
        ({"a.ipynb": notebook("x <- 1", language_info={"name": "R"})}, "unreadable", "a notebook in R"),
        ({f"{n}.py": "" for n in range(1000)}, "unreadable", "more than 500 Python files"),
        ({"a.zip": "not a zip"}, "unreadable", "a.zip: is not a zip"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_graded_says_why(tmp_path, files, word, said):
    found = refused(put(tmp_path / "s", files), tmp_path)
    assert found[0] == word
    assert said in found[1]


def test_many_and_large_files_do_not_keep_code_from_being_graded(tmp_path, monkeypatch):
    monkeypatch.setattr(clean_copy, "MAX_FILE", 1000)
    files = {f"{n:04}.txt": "" for n in range(1000)}
    prepared = ready(put(tmp_path / "s", {**files, "z.py": CODE, "w.pt": b"1" * 1001}), tmp_path)
    assert len(names(prepared)) == clean_copy.MAX_FILES
    assert prepared.target.read_text() == CODE
    assert prepared.notes == ("502 files were left out: there are too many",)


def test_a_file_that_is_too_large_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(clean_copy, "MAX_FILE", 1 << 20)
    prepared = ready(put(tmp_path / "s", {"a.py": CODE, "w.pt": os.urandom((1 << 20) + 1)}), tmp_path)
    assert names(prepared) == ["a.py"]
    assert prepared.notes == ("w.pt was left out: it is larger than 1 MB",)


def test_depth_environments_and_compiled_files(tmp_path):
    deep = "/".join("d" * 13)
    files = {"a.py": CODE, f"{deep}/x.py": "", "env/pyvenv.cfg": "", "env/lib/x.py": "", "m.so": ""}
    prepared = ready(put(tmp_path / "s", files), tmp_path)
    assert names(prepared) == ["a.py"]
    assert len(prepared.notes) == 3


def test_notes_have_an_end(tmp_path):
    prepared = ready(put(tmp_path / "s", {"a.py": CODE, **{f"{n}.so": "" for n in range(90)}}), tmp_path)
    assert prepared.notes[-1] == "and 40 more like these"
    assert len(prepared.notes) == clean_copy.MAX_NOTES + 1


# text


@pytest.mark.parametrize(
    ("data", "text", "note"),
    [
        (b"\xef\xbb\xbfx = 'a'\r\ny = 1\rz = 2\n", "x = 'a'\ny = 1\nz = 2\n", ""),
        ("x = 'é'\n".encode("latin-1"), "x = 'é'\n", "is not in UTF-8; it was read as Latin-1"),
        ("# coding: cp1250\nx = 'ł'\n".encode("cp1250"), "# coding: utf-8\nx = 'ł'\n", ""),
        ("#!x\n# -*- coding: ascii -*-\nx = 'ł'".encode(), "#!x\n# -*- coding: utf-8 -*-\nx = 'ł'", "UTF-8"),
        ("# coding: nonsense\nx = 'ł'\n".encode(), "# coding: utf-8\nx = 'ł'\n", "declares an encoding"),
        ("x = 'ł'\r\n".encode("utf-16"), "x = 'ł'\n", "was read as UTF-16"),
        (b"# coding: idna\nx = 1\n", "# coding: utf-8\nx = 1\n", "declares an encoding"),
        (b"x = '\x0c\xe2\x80\xa8'\n", "x = '\x0c\u2028'\n", ""),
    ],
    ids=[
        "bom, crlf, cr",
        "latin-1",
        "cookie",
        "wrong cookie",
        "unknown cookie",
        "utf-16",
        "idna",
        "separators",
    ],
)
def test_text_becomes_utf8_with_plain_line_ends(tmp_path, data, text, note):
    prepared = ready(put(tmp_path, {"a.py": data}) / "a.py", tmp_path)
    assert prepared.target.read_bytes() == text.encode()
    assert note in "".join(prepared.notes)
    assert bool(note) == bool(prepared.notes)


# zips


def test_the_one_folder_in_a_zip_is_entered(tmp_path):
    files = [("hw/a.py", CODE), ("hw/b.py", CODE), ("__MACOSX/hw/._a.py", "x"), ("hw/.DS_Store", "")]
    prepared = ready(pack(tmp_path / "s.zip", files), tmp_path)
    assert prepared.target == prepared.folder
    assert names(prepared) == ["a.py", "b.py"]


def test_a_zip_in_a_students_folder_is_part_of_it(tmp_path):
    folder = put(tmp_path / "s", {"a.py": "# beside\n", "report.pdf": ""})
    pack(folder / "hw.zip", [("hw/a.py", "# inside\n"), ("hw/b.py", CODE), ("hw/c.zip", "x")])
    prepared = ready(folder, tmp_path)
    assert names(prepared) == ["a.py", "b.py", "report.pdf"]
    assert (prepared.folder / "a.py").read_text() == "# beside\n"
    assert "c.zip was left out: it is a zip within a zip; unpack it first" in prepared.notes


def test_a_bad_zip_beside_code_is_noted(tmp_path):
    prepared = ready(put(tmp_path / "s", {"a.py": CODE, "b.zip": "x"}), tmp_path)
    assert prepared.target.read_text() == CODE
    assert "b.zip: is not a zip" in prepared.notes[0]


@pytest.mark.parametrize("name", ["../evil.py", "/evil.py", "a/../../evil.py", "..\\evil.py", "C:\\evil.py"])
def test_a_path_that_leads_out_of_a_zip(tmp_path, name):
    word, said = refused(pack(tmp_path / "s.zip", [("a.py", CODE), (name, CODE)]), tmp_path)
    assert word == "unreadable"
    assert "leads out of it" in said
    assert not list(tmp_path.rglob("evil*"))


def test_backslashes_in_a_zip_are_folders(tmp_path):
    prepared = ready(pack(tmp_path / "s.zip", [("hw\\a.py", CODE), ("hw\\sub\\b.txt", "")]), tmp_path)
    assert names(prepared) == ["a.py", "sub/b.txt"]


def test_a_link_in_a_zip_is_left_out(tmp_path):
    link = zipfile.ZipInfo("b.py")
    link.external_attr = 0o120777 << 16
    prepared = ready(pack(tmp_path / "s.zip", [("a.py", CODE), (link, "/etc/passwd")]), tmp_path)
    assert names(prepared) == ["a.py"]
    assert "b.py was left out: it is a link" in prepared.notes[0]


def test_of_equal_names_in_a_zip_the_last_counts(tmp_path):
    with pytest.warns(UserWarning, match="Duplicate"):
        path = pack(tmp_path / "s.zip", [("a.py", "x = 1\n"), ("a.py", "x = 2\n")])
    prepared = ready(path, tmp_path)
    assert prepared.target.read_text() == "x = 2\n"
    assert "same name" in prepared.notes[0]


def test_a_file_with_the_name_of_a_folder(tmp_path):
    prepared = ready(pack(tmp_path / "s.zip", [("a.py", CODE), ("b", "x"), ("b/c.py", CODE)]), tmp_path)
    assert names(prepared) == ["a.py", "b/c.py"]
    assert prepared.notes == ("b was left out: it has the name of another file or folder",)


def test_a_zip_bomb(tmp_path):
    path = pack(tmp_path / "s.zip", [("a.py", CODE), ("b.txt", b"0" * (clean_copy.MAX_FILE + 1))])
    assert path.stat().st_size < 100_000
    word, said = refused(path, tmp_path)
    assert word == "unreadable"
    assert "zip bomb" in said
    assert sum(p.stat().st_size for p in (tmp_path / "prepared").iterdir()) < 1000


def test_many_files_that_are_large_together(tmp_path, monkeypatch):
    monkeypatch.setattr(clean_copy, "MAX_TOTAL", 1 << 20)
    files = [(f"{n}.txt", b"0" * (1 << 19)) for n in range(8)]
    prepared = ready(pack(tmp_path / "s.zip", [("a.py", CODE), *files]), tmp_path)
    assert sum(p.stat().st_size for p in prepared.folder.iterdir()) < 2 << 20
    assert prepared.notes == ("6 files were left out: there are too many",)


def test_the_size_that_a_header_tells_is_not_believed(tmp_path):
    path = pack(tmp_path / "s.zip", [("a.py", CODE), ("b.txt", b"0" * 1_000_000)])
    data = path.read_bytes()
    assert data.count(struct.pack("<L", 1_000_000)) == 2
    path.write_bytes(data.replace(struct.pack("<L", 1_000_000), struct.pack("<L", 10)))
    prepared = ready(path, tmp_path)
    assert names(prepared) == ["a.py"]
    assert "b.txt was left out: it is damaged" in prepared.notes[0]


def test_an_encrypted_zip(tmp_path):
    data = bytearray(pack(tmp_path / "s.zip", [("a.py", CODE)]).read_bytes())
    data[6] |= 1
    data[data.index(b"PK\1\2") + 8] |= 1
    (tmp_path / "s.zip").write_bytes(data)
    assert refused(tmp_path / "s.zip", tmp_path) == (
        "unreadable",
        "s.zip: is encrypted; hand it in without a password",
    )


def test_only_deflate_is_unpacked(tmp_path):
    path = pack(tmp_path / "s.zip", [("a.py", CODE)], zipfile.ZIP_LZMA)
    assert refused(path, tmp_path)[0] == "empty"


# notebooks

CELLS = (
    "%matplotlib inline\nimport math\n!pip install x \\\n  y\nhere = !ls\nmath.pi?\nif True:\n    !ls\n",
    ("# Attention",),
    "from __future__ import annotations\nfrom helper import D\nx = undefined",
    "y = 1\nraise SystemExit('\\x1b[31m')",
    "def broken(:\n    pass",
    "%%bash\nrm -rf x",
    "%%time\nclass Norm:\n    '''Norms.'''\n    def forward(self, x: Unknown): return x",
    "raise KeyboardInterrupt",
    "# hides nothing\ndef attention(q, k, v):\n    '''Mask: True = allowed.'''\n    %time z = y\n    return z\n",
    "def fails():\n    return 1 / 0\n",
    "get_ipython().run_line_magic('a', 'b').c\ndisplay(1)\ntext = '''\n%time\n!x\n'''\nz = (5\n%3)",
    "if __name__ == '__main__':\n    y = 2",
)


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """A notebook in a folder with a helper, prepared and opened."""
    folder = tmp_path_factory.mktemp("notebook")
    files = {"hw 2.ipynb": notebook(*CELLS), "helper.py": "D = 3\n"}
    prepared = ready(put(folder / "s", files), folder)
    return prepared, opened(prepared, "hw_2:fails")


def test_cells_that_fail_are_told_by_number_and_the_rest_runs(graded):
    assert graded[1]["cells"]["hw_2"] == [
        [2, "NameError: name 'undefined' is not defined"],
        [3, "SystemExit: \x1b[31m"],
        [4, "SyntaxError: invalid syntax (line 1 of the cell)"],
        [7, "KeyboardInterrupt"],
    ]


def test_cells_that_fail_are_among_what_was_not_imported(graded):
    prepared, found = graded
    assert [(error["type"], error["importing"]) for error in found["failed"]] == [
        ("NameError", "hw_2.ipynb, cell 2"),
        ("SystemExit", "hw_2.ipynb, cell 3"),
        ("SyntaxError", "hw_2.ipynb, cell 4"),
        ("KeyboardInterrupt", "hw_2.ipynb, cell 7"),
    ]
    said = prepared.told(describe_error(found["failed"][0]))
    assert said == "NameError: name 'undefined' is not defined (hw 2.ipynb, cell 2, line 3: x = undefined)"


def test_what_cells_define_is_the_submissions_own(graded):
    objects = graded[1]["objects"]
    assert {"hw_2:attention", "hw_2:Norm", "hw_2:fails"} == {p for p in objects if p.startswith("hw_2")}
    assert objects["hw_2:attention"]["own"]
    assert "Mask: True = allowed." in objects["hw_2:attention"]["doc"]
    assert objects["hw_2:Norm"]["doc"].strip().startswith("Norms.")


def test_source_and_places_are_real(graded):
    prepared, found = graded
    assert found["source"]["hw_2:attention"].startswith("def attention(q, k, v):\n    '''Mask")
    assert found["source"]["hw_2:Norm"].startswith("class Norm:\n    '''Norms")
    raised = found["raised"]
    assert (raised["type"], raised["code"]) == ("ZeroDivisionError", "return 1 / 0")
    assert prepared.place(raised["file"], raised["line"]) == "hw 2.ipynb, cell 9, line 2"
    assert prepared.place("helper.py", 1) == "helper.py, line 1"


def test_values_of_cells(graded):
    values = graded[1]["values"]
    assert (values["hw_2:y"], values["hw_2:z"], values["hw_2:D"]) == (1, 2, 3)
    assert values["hw_2:text"] == "\n%time\n!x\n"
    assert "hw_2:here" not in values


def test_what_is_ignored_is_noted(graded):
    assert graded[0].notes == (
        "hw 2.ipynb, cell 1, line 1 was ignored: %matplotlib inline",
        "hw 2.ipynb, cell 1, line 3 was ignored: !pip install x \\",
        "hw 2.ipynb, cell 1, line 5 was ignored: here = !ls",
        "hw 2.ipynb, cell 1, line 6 was ignored: math.pi?",
        "hw 2.ipynb, cell 1, line 8 was ignored: !ls",
        "hw 2.ipynb, cell 5 was skipped: it is a %%bash cell",
        "hw 2.ipynb, cell 10: get_ipython() was ignored",
    )


def test_a_notebook_alone_in_the_old_format(tmp_path):
    path = put(tmp_path, {"hw.ipynb": notebook("a = 1", CODE, version=3)}) / "hw.ipynb"
    assert set(opened(ready(path, tmp_path))["objects"]) == {"hw:attention"}


@pytest.mark.parametrize(
    "name", ["test_hw", "_hw", "2", "torch", "random", "class", "a.b", "hw-2 (1)", "hw_test"]
)
def test_a_notebook_of_any_name_is_imported(tmp_path, name):
    path = put(tmp_path, {f"{name}.ipynb": notebook(CODE)}) / f"{name}.ipynb"
    target = ready(path, tmp_path)
    module = next(p.stem for p in target.folder.glob("*.py"))
    assert module.isidentifier()
    assert module not in ("torch", "random", "class")
    if name in ("test_hw", "_hw"):
        assert set(opened(target)["objects"]) == {f"{module}:attention"}


def test_notebooks_and_files_of_one_name_are_kept_apart(tmp_path):
    files = {
        "a.py": "x = 1\n",
        "a.ipynb": notebook(CODE),
        "p/__init__.py": "",
        "p/a.ipynb": notebook("", CODE),
    }
    prepared = ready(put(tmp_path / "s", files), tmp_path)
    assert set(opened(prepared)["objects"]) == {"a_2:attention", "p.a:attention"}
    assert {name: cells.ranges for name, cells in prepared.cells.items()} == {
        "a_2.ipynb.py": ((1, 2, 4),),
        "a.ipynb.py": ((2, 4, 6),),
    }


def test_a_file_that_a_cell_writes_is_a_file(tmp_path):
    cells = (
        "%%writefile model.py\n" + CODE,
        "from model import attention\nd = 1",
        "%%writefile ../x.py\ny = 1",
    )
    prepared = ready(put(tmp_path, {"hw.ipynb": notebook(*cells)}) / "hw.ipynb", tmp_path)
    found = opened(prepared)
    assert found["cells"] == {"hw": []}
    assert set(found["objects"]) == {"model:attention"}
    assert not list(tmp_path.rglob("x.py"))


@pytest.mark.parametrize(
    "line",
    [
        "x %= 3",
        "x = y % z",
        "x['a=%d' % i] = 1",
        "x != y",
        "s = 'it\\'s ('",
        "# it's (",
        "x = [1,\n%s\n]",
        "x = 5 \\\n%s",
        "'''\n!x\n'''",
        'r"""\\d"""',
        "f(a)",
    ],
)
def test_python_is_not_taken_for_magic(line):
    read = read_notebook(notebook(line + "\n%time y = 1"))
    assert read.text == f"# cell 1\n{line}\ny = 1"
    assert read.notes == ()


def test_nothing_of_a_notebook_becomes_code_of_the_module(tmp_path):
    name = "a'''\nimport os; os._exit(3)\n'''.ipynb"
    prepared = ready(put(tmp_path, {name: notebook("x = 1\ry = '\ud800\0'", "z = 2")}) / name, tmp_path)
    found = opened(prepared)
    (cells,) = found["cells"].values()
    assert [number for number, _ in cells] == [1]
    assert [v for k, v in found["values"].items() if k.endswith(":z")] == [2]
