"""Mutants: each differs from the reference, and is killed by the claim whose business it is; every claim kills.

The matrix that comes out is committed (`reference/mutants/kills.json`, `docs/kill-matrix.md`), so that a change
of it is read as a diff: `make kills` makes it anew.
"""

from __future__ import annotations

import importlib
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from triu.conformance.kills import try_mutant
from triu.reference import mutants
from triu.reference.mutants import Mutant, MutantError, load_mutants
from triu.reports.kills import Kills, idle_claims, kills_text
from triu.spec import load_spec

ROOT = Path(__file__).parents[1]
TABLE = json.loads((ROOT / "reference" / "mutants" / "kills.json").read_text("utf-8"))

MUTANTS = load_mutants()
SPEC = load_spec()


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return str(value.dtype), list(value.shape), value.tolist()
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    return value


def shown_by(mutant: Mutant, package: str) -> str:
    """What the mutant's expression comes to in a package: a value, or the name of what it raises."""
    module = importlib.import_module(f"{package}.{mutant.file}")
    torch.manual_seed(0)
    names = {
        **vars(module),
        "torch": torch,
        "math": math,
        "x": torch.randn(2, 3, 4),
        "memory": torch.randn(2, 5, 4),
        "logits": torch.randn(2, 6),
        "ids": torch.tensor([[1, 2, 3], [4, 5, 0]]),
    }
    try:
        return repr(_plain(eval(mutant.differs, names)))
    except Exception as error:
        return type(error).__name__


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS.keys())
def test_it_differs_from_the_reference(mutant: Mutant) -> None:
    mutant.begin_anew()
    right, wrong = shown_by(mutant, "triu.reference.baseline"), shown_by(mutant, mutant.module)
    assert right != wrong
    assert right not in ("NameError", "SyntaxError", "TypeError", "AttributeError"), right


def committed(mutant: Mutant) -> Kills:
    found = TABLE[mutant.id]
    role = SPEC.claims[mutant.claim].role
    shown, behind = tuple(found["shown"]), tuple(found["behind"])
    return Kills(mutant.id, role, mutant.claim, mutant.misconception, shown, behind)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS.keys())
def test_it_is_killed_as_the_committed_matrix_says(mutant: Mutant) -> None:
    found = try_mutant(mutant)
    assert found.killed, found
    assert found == committed(mutant), "the matrix has changed: make kills, and read the diff"


def test_every_claim_kills_a_mutant() -> None:
    kills = [committed(mutant) for mutant in MUTANTS.values()]
    assert idle_claims(kills, list(SPEC.claims)) == []


def test_the_committed_page_is_made_of_the_committed_table() -> None:
    claims = {claim.id: claim.role for claim in SPEC.claims.values()}
    kills = [committed(mutant) for mutant in MUTANTS.values()]
    page = (ROOT / "docs" / "kill-matrix.md").read_text("utf-8")
    assert page == kills_text(kills, claims, "Kill matrix")


def test_no_two_mutants_of_a_role_are_told_in_the_same_words() -> None:
    told = {(SPEC.claims[mutant.claim].role, mutant.misconception) for mutant in MUTANTS.values()}
    assert len(told) == len(MUTANTS)
    assert len({(m.objects, m.file, m.within, m.changes) for m in MUTANTS.values()}) == len(MUTANTS)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"claim": "x"}, "missing or unknown"),
        ({"id": "Mask!"}, "an id is of small letters"),
        ({"changes": [["no such text", "y"]]}, "occurs 0 times"),
        ({"within": "nothing"}, "has no nothing"),
    ],
)
def test_a_wrong_row_is_refused_and_named(row: dict[str, Any], message: str) -> None:
    good = {
        "id": "mask-x",
        "misconception": "m",
        "correction": "c",
        "claim": "causal-mask.total",
        "file": "masks",
        "objects": ["build_causal_mask"],
        "changes": [["torch.arange(T)", "torch.arange(T) + 1"]],
        "differs": "1",
    }
    table = {"claim": "x"} if row == {"claim": "x"} else {**good, **row}
    with pytest.raises(MutantError, match=message):
        mutants._mutant(table, "masks.toml").source()
