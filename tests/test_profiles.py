"""Assignments: what is read and refused, how verdicts become points, what students get to start from."""

import ast
import re
import subprocess
import sys
import tomllib
from dataclasses import replace
from decimal import Decimal

import pytest
from triu.conformance import check
from triu.conformance.candidates.errors import TriuError
from triu.conformance.grading import starter as starter_module
from triu.conformance.grading.profile import ProfileError, load_profile, score, seed_for, shipped_profiles
from triu.conformance.grading.starter import starter
from triu.spec import Item, Limits, Milestone, Profile, Verdict, load_spec

SPEC = load_spec()

SMALL = """
title = "Masks"
required = ["causal_mask"]

[roles]
attention = "look_back"

[conventions.causal_mask]
polarity = "block"

[arguments.attention]
mask = "hide"

[limits]
total_seconds = 30.5

[weights]
SHOULD = 2

[[milestone]]
id = "A"
title = "Milestone A"

[[milestone.item]]
id = "form"
title = "The form"
claims = ["causal-mask.entries", "causal-mask.shape"]
points = 0.1

[[milestone.item]]
id = "past"
title = "The past"
claims = ["causal-mask.total, causal-mask.r*"]
points = "2.25"
partial = false
hidden = true

[[milestone]]
id = "B"
title = "Milestone B"

[[milestone.item]]
id = "scores"
title = "The scores"
claims = ["attention.scaled"]
points = 3
"""


def read(tmp_path, text=SMALL):
    path = tmp_path / "small.toml"
    path.write_text(text, "utf-8")
    return load_profile(path, SPEC)


# reading


def test_a_profile_is_read_as_it_is_written(tmp_path):
    profile = read(tmp_path)
    assert (profile.id, profile.title, profile.required) == ("small", "Masks", ("causal_mask",))
    assert profile.roles == {"attention": ("look_back",)}
    assert profile.conventions == {"causal_mask": {"polarity": "block"}}
    assert profile.arguments == {"attention": {"mask": "hide"}}
    assert profile.limits == Limits(total_seconds=30.5)
    assert profile.weights == {"MUST": 3, "SHOULD": 2, "MAY": 0}
    form, past, scores = profile.items
    assert form.claims == ("causal-mask.shape", "causal-mask.entries"), "the spec's order"
    assert past.claims == ("causal-mask.total", "causal-mask.rows", "causal-mask.repeatable")
    assert (form.partial, form.hidden, past.partial, past.hidden) == (True, False, False, True)
    assert (form.milestone, scores.milestone) == ("A", "B")


