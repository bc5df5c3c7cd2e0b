"""Matches what a candidate defines with the roles of a spec: by name, then by parameter names.

Arguments are bound by parameter name, never by position alone.  Nothing here touches the candidate:
it works on the description that the worker sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...spec import Argument, Convention, Role, Spec
from .declarations import check_declarations
from .errors import ConventionError
from .names import bare, counted, name_rank, plain, rank_among, words
from .said import polarity
from .settings import GLOBAL
from .target import Declarations
from .usual import usual


@dataclass(frozen=True)
class Parameter:
    """Where an argument goes: the parameter's name, or its position if it is positional only."""

    name: str
    position: int | None = None
    has_default: bool = False
    also: tuple[str, ...] = ()  # settings that say the same and get the same
    fixed: bool = False  # its default is a number, right for other sizes than those of a case


@dataclass(frozen=True)
class Binding:
    """One object of the candidate in one role.

    ``arguments`` and ``constructor`` map canonical names to the candidate's parameters.  ``problem`` is
    set, and nothing else usable, where the signature does not fit the role.
    """

    role: Role
    entry: Mapping[str, Any]
    rank: int  # 0 declared, 1 by exact name, 2 by a name with words around it, 3 by signature
    method: str = ""
    arguments: Mapping[str, Parameter] = field(default_factory=dict)
    constructor: Mapping[str, Parameter] = field(default_factory=dict)
    conventions: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    problem: str = ""

    @property
    def name(self) -> str:
        return str(self.entry.get("label", self.entry["name"]))

    @property
    def ignored(self) -> tuple[str, ...]:
        """Parameters of the call that are none of the role's arguments; they stay at their defaults."""
        known = {place.name for place in self.arguments.values()}
        variadic = ("VAR_POSITIONAL", "VAR_KEYWORD")
        return tuple(
            p["name"] for p in self.parameters if p["name"] not in known and p["kind"] not in variadic
        )

    @property
    def parameters(self) -> list[Mapping[str, Any]]:
        """The parameters of what is called."""
        if self.entry["kind"] == "function":
            return self.entry["params"] or []
        methods = self.entry["methods"]
        return methods.get(self.method or "forward") or methods.get("__call__") or []

    @property
    def settings(self) -> str:
        """Where sizes come from that are no parameters of its own: ``config``, ``constants n_embd``, ``make_model``."""
        if "factory" in self.entry:
            return str(self.entry["factory"]).partition(":")[2]
        parts = [
            f"{name} ({how['name']})"
            for name, how in self.entry.get("configs", {}).items()
            if how["kind"] == "part"
        ]
        used = [
            name
            for argument, place in self.constructor.items()
            for name in (place.name, *place.also)
            if argument != "dropout" and not (parts and name.partition(".")[0] in self.entry["configs"])
        ]
        constants = [name.removeprefix(GLOBAL) for name in used if name.startswith(GLOBAL)]
        configs = dict.fromkeys(
            name.partition(".")[0] for name in used if "." in name and not name.startswith(GLOBAL)
        )
        said = [f"parts {', '.join(parts)}"] if parts else []
        return " and ".join([*said, *configs, *([f"constants {', '.join(constants)}"] if constants else [])])

    @property
    def path(self) -> str:
        return str(self.entry["path"])

    @property
    def signature(self) -> str:
        shown = ", ".join(map(_shown, self.parameters))
        if self.entry["kind"] == "class":
            written = self.entry.get("written", self.entry.get("init"))
            init = ", ".join(_shown(p) for p in written or [])
            method = "" if self.method in ("", "__call__") else f".{self.method}"
            return f"{self.name}({init}){method}({shown})"
        return f"{self.name}({shown})"


def _shown(parameter: Mapping[str, Any]) -> str:
    if parameter["kind"] == "VAR_POSITIONAL":
        return f"*{parameter['name']}"
    if parameter["kind"] == "VAR_KEYWORD":
        return f"**{parameter['name']}"
    return (
        f"{parameter['name']}={parameter['default']}" if parameter["has_default"] else str(parameter["name"])
    )


