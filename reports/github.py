"""What GitHub Actions reads: annotations, printed as workflow commands."""

from ..spec import Failure, Report
from .safe import clean
from .text import LOUD, grouped

COMMANDS = {"MUST": "error", "SHOULD": "warning", "MAY": "notice"}


def annotations(report: Report) -> str:
    """A line for each failure, at the place of its object where that is known; errors first.

    What a candidate wrote cannot end a line or a property, so that it gives no command of its own.
    """
    places = {item.object: (item.file, item.line) for item in report.binding if item.file}
    lines = []
    for level, command in COMMANDS.items():
        for group in grouped([v for v in report.verdicts if v.level == level and v.verdict in LOUD]):
            verdict = group[0]
            failure = verdict.failure or Failure(verdict.reason)
            file, line = places.get(verdict.object.split(" + ")[0], ("", 0))
            properties = {"file": file, "line": str(line) if line else "", "title": f"triu {verdict.claim}"}
            told = ",".join(f"{name}={_property(value)}" for name, value in properties.items() if value)
            advice = failure.likely.correction if failure.likely else failure.hint
            likely = f" Likely mistake: {failure.likely.misconception}" if failure.likely else ""
            more = f" (and {len(group) - 1} more claims)" if len(group) > 1 else ""
            what = f"{verdict.object}: {verdict.title}{more}: {failure.what}.{likely} {advice}"
            lines.append(f"::{command} {told}::{_data(what.strip())}")
    return "".join(f"{line}\n" for line in lines)


def _data(text: str) -> str:
    return clean(text).replace("%", "%25")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