def test_points_are_exact(tmp_path):
    profile = read(tmp_path)
    assert [item.points for item in profile.items] == [Decimal("0.1"), Decimal("2.25"), Decimal(3)]
    assert profile.points == Decimal("5.35")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            'title = "Masks"',
            'titel = "Masks"',
            "key 'titel' is not known; did you mean title? (known: title,",
        ),
        ('title = "Masks"', "", "title: found nothing, expected a text"),
        ('title = "Masks"', 'title = " "', "title: found ' ', expected a text"),
        (
            'required = ["causal_mask"]',
            'required = ["causal_maks"]',
            "role 'causal_maks' is not known; did you",
        ),
        (
            'required = ["causal_mask"]',
            'required = "causal_mask"',
            "required: found 'causal_mask', expected a",
        ),
        (
            'attention = "look_back"',
            'attentoin = "f"',
            "roles: role 'attentoin' is not known; did you mean atten",
        ),
        (
            'attention = "look_back"',
            'attention = "f()"',
            "roles.attention: found 'f()', expected the name of a",
        ),
        ("[conventions.causal_mask]", "[conventions.mask]", "conventions: role 'mask' is not known"),
        (
            'polarity = "block"',
            'polarty = "block"',
            "convention 'polarty' is not known; did you mean polarity?",
        ),
        (
            'polarity = "block"',
            'polarity = "blocked"',
            "conventions.causal_mask.polarity: value 'blocked' is not",
        ),
        (
            'polarity = "block"',
            "polarity = true",
            "conventions.causal_mask.polarity: value True is not known",
        ),
        (
            'mask = "hide"',
            'maks = "hide"',
            "arguments.attention: argument 'maks' is not known; did you mean mask?",
        ),
        (
            'mask = "hide"',
            'mask = "a b"',
            "arguments.attention.mask: found 'a b', expected the name of a param",
        ),
        (
            "total_seconds = 30.5",
            "total_secs = 3",
            "limits: key 'total_secs' is not known; did you mean total_s",
        ),
        (
            "total_seconds = 30.5",
            "total_seconds = 0",
            "limits.total_seconds: found 0, expected a number above 0",
        ),
        (
            "total_seconds = 30.5",
            "total_seconds = inf",
            "limits.total_seconds: found Infinity, expected a number",
        ),
        (
            "total_seconds = 30.5",
            "memory_mb = 0.5",
            "limits.memory_mb: found 0.5, expected a whole number above",
        ),
        ("SHOULD = 2", "SHALL = 2", "weights: key 'SHALL' is not known"),
        ("SHOULD = 2", "SHOULD = -1", "weights.SHOULD: found -1, expected a whole number, 0 or more"),
        ("SHOULD = 2", "MUST = 0", "item form: none of its claims counts, as the weight of MUST is 0"),
        ('id = "B"', 'id = "A"', "milestone A: this id occurs twice"),
        ('id = "past"', 'id = "form"', "item form: this id occurs twice"),
        ('id = "past"', 'id = "the past"', "milestone A: item 2: id: found 'the past', expected letters"),
        (
            '"attention.scaled"',
            '"attention.scald"',
            "item scores: claims: 'attention.scald' matches no claim; did ",
        ),
        ('"attention.scaled"', '"nothing.*"', "'nothing.*' matches no claim (`triu claims` lists all ids)"),
        ('"attention.scaled"', '"attention.scaled,"', "item scores: claims: '' matches no claim"),
        ('"attention.scaled"', "", "item scores: claims: found [], expected a list of ids or patterns"),
        ('"attention.scaled"', '"causal-mask.shape"', "causal-mask.shape belongs to item form already"),
        ("hidden = true", "hidden = 1", "item past: hidden: found 1, expected true or false"),
        ("points = 3", "points = -1", "item scores: points: found -1, expected points, 0 or more"),
        ("points = 3", 'points = "ten"', "item scores: points: found 'ten', expected points"),
        ("points = 3", "points = nan", "item scores: points: found NaN, expected points"),
        ("points = 3", "points = 1.005", "item scores: points: found 1.005, expected points"),
        ("points = 3", "points = true", "item scores: points: found True, expected points"),
        ("points = 3", "", "item scores: points: found nothing, expected points"),
        ("points = 3", "point = 3", "milestone B: item 1: key 'point' is not known; did you mean points?"),
        ("points = 3", "points = 3 3", "is not TOML"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path, old, new, told):
    assert SMALL.count(old) == 1
    with pytest.raises(ProfileError) as error:
        read(tmp_path, SMALL.replace(old, new, 1))
    assert isinstance(error.value, TriuError)
    assert str(error.value).startswith(f"{tmp_path / 'small.toml'}: ")
    assert told in str(error.value)


def test_a_hidden_item_needs_claims(tmp_path):
    with pytest.raises(ProfileError, match="item past: claims: found nothing, expected a list of ids"):
        read(tmp_path, SMALL.replace('claims = ["causal-mask.total, causal-mask.r*"]\n', ""))


def test_a_profile_without_milestones_or_items_is_refused(tmp_path):
    with pytest.raises(
        ProfileError, match=r"milestone: found nothing, expected at least one table \[\[milest"
    ):
        read(tmp_path, 'title = "x"')
    with pytest.raises(ProfileError, match=r"milestone A: item: found nothing, .* \[\[milestone.item\]\]"):
        read(tmp_path, 'title = "x"\n[[milestone]]\nid = "A"\ntitle = "x"')