def bind(
    spec: Spec, entries: Sequence[Mapping[str, Any]], declared: Declarations, only: str = ""
) -> list[Binding]:
    """All bindings of a candidate, usable or with a problem, in the order of the spec's roles.

    Raises:
        ConventionError: the declarations name a role, convention, value or object that does not exist.
    """
    if not declared.of_assignment:
        check_declarations(spec, entries, declared)
    public = [entry for entry in entries if not entry.get("private") or entry["name"] == only]
    found = _bind(spec, public, declared, only)
    if all(binding.problem for binding in found) and len(public) < len(entries):
        return _bind(spec, entries, declared, only)  # what begins with _ counts where there is nothing else
    return found


def _bind(
    spec: Spec, entries: Sequence[Mapping[str, Any]], declared: Declarations, only: str
) -> list[Binding]:
    assigned = {name: role for role, names in declared.roles.items() for name in names}
    entries = [_with_parts(spec, entry) for entry in entries]
    found: list[Binding] = []
    for entry in entries:
        if only and entry["name"] != only:
            continue
        if entry["name"] in assigned:
            binding = bind_object(spec.roles[assigned[entry["name"]]], entry, declared, 0)
            if binding.problem and not declared.of_assignment:
                where = f"{declared.source}: roles.{binding.role.id}: {entry['name']}"
                raise ConventionError(f"{where} cannot be called as this role: {binding.problem}")
            found.append(binding)
            continue
        if entry["named"] and not only and not entry["own"]:
            continue
        candidates = []
        for role in spec.roles.values():
            rank = name_rank(role, entry["name"])
            if rank is not None and _shows(role, entry):
                binding = bind_object(role, entry, declared, rank)
                if (
                    role.id != "multihead_attention"
                    or plain(entry["name"]) != "attention"
                    or _has_heads(binding)
                ):
                    candidates.append(binding)
        if not candidates and (only or entry["path"].startswith("live:")):
            candidates = [
                b
                for r in spec.roles.values()
                if _shows(r, entry) and not (b := bind_object(r, entry, declared, 3)).problem
            ]
        beside = [b for b in candidates if b.role.beside and not b.problem]
        candidates = [b for b in candidates if not b.role.beside] or [b for b in candidates if b.problem]
        found += [max(candidates, key=_fit)] if candidates else []
        found += beside
    paths = {binding.path: binding.entry["name"] for binding in found}
    names = list(paths.values())
    for binding in found:  # the same name in two files of a folder
        if names.count(binding.entry["name"]) > 1 and isinstance(binding.entry, dict):
            binding.entry["label"] = binding.entry["path"].replace(":", ".")
    return _like_attention(_without_shadows(spec, found))


BY_ATTENTION = "by the mask of its attention"


def _like_attention(found: Sequence[Binding]) -> list[Binding]:
    """In blocks and models a mask whose name says nothing means what it means in the attention that they use."""
    meanings: dict[str, str] = {
        binding.entry["defined_as"]: binding.conventions["polarity"][0]
        for binding in found
        if binding.role.id in ("attention", "multihead_attention", "cross_attention")
        and not binding.problem
        and masks_of(_polarity(binding.role), binding.role, binding.arguments)
    }
    result = []
    for binding in found:
        meant = {meanings[name] for name in binding.entry.get("uses", ()) if name in meanings}
        if len(meant) == 1 and binding.role.id in WITH_ATTENTION:
            told = (meant.pop(), BY_ATTENTION)
            conventions = {n: told if _is_unsaid(binding, n) else v for n, v in binding.conventions.items()}
            binding = replace(binding, conventions=conventions)
        result.append(binding)
    return result


def _polarity(role: Role) -> Convention:
    found = role.convention("polarity")
    assert found is not None, role.id
    return found


