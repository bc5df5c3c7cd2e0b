"""The command ``triu``.  Torch, NumPy and Hypothesis are imported only where a candidate is checked."""

from __future__ import annotations

import gc
import os
import shlex
import sys
import threading
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ..spec import Report, Spec, SpecError, load_spec
from . import auditing, comparing, showing, tables
from .grading import commands as grading
from .output import (
    file_options,
    in_color,
    renderers,
    stop,
    stop_commands,
    tell_github,
    terminal_width,
    write_all,
)
from .progress import Progress

if TYPE_CHECKING:
    from .candidates.transport import Started

CONFORMS, DOES_NOT, UNUSABLE, SUITE_FAULT = 0, 1, 2, 3


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="triu", prog_name="triu")
def main() -> None:
    """Check transformer decoders against machine-readable specs.

    \b
    Exit status: 0 conforms, 1 does not, 2 the request or the target is unusable,
    3 the suite itself is at fault.
    """


def _load(files: tuple[str, ...]) -> Spec:
    try:
        return load_spec(files)
    except SpecError as error:
        stop(error)


_spec_option = click.option(
    "--spec", "spec_files", multiple=True, metavar="FILE", help="A TOML file with more claims (repeatable)."
)


@main.command()
@click.argument("target", required=False)
@click.option(
    "--command", metavar="COMMAND", help="Instead of TARGET: a program that speaks docs/protocol.md."
)
@file_options()
@click.option(
    "--github", is_flag=True, help="Print annotations for GitHub Actions, and append to the job's summary."
)
@click.option(
    "--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True, help="The seed of all cases."
)
@click.option(
    "--claims", metavar="PATTERN", help="Only claims that match, like 'attention.*' (comma-separated)."
)
@_spec_option
@click.option(
    "--conventions", metavar="FILE", help="Declarations, instead of the triu.toml beside the target."
)
@click.option(
    "--show-binding", is_flag=True, help="Show in full what was found, and each convention with its origin."
)
@click.option(
    "--examples", type=click.IntRange(1, 100000), default=24, show_default=True, help="Cases for each claim."
)
@click.option("--in-process", is_flag=True, help="Run the candidate in this process, for a debugger.")
@click.option("--device", default="", metavar="NAME", help="Move modules to this torch device.")
@click.option(
    "--timeout",
    type=click.FloatRange(0.1),
    metavar="SECONDS",
    help="Limit for a call (20) and for importing (60).",
)
@click.option("--quiet", "-q", is_flag=True, help="Print the verdict alone.")
def check(
    target: str | None,
    command: str | None,
    github: bool,
    seed: int,
    claims: str | None,
    spec_files: tuple[str, ...],
    conventions: str | None,
    show_binding: bool,
    examples: int,
    in_process: bool,
    device: str,
    timeout: float | None,
    quiet: bool,
    **files: str | None,
) -> None:
    """Check TARGET: a Python file, a folder, a dotted module, module:object, or a built-in candidate.

    Built-in candidates: baseline (the reference), numpy (the second opinion), torch (PyTorch itself).
    """
    from .candidates.errors import TriuError

    transport: Started | None = None
    go_on = stop_commands() if github else None  # before anything of the candidate's can be printed
    if (target is None) == (command is None):
        stop("expected a TARGET, or --command COMMAND instead of it")
    try:
        from .candidates.target import command_target, locate, mentions_torch
        from .candidates.transport import Command
        from .candidates.transport import Subprocess as Worker

        # says what is wrong before anything is imported
        if command is None:
            located = locate(target or "", conventions)
        else:
            located = command_target(command, conventions)
        if command is not None:
            transport = Command(shlex.split(command))
        elif not in_process:  # the worker imports its libraries while this process imports its own
            transport = Worker(("torch",) if mentions_torch(located) else ())
            transport.start()
            threading.Thread(target=__import__, args=("torch",), daemon=True).start()
        spec = load_spec(spec_files)
        from .api import open_check, select
        from .candidates.session import CALL_SECONDS, IMPORT_SECONDS

        selected = select(spec, claims)
        opened = open_check(
            located,
            spec=spec,
            seed=seed,
            examples=examples,
            conventions=conventions,
            in_process=in_process,
            device=device,
            import_seconds=timeout or IMPORT_SECONDS,
            call_seconds=timeout or CALL_SECONDS,
            transport=transport,
        )
    except (TriuError, SpecError) as error:
        if transport is not None:
            transport.close()
        stop(error)
    except SystemExit:
        raise
    except Exception as error:
        stop(f"a fault of triu itself: {type(error).__name__}: {error}; please report it", SUITE_FAULT)
    try:
        with Progress(len(selected), "claims", quiet=quiet) as progress:
            report = opened.report(selected, lambda _: progress.step())
    except TriuError as error:
        stop(error)
    except Exception as error:
        import traceback

        traceback.print_exc()
        stop(f"a fault of triu itself: {type(error).__name__}: {error}; please report it", SUITE_FAULT)
    finally:
        opened.close()
    _finish(report, files, show_binding, quiet, go_on)