def test_a_profile_that_is_not_there_is_said_with_those_that_are():
    with pytest.raises(
        ProfileError, match=r"lesson-58: no such .* did you mean lesson-85\? \(shipped: class-7,"
    ):
        load_profile("lesson-58", SPEC)


def test_what_is_no_text_file_is_refused(tmp_path):
    with pytest.raises(ProfileError, match="cannot be read"):
        load_profile(tmp_path, SPEC)
    (tmp_path / "bytes.toml").write_bytes(b"title = '\xff'")
    with pytest.raises(ProfileError, match="is not TOML"):
        load_profile(tmp_path / "bytes.toml", SPEC)


# what is shipped


@pytest.mark.parametrize(
    ("name", "points", "milestones"),
    [
        (
            "class-7",
            100,
            {
                "masks": 18,
                "attention": 25,
                "heads": 20,
                "positions": 17,
                "cross-attention": 10,
                "next-token": 10,
            },
        ),
        ("lesson-85", 100, {"A": 34, "B": 32, "C": 20, "show-it-off": 14}),
        ("notes-decoder", 100, {"masks": 25, "attention": 38, "teacher-forcing": 37}),
    ],
)
def test_a_shipped_profile_sums_to_what_it_says(name, points, milestones):
    profile = load_profile(name, SPEC)
    assert profile.points == points
    assert {m.id: m.points for m in profile.milestones} == milestones
    assert any(item.hidden for item in profile.items)


def test_these_profiles_are_shipped():
    assert shipped_profiles() == ["class-7", "full", "lesson-85", "notes-decoder"]


@pytest.mark.parametrize("name", ["class-7", "lesson-85", "notes-decoder"])
def test_every_must_claim_of_a_required_role_counts(name):
    profile = load_profile(name, SPEC)
    owed = {
        claim.id
        for claim in SPEC.claims.values()
        if claim.level == "MUST" and {claim.role, *claim.partners} <= set(profile.required)
    }
    assert owed <= set(profile.claims)


def test_full_has_every_claim_at_the_points_of_its_level():
    full = load_profile("full", SPEC)
    assert set(full.claims) == set(SPEC.claims)
    assert {m.id for m in full.milestones} == {role.replace("_", "-") for role in SPEC.roles}
    for item in full.items:
        assert item.points == sum(full.weights[SPEC.claims[claim].level] for claim in item.claims)


def test_the_reference_gets_all_points_for_masks():
    profile = load_profile("lesson-85", SPEC)
    items = tuple(item for item in profile.items if all(c.startswith("causal-mask.") for c in item.claims))
    assert len(items) == 4
    profile = replace(profile, milestones=(Milestone("A", "A", items),))
    report = check("baseline", in_process=True, claims="causal-mask.*")
    scored = score(profile, report.verdicts, report.provides)
    assert [s.score for s in scored] == [item.points for item in items]
    assert {s.status for s in scored} == {"passed"}


# scoring


def verdict(claim, outcome, *, level="MUST", name="f", role="causal_mask", reason=""):
    return Verdict(claim, claim, role, level, name, outcome, reason=reason)


def scored(verdicts, *, points="10", partial=True, provided=("causal_mask",), required=(), weights=None):
    claims = tuple(dict.fromkeys(v.claim for v in verdicts if not v.claim.startswith("other")))
    item = Item("i", "i", "m", claims, Decimal(points), partial)
    profile = Profile("p", "p", "", tuple(required), (Milestone("m", "m", (item,)),))
    if weights:
        profile = replace(profile, weights=weights)
    (found,) = score(profile, verdicts, provided)
    return str(found.score), found.status


def test_claims_count_by_the_weight_of_their_level():
    good, bad, advice = verdict("a", "passed"), verdict("b", "failed"), verdict("c", "failed", level="SHOULD")
    assert scored([good]) == ("10.00", "passed")
    assert scored([bad]) == ("0.00", "failed")
    assert scored([good, bad]) == ("5.00", "partial")
    assert scored([good, advice]) == ("7.50", "partial")
    assert scored([good, verdict("b", "errored")]) == ("5.00", "partial")
    assert scored([good, advice], weights={"MUST": 1, "SHOULD": 1, "MAY": 0}) == ("5.00", "partial")


