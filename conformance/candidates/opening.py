"""Opens a candidate: imports it, binds its objects, probes their conventions."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from ...spec import BoundObject, Spec
from .attention import AttentionSubject
from .binding import Binding, bind
from .blocks import BlockSubject
from .cached_attention import CachedAttentionSubject
from .clones import ClonesSubject
from .encoder_decoder import EncoderDecoderSubject
from .errors import CallFailed, TargetError
from .generation import GenerationSubject
from .heads import MultiheadSubject
from .language_generation import LanguageSubject
from .layers import LayerSubject, NormSubject
from .masks import MaskSubject, PaddingMaskSubject
from .models import ModelSubject
from .names import near_misses
from .positions import PositionSubject
from .sampling import DistributionSubject, GreedySubject, TokenSubject
from .session import Session, describe_error
from .subject import Subject
from .teaching import ShiftSubject
from .teaching_loss import LossSubject
from .teaching_sampling import ScheduledSubject
from .teaching_step import TrainingStepSubject

# Roles whose conventions need translating; any other role is called as its spec says.
SUBJECTS: dict[str, type[Subject]] = {
    "shift_right": ShiftSubject,
    "teacher_forcing_loss": LossSubject,
    "training_step": TrainingStepSubject,
    "scheduled_sampling": ScheduledSubject,
    "generate": GenerationSubject,
    "causal_mask": MaskSubject,
    "prefix_lm_mask": MaskSubject,
    "padding_mask": PaddingMaskSubject,
    "attention": AttentionSubject,
    "causal_attention": AttentionSubject,
    "positional_encoding": PositionSubject,
    "decoder_stack": ModelSubject,
    "language_model": LanguageSubject,
    "cached_attention": CachedAttentionSubject,
    "encoder_decoder": EncoderDecoderSubject,
    "clones": ClonesSubject,
    "multihead_attention": MultiheadSubject,
    "causal_self_attention": MultiheadSubject,
    "cross_attention": MultiheadSubject,
    "feed_forward": LayerSubject,
    "layer_norm": NormSubject,
    "decoder_block": BlockSubject,
    "encoder_block": BlockSubject,
    "decoder_only_block": BlockSubject,
    "next_token_distribution": DistributionSubject,
    "sample_token": TokenSubject,
    "greedy_token": GreedySubject,
}


class Candidate:
    """An opened candidate: its session and the subjects that were found, each probed when it is first needed."""

    def __init__(
        self,
        session: Session,
        subjects: Sequence[Subject],
        unjudged: Sequence[BoundObject],
        notes: Sequence[str],
    ) -> None:
        self.session = session
        self.unjudged, self.notes = tuple(unjudged), tuple(notes)
        self._subjects = tuple(subjects)
        self._probed: set[str] = set()

    @property
    def name(self) -> str:
        return self.session.target.text

    @property
    def subjects(self) -> tuple[Subject, ...]:
        """All subjects, probed."""
        for role in dict.fromkeys(subject.role.id for subject in self._subjects):
            self.filling(role)
        return self._subjects

    def filling(self, role: str) -> list[Subject]:
        """The subjects of a role, probed."""
        found = [subject for subject in self._subjects if subject.role.id == role]
        if role not in self._probed:
            self._probed.add(role)
            for subject in found:
                try:
                    subject.probe()
                except Exception as error:  # whatever it answered, it is not to end the check
                    told = str(error) if isinstance(error, CallFailed) else f"{type(error).__name__}: {error}"
                    subject.problem = f"probing it failed: {told}"
                if subject.binding.settings:
                    subject.probed("sizes", f"from {subject.binding.settings}")
        return found


def open_candidate(session: Session, spec: Spec) -> Candidate:
    """Import and bind.

    Raises:
        OpenError: importing failed.
        ConventionError: the declarations beside the target are wrong.
        TargetError: no object of the candidate fills any role; the message says which names were looked for.
    """
    description = session.open()
    declared, only = session.target.declarations, session.target.only
    entries = description["objects"]
    bindings = bind(spec, entries, declared, only)
    notes = [f"not imported: {describe_error(error)}" for error in description.get("failed", ())]
    notes += _unrecognised(entries, bindings)
    subjects, unjudged = [], []
    judged_roles = {role for claim in spec.claims.values() for role in (claim.role, *claim.partners)}
    for binding in bindings:
        subject = SUBJECTS.get(binding.role.id, Subject)(session, binding)
        if binding.problem:
            unjudged.append(subject.bound_object())
        elif binding.role.id not in judged_roles:
            subject.problem = "found; no claim of this spec concerns it"
            unjudged.append(subject.bound_object())
        else:
            subjects.append(subject)
    if not subjects:
        raise TargetError(_nothing_found(session, spec, entries, bindings, unjudged))
    return Candidate(session, subjects, unjudged, notes)


REMEDY = (
    'Say in triu.toml beside it what such a parameter is, [arguments.NAME] with d_model = "your_parameter", '
    "or write an adapter (see docs/conventions.md)."
)


def _unrecognised(entries: Sequence[dict], bindings: Sequence[Binding]) -> list[str]:
    """What else the candidate defines, of which nothing is said otherwise: its names are those of no role."""
    used = {name for binding in bindings for name in binding.entry.get("uses", ())}
    known = {binding.entry["name"] for binding in bindings} | used
    names = [
        e["name"]
        for e in entries
        if e["name"] not in known
        and "." not in e["name"]
        and not e.get("private")
        and (e["params"] if e["kind"] == "function" else {"forward", "__call__"} & e["methods"].keys())
    ]
    if not names or not bindings:
        return []
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return [f"not looked at, as no role has such a name: {', '.join(names[:8])}{more}"]


def _nothing_found(
    session: Session,
    spec: Spec,
    entries: Sequence[dict],
    bindings: Sequence[Binding],
    unjudged: Sequence[BoundObject],
) -> str:
    lines = [f"{session.target.text}: nothing in it fills a role that triu checks."]
    if session.target.only and not any(e["name"] == session.target.only for e in entries):
        near = get_close_matches(session.target.only, [e["name"] for e in entries], 1)
        lines.append(
            f"It has no object {session.target.only!r}{f'; did you mean {near[0]}?' if near else '.'}"
        )
    if any(e["name"] == session.target.only for e in entries):
        entries = [e for e in entries if e["name"] == session.target.only]
    own = [e["name"] for e in entries]
    lines.append(
        f"It defines: {', '.join(own[:20]) or 'no function or class'}{' …' if len(own) > 20 else ''}."
    )
    for item in unjudged:
        lines.append(f"{item.object} has the name of a role, {item.role}, but {item.problem}.")
    lines += [f"{line}." for line in near_misses(spec, entries)]
    if unjudged:
        lines.append(REMEDY)
    if not own or set(own) - {item.object for item in unjudged}:
        lines.append(
            "Names that are looked for, in any case and with make_, build_ and the like before them:"
        )
        lines += [f"  {role.id}: {', '.join(role.names[:6])}, …" for role in spec.roles.values()]
    lines.append(
        'Declare others in triu.toml beside it: [roles] with attention = "your_name" (see docs/conventions.md).'
    )
    return "\n".join(lines)