def _finish(
    report: Report,
    files: Mapping[str, str | None],
    binding: bool,
    quiet: bool,
    go_on: Callable[[], None] | None,
) -> NoReturn:
    from ..reports import to_text
    from ..reports.text import counts_line, headline

    # Files first: who pipes the text into `head` still gets them.
    complete = write_all(files, {form: partial(render, report) for form, render in renderers().items()})
    if quiet:
        text = f"{headline(report)}\n{counts_line(report)}\n"
    else:
        text = to_text(report, width=terminal_width(), color=in_color() and go_on is None, binding=binding)
    click.echo(text, nl=False)
    if go_on is not None:
        go_on()
        tell_github(report)
    status = CONFORMS if report.conforms else SUITE_FAULT if report.suite_fault else DOES_NOT
    if not complete or not report.provides:  # where nothing was judged, nothing is wrong
        status = UNUSABLE
    sys.exit(status)


@main.command()
@click.argument("claim", required=False)
@_spec_option
@click.option("--role", metavar="NAME", help="Only the claims on this role.")
def claims(claim: str | None, spec_files: tuple[str, ...], role: str | None) -> None:
    """List all claims, or explain one."""
    spec = _load(spec_files)
    from ..reports.claims import claim_text, claims_text

    if claim is None:
        chosen = [c for c in spec.claims.values() if role in (None, c.role, *c.partners)]
        if not chosen:
            stop(f"no claim concerns a role {role!r}; roles: {', '.join(spec.roles)}")
        click.echo(claims_text(chosen), nl=False)
        return
    known = spec.claims.get(claim)
    if known is None:
        matching = spec.select(claim)
        if len(matching) > 1:
            click.echo(claims_text(matching), nl=False)
            return
        near = get_close_matches(claim, spec.claims, 1)
        if not matching:
            stop(f"no claim {claim!r}{f'; did you mean {near[0]}?' if near else '.'} `triu claims` lists all")
        known = matching[0]
    width = min(110, terminal_width())
    click.echo(claim_text(known, spec.properties[known.property_name], width), nl=False)


@main.command()
@click.argument("report", metavar="REPORT.json")
@click.argument("claim", required=False)
@click.option("--target", metavar="TARGET", help="Another target than the one in the report.")
@click.option(
    "--conventions", metavar="FILE", help="Declarations, instead of the triu.toml beside the target."
)
@_spec_option
@click.option("--in-process", is_flag=True, help="Run the candidate in this process, for a debugger.")
def replay(
    report: str,
    claim: str | None,
    target: str | None,
    conventions: str | None,
    spec_files: tuple[str, ...],
    in_process: bool,
) -> None:
    """Run the failing cases of a stored report again: fixed, still failing, or different.

    CLAIM selects claims, like 'attention.*'.  Exit status: 0 if all are fixed, 1 if not, 2 if nothing can be run.
    """
    from ..reports import from_json

    try:
        stored = from_json(Path(report).read_text("utf-8"))
    except OSError as error:
        stop(f"{report}: cannot be read: {error.strerror}")
    except ValueError as error:
        stop(f"{report}: {error}")
    from ..reports.text import replay_text
    from .api import open_check
    from .candidates.errors import TriuError
    from .replay import replay as run_again
    from .replay import stored_failures

    try:
        chosen = stored_failures(stored, claim)
        opened = open_check(
            target or stored.candidate["target"],
            spec=_load(
                spec_files or tuple(f for f in stored.environment["spec"] if f not in load_spec().files)
            ),
            seed=stored.seed,
            conventions=conventions or stored.candidate.get("conventions") or None,
            in_process=in_process,
        )
    except TriuError as error:
        stop(error)
    width = terminal_width()
    states = []
    try:
        for again in run_again(opened, chosen):
            states.append(again.state)
            click.echo(replay_text(again.before, again.state, again.now, again.why, width))
    finally:
        opened.close()
    counted = ", ".join(f"{states.count(s)} {s}" for s in dict.fromkeys(states))
    click.echo(f"{counted}, of {len(states)} stored failures")
    sys.exit(int(any(state != "fixed" for state in states)))


