"""What the names of objects and of parameters say, apart from case, separators and the words around them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from ...spec import Role, Spec

# Words around a name that say nothing about what it is: make_causal_mask_np is a causal_mask.
AFFIXES = frozenset(
    """build create make get gen generate compute construct calc calculate my our the simple basic naive custom own
    manual fn func function np numpy torch pytorch pt impl implementation scratch v1 v2 v3 student ref vectorized vec
    new slow fast tiny mini small little toy plain vanilla""".split()
)


@lru_cache(maxsize=4096)
def words(name: str) -> tuple[str, ...]:
    """A name's words in lower case: ``BuildCausalMask`` and ``build_causal_mask`` alike."""
    spaced = re.sub(r"([a-z0-9])([A-Z])|([A-Z]+)([A-Z][a-z])", r"\1\3_\2\4", name)
    return tuple(part.lower() for part in re.split(r"[^A-Za-z0-9]+", spaced) if part)


def plain(name: str) -> str:
    """A name without case and separators."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


@lru_cache(maxsize=4096)
def core(name: str) -> str:
    """The name without the words that say nothing, as long as something is left."""
    parts = [
        part[:-1] if len(part) > 3 and part.endswith("s") else part for part in words(name)
    ]  # plurals too
    left = [part for part in parts if part not in AFFIXES]
    return "".join(left or parts)


# Words around a parameter's name: embeddings_batch is embeddings, input_Q is Q.
FILLERS = frozenset(
    "batch tensor tensors input inputs array arr matrix mat proj projected projection vectors vecs".split()
)


@lru_cache(maxsize=4096)
def bare(name: str) -> str:
    """A parameter's name without fillers, as long as something is left."""
    parts = words(name)
    return "".join([part for part in parts if part not in FILLERS] or parts)


COUNTING = frozenset("n num nb nr no number count counts of total amount qty".split())


@lru_cache(maxsize=4096)
def counted(name: str) -> str:
    """What a number counts: ``head`` for ``heads_count``, ``number_of_heads``, ``n_heads``; nothing for no number."""
    parts = words(name)
    left = [part.removesuffix("s") for part in parts if part not in COUNTING]
    return "".join(left) if 0 < len(left) < len(parts) else ""


def name_rank(role: Role, name: str) -> int | None:
    """How well an object's name fits a role, as :func:`rank_among` says."""
    return rank_among(role.names, name.rsplit(".", 1)[-1])


def rank_among(known: tuple[str, ...], name: str) -> int | None:
    """How well a name fits one of those known: 1 exactly, 2 but for words around it, None not at all."""
    exact, cores, ends = _names_of(known)
    if plain(name) in exact:
        return 1
    return 2 if core(name) in cores or (name[:1].isupper() and plain(name).endswith(ends)) else None


@lru_cache(maxsize=256)
def _names_of(names: tuple[str, ...]) -> tuple[frozenset[str], frozenset[str], tuple[str, ...]]:
    """Exact names, their cores, and endings: ``*LanguageModel`` is any name that ends so."""
    whole = [name for name in names if not name.startswith("*")]
    ends = tuple(plain(name) for name in names if name.startswith("*"))
    return frozenset(map(plain, whole)), frozenset(map(core, whole)), ends


def near_misses(spec: Spec, entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Objects whose names resemble those of a role: what to say when nothing was found."""
    known: dict[str, tuple[str, str]] = {}
    for role in spec.roles.values():
        for name in role.names:
            known.setdefault(plain(name), (role.id, name))
    lines = []
    for entry in entries:
        near = get_close_matches(core(entry["name"]), known, 1, 0.75)
        if near and not any(name_rank(role, entry["name"]) for role in spec.roles.values()):
            role, name = known[near[0]]
            lines.append(f"{entry['name']} looks like {name} (role {role})")
    return lines