def test_a_level_that_weighs_nothing_changes_nothing():
    may = verdict("b", "failed", level="MAY")
    assert scored([verdict("a", "passed"), may]) == ("10.00", "passed")
    assert scored([verdict("a", "passed"), may], partial=False) == ("10.00", "passed")
    assert scored([verdict("a", "failed"), verdict("b", "passed", level="MAY")]) == ("0.00", "failed")


def test_halves_are_rounded_up_and_never_beyond_the_points():
    three = [verdict("a", "passed"), verdict("b", "failed"), verdict("c", "failed")]
    assert scored(three, points="1") == ("0.33", "partial")
    assert scored(three[:2], points="0.01") == ("0.01", "partial")
    assert scored([verdict("a", "passed")], points="0.005") == ("0.005", "passed")
    assert scored([verdict("a", "passed")], points="0") == ("0.00", "passed")


def test_of_several_objects_the_share_that_passes_earns():
    objects = [verdict("a", o, name=n) for n, o in (("f", "passed"), ("g", "failed"), ("h", "passed"))]
    assert scored(objects) == ("6.67", "partial")
    assert scored([*objects, verdict("b", "passed")]) == ("8.33", "partial")
    assert scored([objects[0], verdict("a", "unsupported", name="g")]) == ("10.00", "passed")


def test_what_is_blocked_costs_once():
    failed = verdict("a", "failed")
    waiting = [verdict(c, "blocked", reason="rests on a") for c in ("b", "c", "d")]
    assert scored([failed, verdict("e", "passed"), *waiting]) == ("5.00", "partial")


def test_what_is_blocked_by_a_failure_that_no_item_counts_is_failed():
    good, waiting = verdict("a", "passed"), verdict("b", "blocked", reason="rests on other")
    assert scored([good, waiting, verdict("other", "failed")]) == ("5.00", "partial")
    assert scored([good, waiting, verdict("other", "inconclusive")]) == ("10.00", "passed")


def test_a_wrong_mask_gets_no_full_points_where_the_claim_that_shows_it_is_in_no_item(tmp_path):
    items = '[[milestone]]\nid = "A"\ntitle = "A"\n[[milestone.item]]\nid = "i"\ntitle = "i"\npoints = 10\n'
    (tmp_path / "p.toml").write_text(
        f'title = "p"\n{items}claims = ["causal-mask.shape", "causal-mask.pattern"]\n', "utf-8"
    )
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "late.py").write_text(
        "import torch\ndef build_causal_mask(T):\n    return torch.triu(torch.ones(T, T, dtype=torch.bool), 2)\n"
    )
    command = [sys.executable, "-m", "triu.conformance", "grade", folder, "--profile", tmp_path / "p.toml"]
    done = subprocess.run(
        [*map(str, command), "--out", str(tmp_path / "out"), "--isolation", "process", "-q"],
        capture_output=True,
        text=True,
    )
    assert "median is 5" in done.stdout, done.stdout + done.stderr


def test_an_item_that_is_blocked_altogether_was_not_shown_to_work():
    cause = verdict("other", "failed")
    assert scored([cause, verdict("a", "blocked", reason="rests on other")]) == ("0.00", "failed")


@pytest.mark.parametrize("outcome", ["suite_fault", "inconclusive"])
def test_what_waits_for_a_fault_of_the_suite_is_not_judged(outcome):
    cause = verdict("other", outcome)
    waiting = verdict("a", "blocked", reason="rests on other")
    assert scored([cause, waiting]) == ("0.00", "not judged")
    assert scored([cause, waiting, verdict("b", "passed")], partial=False) == ("10.00", "passed")
    elsewhere = verdict("other", "failed", name="g")
    assert scored([cause, elsewhere, waiting]) == ("0.00", "not judged"), "another object's failure"


