"""An example of each report that triu makes, in build/demo/: pages, a table, a class, a comparison, other tools' files.

    python benchmarks/demo.py [--pictures]

With --pictures the two screenshots of the README are taken too, with a Chromium of the system.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
DEMO = ROOT / "build" / "demo"
TRIU = [sys.executable, "-m", "triu.conformance"]
CANDIDATES = {
    "conforming": Path("examples/lesson_fused.py"),
    "broken": Path("tests/pages/broken.py"),
    "hostile": Path("tests/pages/hostile.py"),
}


def main() -> None:
    shutil.rmtree(DEMO, ignore_errors=True)
    DEMO.mkdir(parents=True)
    for name, path in CANDIDATES.items():
        files = [
            f"--{form}={DEMO / name}.{suffix}"
            for form, suffix in (("html", "html"), ("json", "json"), ("csv", "csv"))
        ]
        triu("check", path, *files, f"--markdown={DEMO / name}.md", "--quiet", expected=(0, 1))
    triu("check", CANDIDATES["broken"], "--github", "--quiet", into="github.txt", expected=(1,))
    reports = [DEMO / f"{name}.json" for name in CANDIDATES]
    forms = [
        f"--{form}={DEMO}/table.{suffix}"
        for form, suffix in (("html", "html"), ("json", "json"), ("csv", "csv"))
    ]
    triu("table", "baseline", "torch", *reports, *forms, f"--markdown={DEMO}/table.md", into="table.txt")
    triu("diff", DEMO / "conforming.json", DEMO / "broken.json", into="diff.txt", expected=(1,))
    junit()
    grade_a_class()
    if "--pictures" in sys.argv:
        pictures()
    print(f"\n{DEMO.relative_to(ROOT)}:")
    for path in sorted(DEMO.iterdir()):
        size = path.stat().st_size if path.is_file() else 0
        print(f"  {path.name}{'/' if path.is_dir() else f'  {size / 1000:.0f} kB'}")


def triu(*arguments: object, into: str = "", expected: tuple[int, ...] = (0,)) -> None:
    """Run a command; its output goes to a file of the demo, or to the terminal."""
    print("triu", *(str(a).replace(f"{ROOT}/", "") for a in arguments), flush=True)
    done = subprocess.run([*TRIU, *map(str, arguments)], cwd=ROOT, stdout=subprocess.PIPE if into else None)
    if into:
        (DEMO / into).write_bytes(done.stdout)
    if done.returncode not in expected:
        sys.exit(f"exit status {done.returncode}, expected {' or '.join(map(str, expected))}")


def junit() -> None:
    """The claims as tests, and JUnit XML of them."""
    command = [sys.executable, "-m", "pytest", "-q", "-o", "testpaths=spec", f"--junitxml={DEMO}/junit.xml"]
    subprocess.run([*command, "--candidate", CANDIDATES["broken"]], cwd=ROOT, stdout=subprocess.DEVNULL)


def grade_a_class() -> None:
    """A class of some dozens, graded, with its overview."""
    submissions = DEMO / "submissions"
    submissions.mkdir()
    for path in (
        *sorted((ROOT / "examples").glob("*.py")),
        *sorted((ROOT / "tests" / "broken").glob("*.py"))[:24],
    ):
        shutil.copy(path, submissions)
    for path in CANDIDATES.values():
        shutil.copy(ROOT / path, submissions)
    (submissions / "not python.py").write_text("def attention(q, k, v:\n", "utf-8")
    triu("grade", submissions, "--profile", "lesson-85", "--out", DEMO / "class", "--quiet")


def pictures() -> None:
    """Screenshots for the README."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("no Chromium here")
    folder = ROOT / "docs" / "images"
    folder.mkdir(exist_ok=True)
    some = "causal-mask.total,causal-self-attention.*"
    triu(
        "check",
        CANDIDATES["broken"],
        "--claims",
        some,
        f"--html={DEMO}/picture.html",
        "--quiet",
        expected=(1,),
    )
    shots = {"report": ("picture.html", "900,1380"), "class": ("class/index.html", "1000,1150")}
    for name, (page, size) in shots.items():
        command = [
            chromium,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--window-size={size}",
        ]
        shot = folder / f"{name}.png"
        subprocess.run(
            [*command, f"--screenshot={shot}", (DEMO / page).as_uri()], check=True, capture_output=True
        )


if __name__ == "__main__":
    main()
