"""The starter of an assignment: signatures with their contracts and nothing inside, declarations, a README."""

from __future__ import annotations

import json
import re

from ...spec import Profile, Role, Spec
from .profile import ProfileError
from .starter_stubs import MASK_NAMES, NAMES, STUBS


def starter(profile: Profile, spec: Spec) -> dict[str, str]:
    """What students get, as file name and text: ``submission.py``, ``README.md`` and, where the assignment fixes
    anything, ``triu.toml``.

    The submission holds a definition for each role of the assignment, and each raises ``NotImplementedError``.

    Raises:
        ProfileError: the assignment concerns a role for which there is no starter.
    """
    roles = _roles(profile, spec)
    stubs = [_stub(profile, spec.roles[role], name) for role in roles for name in _names(profile, role)]
    uses_torch = any(stub.startswith("class") for stub in stubs)
    head = f'"""{_inside_docstring(profile.title)}"""\n' + ("\nfrom torch import nn\n" if uses_torch else "")
    files = {
        "submission.py": "\n\n".join((head, *stubs)),
        "README.md": _readme(profile, roles),
    }
    declarations = _declarations(profile)
    return {**files, "triu.toml": declarations} if declarations else files


def _roles(profile: Profile, spec: Spec) -> list[str]:
    """The roles that the assignment counts or requires, in the order of this file."""
    claims = [spec.claims[claim] for claim in profile.claims]
    wanted = {*profile.required, *(c.role for c in claims), *(r for c in claims for r in c.partners)}
    for role in sorted(wanted):
        if role not in STUBS:
            raise ProfileError(
                f"{profile.source}: there is no starter for role {role!r} (known: {', '.join(STUBS)})"
            )
    return [role for role in STUBS if role in wanted]


def _names(profile: Profile, role: str) -> tuple[str, ...]:
    """What the starter calls the objects of a role."""
    polarity = profile.conventions.get(role, {}).get("polarity", "")
    usual = MASK_NAMES.get(polarity, NAMES[role]) if role == "causal_mask" else NAMES[role]
    return profile.roles.get(role, (usual,))


def _stub(profile: Profile, role: Role, name: str) -> str:
    fixed = {**profile.conventions.get(role.id, {}), **profile.conventions.get(name, {})}
    lines = []
    for key, value in fixed.items():
        convention = role.convention(key)
        if convention is not None and value in convention.values:
            lines.append(f"    Fixed ({key}): {convention.values[value]}.\n")
    usual = role.convention("polarity")
    if usual is not None and "polarity" not in fixed:
        named = (value for value, names in usual.by_name.items() if name in names)
        meaning = usual.values.get(next(named, usual.default))
        if meaning:
            lines.append(f"    {meaning}. Say so here if you decide otherwise.\n")
    text = STUBS[role.id].lstrip("\n").replace("@", name, 1).replace("    ~\n", "".join(lines))
    renamed = {**profile.arguments.get(role.id, {}), **profile.arguments.get(name, {})}
    for argument in (*role.arguments, *role.constructor):
        for spelling in (argument.name, *argument.names) if argument.name in renamed else ():
            text = re.sub(rf"\b{re.escape(spelling)}\b(?=[,:)=])", renamed[argument.name], text)
    return _with_bodies(text)


def _with_bodies(text: str) -> str:
    """The definitions with ``raise NotImplementedError`` at the end of each function."""
    parts = re.split(r"(?m)^(?= *def )", text)
    done = []
    for part in parts:
        if part.lstrip().startswith("def "):
            indent = " " * (len(part) - len(part.lstrip()) + 4)
            part = f"{part.rstrip()}\n{indent}raise NotImplementedError\n"
        else:
            part = part.rstrip() + "\n" if part.strip() else ""
        done.append(part)
    return "\n".join(part for part in done if part)


def _inside_docstring(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', "'")


def _declarations(profile: Profile) -> str:
    """The assignment's declarations as a ``triu.toml``, or nothing."""
    lines: list[str] = []
    if profile.roles:
        lines += ["[roles]", *(f"{role} = {json.dumps(list(n))}" for role, n in profile.roles.items()), ""]
    for group, tables in (("conventions", profile.conventions), ("arguments", profile.arguments)):
        for subject, entries in tables.items():
            lines += [f"[{group}.{subject}]", *(f"{k} = {json.dumps(v)}" for k, v in entries.items()), ""]
    if not lines:
        return ""
    return "\n".join(("# What the assignment fixes. Leave this file beside your code.", "", *lines))


def _readme(profile: Profile, roles: list[str]) -> str:
    lines = [f"# {profile.title}", ""]
    if profile.text:
        lines += [profile.text, ""]
    lines += [
        "Write your code into `submission.py`, in the place of each `raise NotImplementedError`. Keep the names of",
        "functions, classes and parameters: by these your work is found. You may add whatever else you need.",
    ]
    optional = [f"`{n}`" for role in roles if role not in profile.required for n in _names(profile, role)]
    if optional and profile.required:
        lines += ["", f"You may leave out {', '.join(optional)}; what is left out gives no points."]
    if _declarations(profile):
        lines += [
            "",
            "`triu.toml` holds what is fixed, such as what True means in a mask. Leave it as it is.",
        ]
    lines += [
        "",
        "## Check your work",
        "",
        "    triu check submission.py",
        "",
        "shows what holds, and for what does not the smallest case on which it breaks. Parts that you have not",
        "written yet are reported as errors.",
        "",
        "    triu check submission.py --claims 'causal-mask.*'"
        if "causal_mask" in roles
        else f"    triu check submission.py --claims {roles[0]}",
        "",
        "checks one part, and `triu claims ID` explains a claim.",
        "",
        "## What it is graded by",
        "",
        f"There are {_number(profile.points)} points in all.",
    ]
    for milestone in profile.milestones:
        lines += ["", f"### {milestone.title} ({_number(milestone.points)} points)", ""]
        lines += [
            f"- {item.title}: {_number(item.points)}{' (with inputs that are not shown)' if item.hidden else ''}"
            for item in milestone.items
        ]
    return "\n".join((*lines, ""))


def _number(points: object) -> str:
    text = str(points)
    return text.rstrip("0").rstrip(".") if "." in text else text