def _is_unsaid(binding: Binding, name: str) -> bool:
    """Whether a block's or a model's polarity is but the role's default, and the mask has no telling name."""
    convention = binding.role.convention(name)
    own = None if convention is None else masks_of(convention, binding.role, binding.arguments)
    return (
        convention is not None
        and bool(own)
        and binding.conventions[name][1] == "by name"
        and all(NEUTRAL.issuperset(words(binding.arguments[mask].name)) for mask in own or ())
        and not _named_value(convention, binding.role, binding.entry, binding.arguments)
    )


# The words of names such as src_mask, which say whose mask it is and not what True means.
NEUTRAL = frozenset(
    "mask masks msk m src source sources tgt trg target targets enc dec encoder decoder memory mem x z self cross "
    "input inputs output outputs context".split()
)
WITH_ATTENTION = ("decoder_block", "encoder_block", "decoder_only_block", "decoder_stack", "encoder_decoder")


PARTS = {
    "attention": "multihead_attention",
    "feed_forward": "feed_forward",
    "norm": "layer_norm",
    "block": "decoder_block",
}


def _with_parts(spec: Spec, entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """An object's description, with what its parts take spelled canonically: a feed-forward's ``hidden`` is d_ff."""
    init = [dict(p) for p in entry.get("init") or ()]
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for parameter in init:
        if parameter.get("part") in PARTS:
            groups.setdefault((parameter["name"].rpartition(".")[0], parameter["part"]), []).append(parameter)
    for (_, part), parameters in groups.items():
        written = [{**p, "name": p["spelled"], "spelled": p["spelled"]} for p in parameters]
        matched = match(written, spec.roles[PARTS[part]].constructor, {})
        canonical = {place.name: name for name, place in matched.items()} if isinstance(matched, dict) else {}
        for parameter in parameters:
            parameter["spelled"] = canonical.get(parameter["spelled"], parameter["spelled"])
    return {**entry, "init": init} if groups else entry


def _fit(binding: Binding) -> tuple[bool, int, int, int]:
    """Which of several roles an object fills: usable first, then the one that leaves least unexplained."""
    unmatched = sum(a.name not in binding.arguments for a in binding.role.arguments if a.kind == "mask")
    known = _recognised(binding) if binding.problem else len(binding.arguments)
    return (not binding.problem, known, -unmatched, -binding.rank)


def _recognised(binding: Binding) -> int:
    """How many parameters of an object, of constructor and call, have names of the role's."""
    role, entry = binding.role, binding.entry
    lists = [(entry.get("init") or (), role.constructor), (entry["params"] or (), role.arguments)]
    lists += [(entry["methods"].get(method) or (), role.arguments) for method in ("forward", "__call__")]
    return sum(
        _argument_for(p.get("spelled", p["name"]), arguments, {}, plain) is not None
        for parameters, arguments in lists
        for p in parameters
    )


def _has_heads(binding: Binding) -> bool:
    """What is called Attention and no more may be any attention, and that of recurrent networks too."""
    return bool({"n_heads", "d_head"} & binding.constructor.keys())


def _without_shadows(spec: Spec, found: Sequence[Binding]) -> list[Binding]:
    """In the order of the roles; an object that cannot be called is dropped if its name fitted loosely only
    and another object fills the role."""
    result = []
    for role in spec.roles:
        here = [b for b in found if b.role.id == role]
        usable = [b for b in here if not b.problem]
        result += usable + [b for b in here if b.problem and (b.rank <= 1 or not usable)]
    return result


def bind_object(role: Role, entry: Mapping[str, Any], declared: Declarations, rank: int) -> Binding:
    """Bind one object to one role."""
    renamed = {**declared.arguments.get(role.id, {}), **declared.arguments.get(entry["name"], {})}

    def failed(problem: str) -> Binding:
        return Binding(role, entry, rank, problem=problem)

    constructor: Mapping[str, Parameter] = {}
    if entry["kind"] == "class":
        init = entry.get("init")
        if init is None:
            return failed("Python cannot tell the parameters of its constructor")
        matched = match(init, (*role.constructor, *usual()), renamed)
        if isinstance(matched, str):
            return failed(f"its constructor {matched}")
        constructor = matched
        missing = [a.name for a in role.constructor if a.required and a.name not in matched]
        if missing:
            return failed(f"its constructor has no parameter for {_named(role.constructor, missing)}")
    if entry["kind"] == "function":
        if entry["params"] is None:
            return failed("Python cannot tell its parameters")
        arguments = _match_call(role, entry["params"], renamed)
        if isinstance(arguments, str):
            return failed(f"it {arguments}")
        return _bound(role, entry, declared, rank, "", arguments, constructor)
    problem = "it has no method to call"
    methods = [m for m in dict.fromkeys(("forward", "__call__", *role.methods)) if m in entry["methods"]]
    for method in methods:
        parameters = entry["methods"][method]
        if parameters is None:
            continue
        arguments = _match_call(role, parameters, renamed)
        if not isinstance(arguments, str):
            called = (
                ""
                if method in ("forward", "__call__") and (entry["module_class"] or method == "__call__")
                else method
            )
            return _bound(role, entry, declared, rank, called, arguments, constructor)
        problem = f"its {method} {arguments}"
    return failed(problem)


def _shows(role: Role, entry: Mapping[str, Any]) -> bool:
    """Whether an object has one of the arguments or methods without which its name does not mean the role."""
    methods = entry["methods"].values() if entry["kind"] != "function" else [entry["params"]]
    found = set(map(plain, entry["methods"])) if entry["kind"] != "function" else set()
    for parameters in methods:
        for argument in role.arguments:
            if {plain(p["name"]) for p in parameters or ()} & {plain(name) for name in argument.names}:
                found.add(argument.name)
    return not role.shown_by or not found.isdisjoint(role.shown_by)


def _bound(
    role: Role,
    entry: Mapping[str, Any],
    declared: Declarations,
    rank: int,
    method: str,
    arguments: Mapping[str, Parameter],
    constructor: Mapping[str, Parameter],
) -> Binding:
    conventions = {c.name: _convention(c, role, entry, arguments, declared) for c in role.conventions}
    return Binding(role, entry, rank, method, arguments, constructor, conventions)


def _match_call(
    role: Role, parameters: Sequence[Mapping[str, Any]], renamed: Mapping[str, str]
) -> dict[str, Parameter] | str:
    matched = match(_with_lone_sequence(role, parameters, renamed), role.arguments, renamed)
    if isinstance(matched, str):
        return matched
    missing = _missing(role, matched)
    if {"lengths", "ids"} <= matched.keys():
        return "takes both token ids and lengths, where the role takes one of them"
    if missing:
        return f"has no parameter for {_named(role.arguments, missing)}"
    return matched


def _missing(role: Role, matched: Mapping[str, Parameter]) -> list[str]:
    return [
        a.name
        for a in role.arguments
        if a.required and a.name not in matched and not (a.unless and a.unless in matched)
    ]


def _with_lone_sequence(
    role: Role, parameters: Sequence[Mapping[str, Any]], renamed: Mapping[str, str]
) -> Sequence[Mapping[str, Any]]:
    """The parameters of a layer that needs one thing alone, of whatever name: that is the sequence it works on."""
    lone = [p for p in parameters if not p["has_default"] and p["kind"] == "POSITIONAL_OR_KEYWORD"]
    sequences = [a for a in role.arguments if a.required and a.kind in ("array", "ids") and not a.unless]
    if len(lone) != 1 or len(sequences) != 1 or renamed or role.id not in LONE:
        return parameters
    known = {plain(name) for argument in role.arguments for name in (argument.name, *argument.names)}
    if {plain(lone[0]["name"]), bare(lone[0]["name"])} & known:
        return parameters
    return [{**p, "spelled": sequences[0].name} if p is lone[0] else p for p in parameters]


# Roles whose objects are layers or models: nobody calls anything else so.
LONE = (
    "causal_self_attention", "decoder_only_block", "encoder_block", "feed_forward", "language_model", "layer_norm",
    "cached_attention", "multihead_attention",
)  # fmt: skip


def _named(arguments: Sequence[Argument], missing: Iterable[str]) -> str:
    known = {a.name: a for a in arguments}
    return " and ".join(f"{name} (recognised: {', '.join(known[name].names[:6])}, …)" for name in missing)


def match(
    parameters: Sequence[Mapping[str, Any]], arguments: Sequence[Argument], renamed: Mapping[str, str]
) -> dict[str, Parameter] | str:
    """Canonical argument → parameter, or a sentence's end that says what does not fit."""
    by_parameter = {parameter: name for name, parameter in renamed.items()}
    matched: dict[str, Parameter] = {}
    unknown: list[str] = []
    left = []
    for position, parameter in enumerate(parameters):
        if parameter["kind"] in ("VAR_POSITIONAL", "VAR_KEYWORD"):
            continue
        place = Parameter(
            parameter["name"],
            position if parameter["kind"] == "POSITIONAL_ONLY" else None,
            parameter["has_default"],
            fixed=type(parameter.get("default")) is int and parameter["default"] > 0,
        )
        parameter = {**parameter, "name": parameter.get("spelled", parameter["name"])}
        if parameter["name"] in by_parameter:
            matched[by_parameter[parameter["name"]]] = place
        else:
            left.append((parameter, place))
    left = _special_masks_first(left, arguments)
    # In turn: the spelling as it is (K beside k), without case and separators, without words around it.
    for step in (str, plain, bare):
        still = []
        for parameter, place in left:
            name = _argument_for(parameter["name"], arguments, matched, step)
            if name is None:
                still.append((parameter, place))
            else:
                matched[name] = place
        left = still
    left = _counted_and_dropped(left, arguments, matched)
    for argument in arguments:  # a lone S is the length that is required, not the second one that is not
        if argument.required and argument.name not in matched and argument.unless not in matched:
            for other in arguments:
                place = matched.get(other.name)
                if place is not None and not other.required and place.name in argument.names:
                    matched[argument.name] = matched.pop(other.name)
                    break
    for parameter, place in left:  # a setting beside the parameter that says the same, or beside another one
        name = _argument_for(parameter["name"], arguments, {}, plain) if "spelled" in parameter else None
        twice = None if parameter["has_default"] else _argument_for(parameter["name"], arguments, {}, plain)
        if name in matched:
            matched[name] = replace(matched[name], also=(*matched[name].also, place.name))
        elif twice == "d_model" and twice in matched and place.position is None:  # input_dim beside embed_dim
            matched[twice] = replace(matched[twice], also=(*matched[twice].also, place.name))
        elif not parameter["has_default"]:
            unknown.append(place.name)
    if unknown:
        return f"needs {', '.join(map(repr, unknown))}, which is none of the role's arguments"
    return matched


def _special_masks_first(
    left: list[tuple[dict[str, Any], Parameter]], arguments: Sequence[Argument]
) -> list[tuple[dict[str, Any], Parameter]]:
    """Of several masks for one argument the one named first in the spec: ``context_mask`` before ``mask``."""
    order = {
        plain(n): k for a in arguments if a.kind == "mask" for k, n in reversed(list(enumerate(a.names)))
    }
    places = [n for n, (parameter, _) in enumerate(left) if plain(parameter["name"]) in order]
    ranked = sorted((left[n] for n in places), key=lambda item: order[plain(item[0]["name"])])
    result = list(left)
    for n, item in zip(places, ranked, strict=True):
        result[n] = item
    return result


def _counted_and_dropped(
    left: Sequence[tuple[Mapping[str, Any], Parameter]],
    arguments: Sequence[Argument],
    matched: dict[str, Parameter],
) -> list[tuple[Mapping[str, Any], Parameter]]:
    """Numbers of something by whatever word for a number, and dropout by whatever name; what is left after that."""
    still = []
    for parameter, place in left:
        name, what = parameter["name"], counted(parameter["name"])
        alike = [
            argument.name
            for argument in arguments
            if argument.kind == "size"
            and what
            and argument.name not in matched
            and what in {*map(counted, argument.names), *(plain(n).removesuffix("s") for n in argument.names)}
        ]
        dropped = "drop" in plain(name) and any(argument.name == "dropout" for argument in arguments)
        if "spelled" in parameter and _argument_for(name, arguments, {}, plain) in matched:
            still.append((parameter, place))
        elif alike and place.position is None:
            matched[alike[0]] = place
        elif dropped and not place.has_default and place.position is None:
            known = matched.get("dropout")
            matched["dropout"] = replace(known, also=(*known.also, place.name)) if known else place
        else:
            still.append((parameter, place))
    return still


def _argument_for(
    name: str, arguments: Sequence[Argument], matched: Mapping[str, Parameter], step: Callable[[str], str]
) -> str | None:
    for argument in arguments:
        if argument.name == name and name not in matched:
            return name
    for argument in arguments:
        if argument.name not in matched and step(name) in frozenset(map(step, argument.names)):
            return argument.name
    return None


def _convention(
    convention: Convention,
    role: Role,
    entry: Mapping[str, Any],
    arguments: Mapping[str, Parameter],
    declared: Declarations,
) -> tuple[str, str]:
    """The value of a convention before any probing, and where it comes from."""
    for subject in (entry["name"], role.id):
        value = declared.conventions.get(subject, {}).get(convention.name)
        if value is not None:
            return value, "declared"
    said = _said(convention, role, entry, arguments)
    if said and not (_additive_by_name(convention, entry) and "True" not in str(entry.get("doc", ""))):
        return said, "by its author's words"
    named = _named_value(convention, role, entry, arguments)
    return named or convention.default, "by name" if named or convention.kind == "named" else "default"


def _named_value(
    convention: Convention, role: Role, entry: Mapping[str, Any], arguments: Mapping[str, Parameter]
) -> str:
    """The value that follows from the name of the object or of a mask, or nothing."""
    names = [
        entry["name"].rsplit(".", 1)[-1],
        *(p.name for a, p in arguments.items() if _kind(role, a) == "mask"),
    ]
    for value, known in convention.by_name.items():  # in the order of the spec: what is special comes first
        loosely = tuple(k for k in known if not k.startswith("="))
        if any(f"={name}" in known or rank_among(loosely, name) for name in names):
            return value
    return ""


def _additive_by_name(convention: Convention, entry: Mapping[str, Any]) -> bool:
    """Whether a mask is called additive, or a bias: then 0 and -inf are what its words are of, not True."""
    names = convention.by_name.get("additive", ())
    return bool(names) and bool(rank_among(names, entry["name"].rsplit(".", 1)[-1]))


def masks_of(convention: Convention, role: Role, arguments: Mapping[str, Parameter]) -> list[str] | None:
    """The masks that a polarity speaks of; None for another convention, and where there is none of them."""
    if not {"allow", "block"} <= convention.values.keys():
        return None
    masks = [name for name in arguments if _kind(role, name) == "mask"]
    kind = convention.name.removesuffix("polarity")  # memory_, source_, target_, or any other
    own = [n for n in masks if n.startswith({"target_": "tgt", "source_": ("memory", "src")}.get(kind, kind))]
    if not kind:
        rest = [n for n in masks if not n.startswith(("memory", "tgt", "src"))]
        own = [n for n in rest if not n.endswith("key_padding_mask")] or rest
    takes_masks = any(argument.kind == "mask" for argument in role.arguments)
    return None if takes_masks and not own else own


def _said(
    convention: Convention, role: Role, entry: Mapping[str, Any], arguments: Mapping[str, Parameter]
) -> str:
    """The meaning of True in a mask, where the author writes it."""
    own = masks_of(convention, role, arguments)
    if own is None:
        return ""
    masks = {name: place.name for name, place in arguments.items() if _kind(role, name) == "mask"}
    name = masks[own[0]] if own else ""
    others = [parameter for parameter in masks.values() if parameter != name]
    words = str(entry.get("doc", ""))
    return polarity(words, name, others) or polarity(str(entry.get("file_doc", "")), name, others)


def _kind(role: Role, argument: str) -> str:
    return next((a.kind for a in role.arguments if a.name == argument), "")