@pytest.mark.parametrize("outcome", ["suite_fault", "inconclusive", "unsupported"])
def test_what_is_nobodys_failure_counts_neither_way(outcome):
    assert scored([verdict("a", outcome), verdict("b", "passed")]) == ("10.00", "passed")
    assert scored([verdict("a", outcome), verdict("b", "failed")]) == ("0.00", "failed")
    assert scored([verdict("a", outcome)]) == ("0.00", "not judged")


def test_all_or_nothing():
    good = verdict("a", "passed")
    assert scored([good, verdict("b", "passed")], partial=False) == ("10.00", "passed")
    assert scored([good, verdict("b", "failed")], partial=False) == ("0.00", "failed")
    blocked = verdict("b", "blocked", reason="rests on other")
    assert scored([good, blocked, verdict("other", "failed")], partial=False) == ("0.00", "failed")
    assert scored([good, verdict("b", "unsupported")], partial=False) == ("10.00", "passed")
    assert scored([verdict("b", "unsupported")], partial=False) == ("0.00", "not judged")


def test_an_item_on_a_role_that_is_not_provided_is_missing():
    absent = verdict("a", "unsupported", name="—", role="attention")
    assert scored([absent]) == ("0.00", "missing")
    assert scored([absent], provided=("attention",)) == ("0.00", "not judged")
    pair = verdict("a", "unsupported", name="—", role="attention + causal_mask")
    assert scored([pair]) == ("0.00", "missing")
    assert scored([pair], provided=("attention + padding_mask", "causal_mask")) == ("0.00", "not judged")


def test_a_required_role_that_is_not_provided_is_owed():
    absent = verdict("a", "unsupported", name="—", role="attention")
    good = verdict("b", "passed")
    assert scored([absent, good]) == ("10.00", "passed"), "it is not required"
    assert scored([absent, good], required=("attention",)) == ("5.00", "partial")
    assert scored([absent, good], required=("attention",), partial=False) == ("0.00", "failed")
    assert scored([absent], required=("attention",)) == ("0.00", "missing")


def test_verdicts_must_be_complete():
    item = Item("i", "i", "m", ("a", "b"), Decimal(1))
    profile = Profile("p", "p", "", (), (Milestone("m", "m", (item,)),))
    with pytest.raises(ValueError, match="no verdict on b; judge all claims of p first"):
        score(profile, [verdict("a", "passed")], ("causal_mask",))


def test_an_item_keeps_its_verdicts():
    item = Item("i", "i", "m", ("a", "b"), Decimal(1))
    profile = Profile("p", "p", "", (), (Milestone("m", "m", (item,)),))
    verdicts = [verdict("b", "passed"), verdict("c", "failed"), verdict("a", "passed")]
    (found,) = score(profile, verdicts, ("causal_mask",))
    assert [v.claim for v in found.verdicts] == ["a", "b"]


# seeds


def test_a_seed_is_that_of_secret_submission_and_version():
    assert seed_for(b"key", "a.py", "1.0") == seed_for(b"key", "a.py", "1.0") == 0x28B971DB
    others = [
        (b"kez", "a.py", "1.0"),
        (b"key", "b.py", "1.0"),
        (b"key", "a.py", "1.1"),
        (b"key", "a.py1", ".0"),
    ]
    seeds = {seed_for(*other) for other in others}
    assert len(seeds) == 4
    assert seed_for(b"key", "a.py", "1.0") not in seeds
    assert all(0 <= seed < 2**32 for seed in seeds)
    assert seed_for(b"key", "\udcff.py", "1.0") != seed_for(b"key", "?.py", "1.0"), "a name that is not UTF-8"


def test_a_seed_needs_a_secret():
    with pytest.raises(ValueError, match="the secret is empty"):
        seed_for(b"", "a.py", "1.0")


# starters


def written(tmp_path, profile):
    for name, text in starter(profile, SPEC).items():
        (tmp_path / name).write_text(text, "utf-8")
    return tmp_path / "submission.py"


