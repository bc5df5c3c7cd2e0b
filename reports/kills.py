"""The kill matrix: which claim kills which mutant."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Kills:
    """One mutant, with the role and the claim whose business it is, and what was found.

    ``shown`` are the claims that it breaks and that a report shows; ``behind`` those that it breaks too, but
    that rest on one of them, and so are blocked in a report.
    """

    mutant: str
    role: str
    claim: str
    misconception: str
    shown: tuple[str, ...]
    behind: tuple[str, ...]

    @property
    def killed(self) -> bool:
        return self.claim in self.shown

    @property
    def killers(self) -> tuple[str, ...]:
        return (*self.shown, *self.behind)


def idle_claims(kills: Sequence[Kills], claims: Sequence[str]) -> list[str]:
    """The claims that kill no mutant."""
    killing = {claim for kill in kills for claim in kill.killers}
    return [claim for claim in claims if claim not in killing]


def kills_text(kills: Sequence[Kills], claims: Mapping[str, str], title: str = "") -> str:
    """Survivors, claims that kill nothing, and for each role its matrix and what killed each mutant.

    ``claims`` maps each claim to its role.  The same text is a Markdown page: the matrices are fenced.
    """
    survivors = [kill for kill in kills if not kill.killed]
    idle = idle_claims(kills, list(claims))
    lines = [f"# {title}", ""] if title else []
    lines.append(
        f"{len(kills)} mutants, {len(kills) - len(survivors)} killed by their claims; "
        f"{len(claims)} claims, {len(claims) - len(idle)} of which kill at least one."
    )
    lines += ["", f"Survivors: {', '.join(kill.mutant for kill in survivors) or 'none'}"]
    for kill in survivors:
        what = ", ".join(kill.shown) or "nothing"
        lines.append(f"- {kill.mutant}: not shown as a failure of {kill.claim}; shown: {what}")
    lines += ["", f"Claims that kill nothing: {', '.join(idle) or 'none'}"]
    lines += [
        "",
        "In a matrix, `#` is the claim whose business a mutant is, `x` another one that a report shows, and `o` one",
        "that it breaks too, behind another. The last number of a row counts the mutants that its claim kills.",
    ]
    for role in dict.fromkeys(kill.role for kill in kills):
        lines += ["", *_of_role(role, [kill for kill in kills if kill.role == role], claims)]
    return "\n".join(lines) + "\n"


def _of_role(role: str, kills: Sequence[Kills], claims: Mapping[str, str]) -> list[str]:
    lines = [f"## {role}", ""]
    for n, kill in enumerate(kills, 1):
        lines.append(f"{n}. **{kill.mutant}** {kill.misconception}")
    rows = [c for c, of in claims.items() if of == role or any(c in kill.killers for kill in kills)]
    size = max(map(len, rows), default=0)
    lines += ["", "```text", " " * size + "".join(f"{n:>4}" for n in range(1, len(kills) + 1))]
    for claim in rows:
        cells = "".join(f"{_mark(claim, kill):>4}" for kill in kills)
        lines.append(f"{claim:{size}}{cells} {sum(claim in kill.killers for kill in kills):>5}")
    lines += ["```", ""]
    lines += [f"- {kill.mutant}: {', '.join(kill.killers) or 'no claim'}" for kill in kills]
    return lines


def _mark(claim: str, kill: Kills) -> str:
    if claim in kill.shown:
        return "#" if claim == kill.claim else "x"
    return "o" if claim in kill.behind else "."


def kills_json(kills: Sequence[Kills], claims: Mapping[str, str], about: Mapping[str, object]) -> str:
    """The same as data, with each claim's kills."""
    table = {
        **about,
        "survivors": [kill.mutant for kill in kills if not kill.killed],
        "claims_that_kill_nothing": idle_claims(kills, list(claims)),
        "mutants": [
            {
                "mutant": kill.mutant,
                "role": kill.role,
                "claim": kill.claim,
                "misconception": kill.misconception,
                "killed": kill.killed,
                "shown": list(kill.shown),
                "behind": list(kill.behind),
            }
            for kill in kills
        ],
        "claims": {claim: [kill.mutant for kill in kills if claim in kill.killers] for claim in claims},
    }
    return json.dumps(table, indent=1, ensure_ascii=False) + "\n"


def kills_table(kills: Sequence[Kills]) -> str:
    """What the package keeps of it: a line for each mutant, so that a change of the matrix reads well as a diff."""
    rows = (
        f" {json.dumps(kill.mutant)}: {json.dumps({'shown': kill.shown, 'behind': kill.behind})}"
        for kill in kills
    )
    return "{\n" + ",\n".join(rows) + "\n}\n"
