"""What is claimed about a transformer decoder, as data, and the shape of a verdict on it."""

from .audit import Audited, AuditedLesson, Came, called
from .documents import SpecError
from .formula import Formula, FormulaError, parse, parse_shape
from .grade import Grade, Item, ItemScore, Limits, Milestone, Profile
from .ledger import FINDINGS, Check, Finding, Lesson, Section, Statement, lesson_files, load_lesson
from .loader import built_in_files, load_spec
from .model import Argument, Claim, Convention, Domain, PropertySpec, Result, Role, Spec
from .verdict import OUTCOMES, BoundObject, Evidence, Failure, Likely, Outcome, Picture, Report, Verdict

__all__ = [
    "FINDINGS",
    "OUTCOMES",
    "Argument",
    "Audited",
    "AuditedLesson",
    "BoundObject",
    "Came",
    "Check",
    "Claim",
    "Convention",
    "Domain",
    "Evidence",
    "Failure",
    "Finding",
    "Formula",
    "FormulaError",
    "Grade",
    "Item",
    "ItemScore",
    "Lesson",
    "Likely",
    "Limits",
    "Milestone",
    "Outcome",
    "Picture",
    "Profile",
    "PropertySpec",
    "Report",
    "Result",
    "Role",
    "Section",
    "Spec",
    "SpecError",
    "Statement",
    "Verdict",
    "built_in_files",
    "called",
    "lesson_files",
    "load_lesson",
    "load_spec",
    "parse",
    "parse_shape",
]