@pytest.mark.parametrize("name", shipped_profiles())
def test_a_starter_binds_every_role_and_earns_nothing(tmp_path, name):
    profile = load_profile(name, SPEC)
    report = check(written(tmp_path, profile), in_process=True, claims=",".join(profile.claims))
    roles = set(profile.required or SPEC.roles)
    assert roles <= {bound.role for bound in report.binding}
    items = score(profile, report.verdicts, report.provides)
    assert sum(s.score for s in items) == 0
    passed = {v.claim for v in report.verdicts if v.verdict == "passed"}
    assert passed <= {"causal-mask.edge"}, "which takes any error for a refusal"


@pytest.mark.parametrize("name", shipped_profiles())
def test_every_function_of_a_starter_is_documented_and_raises(name):
    files = starter(load_profile(name, SPEC), SPEC)
    tree = ast.parse(files["submission.py"])
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    assert functions
    for function in functions:
        assert ast.unparse(function.body[-1]) == "raise NotImplementedError"
        assert function.name == "__init__" or ast.get_docstring(function)
    assert all(len(line) <= 120 for line in files["submission.py"].splitlines())
    assert "~" not in files["submission.py"]


def test_a_starter_says_what_true_means_in_a_mask(tmp_path):
    files = starter(read(tmp_path, SMALL), SPEC)
    assert "Fixed (polarity): True or 1 marks what is blocked." in files["submission.py"]
    assert tomllib.loads(files["triu.toml"])["conventions"]["causal_mask"] == {"polarity": "block"}
    files = starter(load_profile("lesson-85", SPEC), SPEC)
    assert tomllib.loads(files["triu.toml"])["conventions"] == {"decoder_block": {"activation": "relu"}}
    assert "True or 1 marks what is blocked. Say so here if you decide otherwise." in files["submission.py"]
    assert "True or 1 in the mask is allowed. Say so here if you decide otherwise." in files["submission.py"]


def test_a_shipped_assignment_fixes_no_convention_that_the_code_may_state_itself():
    for name in shipped_profiles():
        fixed = load_profile(name, SPEC).conventions
        assert fixed == ({"decoder_block": {"activation": "relu"}} if name == "lesson-85" else {})


def test_a_starter_takes_the_names_that_are_declared(tmp_path):
    profile = read(tmp_path, SMALL.replace('title = "Masks"', 'title = "Masks \\"\\"\\" \\\\"'))
    files = starter(profile, SPEC)
    ast.parse(files["submission.py"])
    assert "def look_back(query, key, value, hide=None):" in files["submission.py"]
    assert "hide: (T, S), or with the leading axes" in files["submission.py"]
    assert tomllib.loads(files["triu.toml"]) == {
        "roles": {"attention": ["look_back"]},
        "conventions": {"causal_mask": {"polarity": "block"}},
        "arguments": {"attention": {"mask": "hide"}},
    }
    report = check(written(tmp_path, profile), in_process=True, claims="attention.shape")
    assert {b.object: b.role for b in report.binding}["look_back"] == "attention"


def test_the_readme_has_every_item_and_the_command(tmp_path):
    profile = read(tmp_path)
    readme = starter(profile, SPEC)["README.md"]
    assert "triu check submission.py" in readme
    assert "There are 5.35 points in all." in readme
    assert "### Milestone A (2.35 points)" in readme
    assert "- The past: 2.25 (with inputs that are not shown)" in readme
    assert "- The form: 0.1\n" in readme
    assert "You may leave out `look_back`;" in readme


def test_the_command_of_the_readme_runs(tmp_path):
    profile = load_profile("lesson-85", SPEC)
    path = written(tmp_path, profile)
    command = re.search(r"triu (check .* --claims) '(.*)'", (tmp_path / "README.md").read_text("utf-8"))
    assert command is not None
    done = subprocess.run(
        [sys.executable, "-m", "triu.conformance", *command[1].split(), command[2]],
        capture_output=True,
        text=True,
        cwd=path.parent,
    )
    assert done.returncode == 1, done.stderr
    assert "does not conform" in done.stdout


def test_a_role_without_a_starter_is_said(monkeypatch):
    monkeypatch.delitem(starter_module.STUBS, "attention")
    with pytest.raises(ProfileError, match="there is no starter for role 'attention'"):
        starter(load_profile("lesson-85", SPEC), SPEC)
