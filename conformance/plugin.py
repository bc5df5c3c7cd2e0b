"""The pytest plugin: spec files are test files, every claim is an item.

``pytest --candidate TARGET`` judges a candidate, the baseline by default.  Claims are collected from the
TOML itself, so ``-k``, ``-x``, ``--lf``, ``--junitxml`` and xdist work as for any test.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

CLAIM = re.compile(r"^\s*\[\[\s*claim\s*\]\]", re.MULTILINE)
HERE = Path(__file__).resolve().parents[1]


class ClaimFailed(Exception):
    """A claim that did not pass; its text is what a person should read."""


class AdviceWarning(UserWarning):
    """A SHOULD or MAY claim that does not hold."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("triu", "conformance of transformer decoders")
    group.addoption(
        "--candidate",
        metavar="TARGET",
        help="what to check: a file, folder, module, module:object or built-in name",
    )
    group.addoption("--triu-seed", type=int, default=0, metavar="N", help="the seed of all cases (0)")
    group.addoption("--triu-examples", type=int, default=24, metavar="N", help="cases for each claim (24)")
    group.addoption(
        "--triu-conventions", metavar="FILE", help="declarations, instead of triu.toml beside the target"
    )
    group.addoption("--triu-worker", action="store_true", help="run the candidate in a process of its own")


def pytest_report_header(config: pytest.Config) -> str:
    target = config.getoption("--candidate") or "baseline"
    seed, examples = config.getoption("--triu-seed"), config.getoption("--triu-examples")
    return f"triu: candidate {target}, seed {seed}, {examples} examples"


def pytest_configure(config: pytest.Config) -> None:
    """With a candidate and no paths, the checkout's own tests are left out: only the spec is asked for."""
    candidate: Any = config.getoption("--candidate")
    if candidate:
        from .candidates.errors import TriuError
        from .candidates.target import locate

        try:
            locate(candidate, config.getoption("--triu-conventions"))
        except TriuError as error:
            raise pytest.UsageError(str(error)) from None
    if candidate and config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        config.args[:] = [path for path in config.args if Path(path).name == "spec"] or config.args


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.suffix != ".toml":
        return None
    try:
        text = file_path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    return SpecFile.from_parent(parent, path=file_path) if CLAIM.search(text) else None


class SpecFile(pytest.File):
    """A TOML file of claims."""

    def collect(self) -> Iterable[pytest.Item]:
        from ..spec import SpecError

        judge = _judge(self.config)
        try:
            spec = judge.spec_with(self.path)
        except SpecError as error:
            raise self.CollectError(str(error)) from None
        wanted = f"spec/{self.path.name}" if self.path.resolve().parent == HERE / "spec" else str(self.path)
        for claim in spec.claims.values():
            if claim.file == wanted:
                yield ClaimItem.from_parent(self, name=claim.id, claim=claim)


class ClaimItem(pytest.Item):
    """One claim, judged on every object of the candidate that it concerns."""

    def __init__(self, *, claim: Any, **options: Any) -> None:
        super().__init__(**options)
        self.claim = claim
        self.extra_keyword_matches.update((claim.level, claim.role, *claim.partners))

    def runtest(self) -> None:
        verdicts = _judge(self.config).verdicts(self.path, self.claim)
        for verdict in verdicts:
            self.user_properties.append((f"triu {verdict.object}", verdict.verdict))
        must = self.claim.level == "MUST"
        bad = _bad(verdicts)
        if bad:
            bad = _bad(_judge(self.config).verdicts(self.path, self.claim, explained=True))
        if bad and (must or any(v.verdict == "suite_fault" for v in bad)):
            raise ClaimFailed(_told(bad))
        if bad:
            warnings.warn(AdviceWarning(_told(bad)), stacklevel=1)
            return
        if not any(v.verdict == "passed" for v in verdicts):
            pytest.skip("; ".join(dict.fromkeys(f"{v.verdict}: {v.reason}" for v in verdicts)))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        from .candidates.errors import TriuError

        if isinstance(excinfo.value, ClaimFailed | TriuError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, f"{self.claim.id}: {self.claim.title}"


def _bad(verdicts: list[Any]) -> list[Any]:
    return [v for v in verdicts if v.verdict in ("failed", "errored", "inconclusive", "suite_fault")]


def _told(verdicts: list[Any]) -> str:
    from ..reports.text import failure_text

    return "\n\n".join(failure_text(verdict) for verdict in verdicts)


class Judge:
    """Opens the candidate once per process, and a spec for each file that is not built in."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._specs: dict[Path | None, Any] = {}
        self._checks: dict[Path | None, Any] = {}

    def spec_with(self, path: Path) -> Any:
        from ..spec import load_spec

        extra = self._extra(path)
        if extra not in self._specs:
            self._specs[extra] = load_spec([extra] if extra else ())
        return self._specs[extra]

    @staticmethod
    def _extra(path: Path) -> Path | None:
        return None if path.resolve().parent == HERE / "spec" else path

    def verdicts(self, path: Path, claim: Any, *, explained: bool = False) -> list[Any]:
        from .api import open_check

        extra = self._extra(path)
        if extra not in self._checks:
            option: Any = self._config.getoption
            try:
                self._checks[extra] = open_check(
                    option("--candidate") or "baseline",
                    spec=self.spec_with(path),
                    seed=option("--triu-seed"),
                    examples=option("--triu-examples"),
                    conventions=option("--triu-conventions"),
                    in_process=not option("--triu-worker"),
                )
            except Exception as error:
                self._checks[extra] = error
        check = self._checks[extra]
        if isinstance(check, Exception):
            raise check
        return check.explained(claim) if explained else check.verdicts(claim)

    def close(self) -> None:
        for check in self._checks.values():
            if not isinstance(check, Exception):
                check.close()


_key = pytest.StashKey[Judge]()


def _judge(config: pytest.Config) -> Judge:
    if _key not in config.stash:
        config.stash[_key] = Judge(config)
    return config.stash[_key]


def pytest_unconfigure(config: pytest.Config) -> None:
    if _key in config.stash:
        config.stash[_key].close()
