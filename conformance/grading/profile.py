"""Assignments: reads profiles from TOML, scores verdicts by them, and gives each submission a seed of its own."""

from __future__ import annotations

import hashlib
import hmac
import math
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from difflib import get_close_matches
from fractions import Fraction
from pathlib import Path
from typing import Any

from ... import spec as spec_package
from ...spec import Item, ItemScore, Limits, Milestone, Profile, Role, Spec, Verdict
from ..candidates.errors import TriuError

SHIPPED = Path(spec_package.__file__).parent / "profiles"

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_POINTS = re.compile(r"[0-9]{1,6}(\.[0-9]{1,2})?")
_LEVELS = ("MUST", "SHOULD", "MAY")


class ProfileError(TriuError):
    """A profile is wrong; the message names file, key, what was found and what is known."""


def shipped_profiles() -> list[str]:
    """The ids of the assignments that come with triu, in alphabetical order."""
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def load_profile(name_or_path: str | Path, spec: Spec) -> Profile:
    """Read an assignment: a shipped one by its id, any other from its TOML file.

    Raises:
        ProfileError: there is no such assignment, the file cannot be read, or something in it is wrong.
    """
    if isinstance(name_or_path, str) and name_or_path in shipped_profiles():
        path = SHIPPED / f"{name_or_path}.toml"
        source = f"spec/profiles/{path.name}"
    else:
        path, source = Path(name_or_path), str(name_or_path)
    try:
        table = tomllib.loads(path.read_bytes().decode("utf-8"), parse_float=Decimal)
    except FileNotFoundError:
        known = shipped_profiles()
        raise ProfileError(
            f"{source}: no such file or shipped assignment{_guess(source, known)} (shipped: {', '.join(known)})"
        ) from None
    except OSError as error:
        raise ProfileError(f"{source}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ProfileError(f"{source}: is not TOML: {error}") from None
    return _Reader(source, spec).profile(path.stem, table)


def _guess(found: str, known: Iterable[str]) -> str:
    near = get_close_matches(found, list(known), 1)
    return f"; did you mean {near[0]}?" if near else ""


class _Reader:
    """Turns the table of one file into a Profile; ``key`` is always the path to what is looked at."""

    def __init__(self, source: str, spec: Spec) -> None:
        self.source, self.spec = source, spec
        self.claimed: dict[str, str] = {}  # claim -> the item that has it
        self.ids: dict[str, set[str]] = {"milestone": set(), "item": set()}

    def profile(self, name: str, table: Mapping[str, Any]) -> Profile:
        keys = ("title", "text", "required", "roles", "conventions", "arguments", "limits", "weights")
        self._keys("", table, (*keys, "milestone"))
        roles = self._roles(table.get("roles", {}))
        weights = self._weights(table.get("weights", {}))
        return Profile(
            id=name,
            title=self._text("title", table.get("title")),
            text=self._text("text", table["text"]) if "text" in table else "",
            required=self._required(table.get("required", [])),
            milestones=tuple(
                self._milestone(f"milestone {number}", part, weights)
                for number, part in enumerate(self._tables("milestone", table.get("milestone")), 1)
            ),
            roles=roles,
            conventions=self._declared("conventions", table.get("conventions", {}), roles),
            arguments=self._declared("arguments", table.get("arguments", {}), roles),
            limits=self._limits(table.get("limits", {})),
            weights=weights,
            source=self.source,
        )

    # what is counted

    def _milestone(self, key: str, table: Mapping[str, Any], weights: Mapping[str, int]) -> Milestone:
        self._keys(key, table, ("id", "title", "item"))
        identity = self._id(key, "milestone", table.get("id"))
        key = f"milestone {identity}"
        return Milestone(
            identity,
            self._text(f"{key}: title", table.get("title")),
            tuple(
                self._item(f"{key}: item {number}", item, identity, weights)
                for number, item in enumerate(self._tables(f"{key}: item", table.get("item")), 1)
            ),
        )

    def _item(self, key: str, table: Mapping[str, Any], milestone: str, weights: Mapping[str, int]) -> Item:
        self._keys(key, table, ("id", "title", "claims", "points", "partial", "hidden"))
        identity = self._id(key, "item", table.get("id"))
        key = f"item {identity}"
        claims = self._claims(f"{key}: claims", table.get("claims"), identity)
        if not any(weights[self.spec.claims[claim].level] for claim in claims):
            levels = " and ".join(sorted({self.spec.claims[claim].level for claim in claims}))
            raise ProfileError(
                f"{self.source}: {key}: none of its claims counts, as the weight of {levels} is 0; "
                "raise it in [weights] or add claims that count"
            )
        return Item(
            id=identity,
            title=self._text(f"{key}: title", table.get("title")),
            milestone=milestone,
            claims=claims,
            points=self._points(f"{key}: points", table.get("points")),
            partial=self._flag(f"{key}: partial", table.get("partial", True)),
            hidden=self._flag(f"{key}: hidden", table.get("hidden", False)),
        )

    def _claims(self, key: str, value: Any, item: str) -> tuple[str, ...]:
        lines = [value] if isinstance(value, str) else value
        if not (isinstance(lines, list) and lines and all(isinstance(line, str) for line in lines)):
            raise self._wrong(key, value, "a list of ids or patterns of claims")
        found: set[str] = set()
        for part in (part.strip() for line in lines for part in line.split(",")):
            selected = self.spec.select(part) if part else ()
            if not selected:
                near = _guess(part, [*self.spec.claims, *self.spec.roles])
                raise ProfileError(
                    f"{self.source}: {key}: {part!r} matches no claim{near} (`triu claims` lists all ids)"
                )
            found.update(claim.id for claim in selected)
        claims = tuple(claim for claim in self.spec.claims if claim in found)
        for claim in claims:
            if claim in self.claimed:
                raise ProfileError(
                    f"{self.source}: {key}: {claim} belongs to item {self.claimed[claim]} already; "
                    "a claim counts in one item only"
                )
            self.claimed[claim] = item
        return claims

    def _points(self, key: str, value: Any) -> Decimal:
        number = isinstance(value, str | int | Decimal) and not isinstance(value, bool)
        if not (number and _POINTS.fullmatch(str(value))):
            raise self._wrong(key, value, 'points, 0 or more with at most two decimals, such as 10 or "2.5"')
        return Decimal(value)

    def _weights(self, value: Any) -> Mapping[str, int]:
        table = self._table("weights", value)
        self._keys("weights", table, _LEVELS)
        for level, weight in table.items():
            if type(weight) is not int or weight < 0:
                raise self._wrong(f"weights.{level}", weight, "a whole number, 0 or more")
        return {"MUST": 3, "SHOULD": 1, "MAY": 0, **table}

    # what is fixed

    def _required(self, value: Any) -> tuple[str, ...]:
        if not (isinstance(value, list) and all(isinstance(role, str) for role in value)):
            raise self._wrong("required", value, "a list of roles")
        for role in value:
            if role not in self.spec.roles:
                raise self._unknown("required: role", role, self.spec.roles)
        return tuple(dict.fromkeys(value))

    def _roles(self, value: Any) -> Mapping[str, tuple[str, ...]]:
        roles: dict[str, tuple[str, ...]] = {}
        for role, names in self._table("roles", value).items():
            if role not in self.spec.roles:
                raise self._unknown("roles: role", role, self.spec.roles)
            listed = [names] if isinstance(names, str) else names
            if not (isinstance(listed, list) and listed and all(_is_name(name) for name in listed)):
                raise self._wrong(
                    f"roles.{role}", names, "the name of a function or class, or a list of them"
                )
            roles[role] = tuple(listed)
        return roles

    def _declared(
        self, group: str, value: Any, declared: Mapping[str, Sequence[str]]
    ) -> Mapping[str, Mapping[str, str]]:
        """``[conventions.X]`` and ``[arguments.X]``, where X is a role or a name from ``[roles]``."""
        by_name: dict[str, list[Role]] = {role: [self.spec.roles[role]] for role in self.spec.roles}
        for role, names in declared.items():
            for name in names:
                by_name.setdefault(name, []).append(self.spec.roles[role])
        for subject, entries in self._table(group, value).items():
            key = f"{group}.{subject}"
            if subject not in by_name:
                raise self._unknown(f"{group}: role", subject, by_name)
            for name, chosen in self._table(key, entries).items():
                if group == "arguments":
                    known = [a.name for r in by_name[subject] for a in (*r.arguments, *r.constructor)]
                    if name not in known:
                        raise self._unknown(f"{key}: argument", name, known)
                    if not _is_name(chosen):
                        raise self._wrong(f"{key}.{name}", chosen, "the name of a parameter")
                    continue
                conventions = [c for r in by_name[subject] for c in r.conventions]
                values = [v for c in conventions if c.name == name for v in c.values]
                if not values:
                    raise self._unknown(f"{key}: convention", name, [c.name for c in conventions])
                if chosen not in values:
                    raise self._unknown(f"{key}.{name}: value", chosen, values)
        return value

    def _limits(self, value: Any) -> Limits:
        table = self._table("limits", value)
        self._keys("limits", table, Limits.__dataclass_fields__)
        given: dict[str, Any] = {}
        for name, limit in table.items():
            whole = name == "memory_mb"
            number = type(limit) is int or (isinstance(limit, Decimal) and limit.is_finite() and not whole)
            if not (number and limit > 0):
                raise self._wrong(f"limits.{name}", limit, f"a {'whole ' if whole else ''}number above 0")
            given[name] = limit if whole else float(limit)
        return Limits(**given)

    # values and errors

    def _id(self, key: str, kind: str, value: Any) -> str:
        if not (isinstance(value, str) and _ID.fullmatch(value)):
            raise self._wrong(f"{key}: id", value, "letters, digits, - and _, such as mask-shape")
        if value in self.ids[kind]:
            raise ProfileError(
                f"{self.source}: {kind} {value}: this id occurs twice; each {kind} has its own"
            )
        self.ids[kind].add(value)
        return value

    def _text(self, key: str, value: Any) -> str:
        if not (isinstance(value, str) and value.strip()):
            raise self._wrong(key, value, "a text")
        return value.strip()

    def _flag(self, key: str, value: Any) -> bool:
        if not isinstance(value, bool):
            raise self._wrong(key, value, "true or false")
        return value

    def _table(self, key: str, value: Any) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            raise self._wrong(key, value, f"a table [{key}]")
        return value

    def _tables(self, key: str, value: Any) -> list[Mapping[str, Any]]:
        if not (isinstance(value, list) and value and all(isinstance(part, dict) for part in value)):
            kind = "milestone.item" if key.endswith("item") else "milestone"
            raise self._wrong(key, value, f"at least one table [[{kind}]]")
        return value

    def _keys(self, key: str, table: Mapping[str, Any], known: Iterable[str]) -> None:
        for name in table:
            if name not in known:
                raise self._unknown(f"{key}: key" if key else "key", name, known)

    def _wrong(self, key: str, found: Any, expected: str) -> ProfileError:
        shown = "nothing" if found is None else str(found) if isinstance(found, Decimal) else repr(found)
        return ProfileError(f"{self.source}: {key}: found {shown}, expected {expected}")

    def _unknown(self, what: str, found: Any, known: Iterable[str]) -> ProfileError:
        known = list(dict.fromkeys(known))
        return ProfileError(
            f"{self.source}: {what} {found!r} is not known{_guess(str(found), known)} "
            f"(known: {', '.join(known) or 'none'})"
        )


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and value.isascii() and value.isidentifier()


def score(profile: Profile, verdicts: Sequence[Verdict], provided: Collection[str]) -> tuple[ItemScore, ...]:
    """What the verdicts on a submission come to, item by item.

    1. A claim *was judged* on an object if it passed, failed or errored there. ``passed`` earns; the others do not.
    2. Within an item each claim that was judged counts the weight of its level. Where several objects have the
       role, the claim earns by the share of the objects it was judged on that pass.
    3. ``blocked``, ``unsupported``, ``inconclusive`` and ``suite_fault`` count neither way, so that a failure on
       which others rest costs once, in the item of the claim that failed. If no item counts that claim, what it
       blocks counts as failed: otherwise the failure would cost nothing.
    4. The score is the item's points times what was earned over what counted, to 0.01, halves rounded up. With
       ``partial = false`` it is all of them if everything that was judged passed and nothing is blocked, else 0.
    5. An item in which nothing was judged gets 0. Its status is ``failed`` if something is blocked by a failure
       (it was not shown to work), else ``missing`` if a role of it is not provided, else ``not judged``.
    6. Where an item concerns several roles, claims on a required role that is not provided count as failed.
    7. Claims of a level that weighs 0 are told and change nothing.

    Args:
        profile: the assignment.
        verdicts: on every claim of the assignment, and on what these rest on.
        provided: the roles that the submission provides, as in ``Report.provides``.

    Raises:
        ValueError: there is no verdict on a claim of the assignment.
    """
    by_claim: dict[str, list[Verdict]] = {claim: [] for claim in profile.claims}
    for verdict in verdicts:
        by_claim.setdefault(verdict.claim, []).append(verdict)
    unjudged = [claim for claim in profile.claims if not by_claim[claim]]
    if unjudged:
        raise ValueError(f"no verdict on {', '.join(unjudged)}; judge all claims of {profile.id} first")
    roles = {role for label in provided for role in label.split(" + ")}
    return tuple(_scored(profile, item, by_claim, roles) for item in profile.items)


def _scored(
    profile: Profile, item: Item, by_claim: Mapping[str, Sequence[Verdict]], provided: Collection[str]
) -> ItemScore:
    earned, counted, owed = Fraction(0), Fraction(0), 0
    costly = {c for i in profile.items if i.points for c in i.claims if profile.weights[by_claim[c][0].level]}
    blocked = missing = False
    for claim in item.claims:
        own = by_claim[claim]
        weight = profile.weights[own[0].level]
        if not weight:
            continue
        passed = [v.verdict == "passed" for v in own if v.verdict in ("passed", "failed", "errored")]
        passed += [False for v in own if _cause(v) not in costly and _blocked_by_failure(v, by_claim)]
        lacking = set(own[0].role.split(" + ")) - set(provided)
        if passed:
            counted += weight
            earned += weight * Fraction(sum(passed), len(passed))
        elif lacking & set(profile.required):
            owed += weight
        missing = missing or bool(lacking)
        blocked = blocked or any(_blocked_by_failure(verdict, by_claim) for verdict in own)
    verdicts = tuple(verdict for claim in item.claims for verdict in by_claim[claim])
    if not counted:
        status = "failed" if blocked else "missing" if missing else "not judged"
        return ItemScore(item, Decimal("0.00"), status, verdicts)
    share = earned / (counted + owed)
    if not item.partial and (share < 1 or blocked):
        share = Fraction(0)
    status = "passed" if share == 1 else "partial" if share else "failed"
    return ItemScore(item, _rounded(item.points, share), status, verdicts)


def _blocked_by_failure(verdict: Verdict, by_claim: Mapping[str, Sequence[Verdict]]) -> bool:
    """Whether what a verdict waits for is the submission's failure, and not a fault or a gap of the suite."""
    if verdict.verdict != "blocked":
        return False
    objects = verdict.object.split(" + ")
    causes = [cause.verdict for cause in by_claim.get(_cause(verdict), ()) if cause.object in objects]
    return not causes or bool({"failed", "errored"} & set(causes))


def _cause(verdict: Verdict) -> str:
    """The claim that a blocked one waits for."""
    return verdict.reason.removeprefix("rests on ")


def _rounded(points: Decimal, share: Fraction) -> Decimal:
    cents = math.floor(Fraction(points) * share * 100 + Fraction(1, 2))
    return min(Decimal(cents).scaleb(-2), points)


def seed_for(secret: bytes, submission: str, version: str) -> int:
    """The seed for a submission, of 32 bits: always the same, and not to be guessed without the secret.

    Raises:
        ValueError: the secret is empty.
    """
    if not secret:
        raise ValueError("the secret is empty; a seed made from it could be guessed")
    parts = [part.encode("utf-8", "surrogatepass") for part in (submission, version)]
    message = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    return int.from_bytes(hmac.new(secret, message, hashlib.sha256).digest()[:4], "big")
