"""Matches what a candidate defines with the roles of a spec: by name, then by parameter names.

Arguments are bound by parameter name, never by position alone.  Nothing here touches the candidate:
it works on the description that the worker sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...spec import Convention, Role, Spec
from .declarations import check_declarations
from .errors import ConventionError
from .meanings import masks_of, meaning_of, named_value
from .names import name_rank, plain, words
from .parameters import Parameter, argument_for, match, match_call, named
from .settings import GLOBAL
from .target import Declarations
from .usual import usual


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
    """In blocks and models a mask whose name says nothing means what it means in the attention that they use.

    What the author says of the attention's mask, and what PyTorch says of its own, is known better than what follows
    from a name such as tgt_mask, unless the block may turn the mask around.
    """
    found = [_like_its_user(binding, found) for binding in found]
    meanings: dict[str, tuple[str, str]] = {
        binding.entry["defined_as"]: binding.conventions["polarity"]
        for binding in found
        if binding.role.id in ("attention", "multihead_attention", "cross_attention")
        and not binding.problem
        and masks_of(_polarity(binding.role), binding.role, binding.arguments)
    }
    result = []
    for binding in found:
        used = [meanings[name] for name in binding.entry.get("uses", ()) if name in meanings]
        hands_on = binding.entry.get("hands_on", ())
        if any(name != "~" for name in hands_on):
            used.append(("block", "PyTorch's"))
        meant = {value for value, _ in used}
        if binding.role.id in MASKS and isinstance(binding.entry, dict):
            binding.entry["attention_means"] = sorted({value for value, _ in meanings.values()})
        if len(meant) == 1 and binding.role.id in WITH_ATTENTION:
            known = "~" not in hands_on and all(how != "by name" for _, how in used)
            told = (meant.pop(), BY_ATTENTION)
            conventions = {
                n: told if _is_unsaid(binding, n, known) else v for n, v in binding.conventions.items()
            }
            binding = replace(binding, conventions=conventions)
        result.append(binding)
    return result


def _like_its_user(binding: Binding, found: Sequence[Binding]) -> Binding:
    """A function of attention means by its mask what the author says of the layer that hands it on."""
    users = {
        other.conventions["polarity"][0]
        for other in found
        if binding.role.id == "attention"
        and other.role.id in ("multihead_attention", "cross_attention")
        and binding.entry["defined_as"] in other.entry.get("uses", ())
        and other.conventions.get("polarity", ("", ""))[1] == "by its author's words"
        and "~" not in other.entry.get("hands_on", ())
    }
    if len(users) != 1 or binding.problem or not _is_unsaid(binding, "polarity", True):
        return binding
    told = (users.pop(), "by the mask of the layer that uses it")
    return replace(binding, conventions={**binding.conventions, "polarity": told})


def _polarity(role: Role) -> Convention:
    found = role.convention("polarity")
    assert found is not None, role.id
    return found


def _is_unsaid(binding: Binding, name: str, known: bool) -> bool:
    """Whether a block's or a model's polarity is but the role's default, and the mask has no telling name.

    ``known``: the attention's is more than a default, so that tgt_mask, which is mostly one thing, tells less.
    """
    convention = binding.role.convention(name)
    own = None if convention is None else masks_of(convention, binding.role, binding.arguments)
    return (
        convention is not None
        and bool(own)
        and binding.conventions[name][1] == "by name"
        and all(_is_neutral(binding.arguments[mask].name) for mask in own or ())
        and (known or not named_value(convention, binding.role, binding.entry, binding.arguments))
    )


def _is_neutral(name: str) -> bool:
    return NEUTRAL.issuperset(words(name)) and plain(name) not in ("attnmask", "attentionmask")


# The words of names such as src_mask, which say whose mask it is and not what True means.
MASKS = ("causal_mask", "padding_mask")
NEUTRAL = frozenset(
    "mask masks msk m attn attention slf src source sources tgt trg target targets enc dec encoder decoder memory mem "
    "x z self cross input inputs output outputs context".split()
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
        argument_for(p.get("spelled", p["name"]), arguments, {}, plain) is not None
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
            return failed(f"its constructor has no parameter for {named(role.constructor, missing)}")
    if entry["kind"] == "function":
        if entry["params"] is None:
            return failed("Python cannot tell its parameters")
        arguments = match_call(role, entry["params"], renamed)
        if isinstance(arguments, str):
            return failed(f"it {arguments}")
        return _bound(role, entry, declared, rank, "", arguments, constructor)
    problem = "it has no method to call"
    methods = [m for m in dict.fromkeys(("forward", "__call__", *role.methods)) if m in entry["methods"]]
    for method in methods:
        parameters = entry["methods"][method]
        if parameters is None:
            continue
        arguments = match_call(role, parameters, renamed)
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
    conventions = {c.name: meaning_of(c, role, entry, arguments, declared) for c in role.conventions}
    return Binding(role, entry, rank, method, arguments, constructor, conventions)