@main.command()
@click.argument("pattern", default="*")
@click.option("--list", "list_only", is_flag=True, help="List the mutants, and what each one changes.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True)
@click.option("--examples", type=click.IntRange(1, 100000), default=24, show_default=True)
@click.option("--workers", type=click.IntRange(1, 256), default=None, help="Processes (default: one a core).")
@click.option("--json", "json_file", metavar="FILE", help="Write the matrix as JSON.")
@click.option("--markdown", "markdown_file", metavar="FILE", help="Write the matrix as Markdown.")
@click.option("--table", "table_file", metavar="FILE", help="Write what the package keeps of the matrix.")
def mutants(
    pattern: str,
    list_only: bool,
    seed: int,
    examples: int,
    workers: int | None,
    json_file: str | None,
    markdown_file: str | None,
    table_file: str | None,
) -> None:
    """Run the claims over the mutants: the reference with one known bug each.

    PATTERN selects mutants by id or role ('mask-*', 'generate'). Exit status: 0 if every mutant is killed by the
    claim whose business it is and every claim (with PATTERN: of their roles) kills at least one; else 1.
    """
    from fnmatch import fnmatch

    from ..reference.mutants import load_mutants

    spec, known = load_spec(), load_mutants()
    roles = {name: spec.claims[mutant.claim].role for name, mutant in known.items()}
    chosen = [m for m in known.values() if fnmatch(m.id, pattern) or roles[m.id] == pattern]
    if not chosen:
        near = get_close_matches(pattern, [*known, *spec.roles], 1)
        guess = f"; did you mean {near[0]}?" if near else "."
        stop(f"no mutant matches {pattern!r}{guess} `triu mutants --list` lists all {len(known)}")
    if list_only:
        for mutant in chosen:
            click.echo(f"{mutant.id}  ({roles[mutant.id]}, {mutant.claim}; baseline/{mutant.file}.py)")
            click.echo(f"  {mutant.misconception}\n  → {mutant.correction}")
            click.echo("".join(f"    {line}\n" for line in mutant.diff().split("\n")))
        return
    from ..reports import write_whole
    from ..reports.kills import idle_claims, kills_json, kills_table, kills_text
    from .kills import try_mutants

    kills = []
    with Progress(len(chosen), "mutants") as progress:
        for kill in try_mutants(chosen, seed=seed, examples=examples, workers=workers or os.cpu_count() or 1):
            kills.append(kill)
            progress.step()
    of = {roles[mutant.id] for mutant in chosen}
    killing = {claim for kill in kills for claim in kill.killers}
    claims = {c.id: c.role for c in spec.claims.values() if c.role in of or c.id in killing}
    if len(chosen) < sum(
        role in of for role in roles.values()
    ):  # a part of a role says nothing of its claims
        claims = {claim: role for claim, role in claims.items() if claim in killing}
    click.echo(kills_text(kills, claims), nl=False)
    for name, text in (
        (json_file, kills_json(kills, claims, {"seed": seed, "examples": examples})),
        (markdown_file, kills_text(kills, claims, "Kill matrix")),
        (table_file, kills_table(kills)),
    ):
        if name is not None:
            try:
                write_whole(Path(name), text)
            except OSError as error:
                stop(f"{name}: cannot be written: {error.strerror}; the matrix above is complete")
    sys.exit(int(bool(idle_claims(kills, list(claims))) or not all(kill.killed for kill in kills)))


for command in (
    *(showing.show, tables.table, comparing.diff, auditing.audit),
    *(grading.grade, grading.profile, grading.init, grading.gradescope),
):
    main.add_command(command)


def run() -> NoReturn:
    """The command as it is installed: leaves without taking torch apart, which would take half a second."""
    gc.set_threshold(100_000, 50, 100)  # a short-lived process with a large library in memory
    # Hypothesis keeps what it knows of local modules; the folder one happens to stand in is no place for that.
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "triu"
    os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(cache / "hypothesis"))
    status: Any = 0
    try:
        main()
    except SystemExit as error:
        status = error.code
    if isinstance(status, str):
        click.echo(status, err=True)
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        status = DOES_NOT
    os._exit(status if isinstance(status, int) else int(status is not None))


if __name__ == "__main__":
    run()
