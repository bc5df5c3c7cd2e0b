"""What is claimed about a transformer decoder, as data, and the shape of a verdict on it."""

from .formula import Formula, FormulaError, parse, parse_shape
from .grade import Grade, Item, ItemScore, Limits, Milestone, Profile
from .loader import SpecError, built_in_files, load_spec
from .model import Argument, Claim, Convention, Domain, PropertySpec, Result, Role, Spec
from .verdict import OUTCOMES, BoundObject, Evidence, Failure, Likely, Outcome, Picture, Report, Verdict

__all__ = [
    "OUTCOMES",
    "Argument",
    "BoundObject",
    "Claim",
    "Convention",
    "Domain",
    "Evidence",
    "Failure",
    "Formula",
    "FormulaError",
    "Grade",
    "Item",
    "ItemScore",
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
    "Spec",
    "SpecError",
    "Verdict",
    "built_in_files",
    "load_spec",
    "parse",
    "parse_shape",
]
