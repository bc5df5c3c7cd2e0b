"""A ready autograder for Gradescope: a zip with setup and run scripts, the assignment, and triu itself.

Gradescope unpacks it to ``/autograder/source``, runs ``setup.sh`` once, and ``run_autograder`` for each submission,
which lies in ``/autograder/submission``; it reads ``/autograder/results/results.json``.
Source: Gradescope's documentation, "Autograder specifications".
"""

from __future__ import annotations

import secrets
import zipfile
from collections.abc import Sequence
from importlib.metadata import metadata, requires, version
from pathlib import Path

from ...spec import Spec
from .profile import load_profile, shipped_profiles

SETUP = """\
#!/usr/bin/env bash
# Runs once, when Gradescope builds the image.
set -euo pipefail
cd "$(dirname "$0")"
found=""
look() {
    for name in python3 python3.14 python3.13 python3.12 python3.11; do
        if "$name" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2> /dev/null; then
            found="$name"
            return
        fi
    done
}
look
if [ -z "$found" ] && command -v apt-get > /dev/null; then
    apt-get update
    for version in python3 python3.12 python3.11; do
        if [ -z "$found" ]; then
            apt-get install -y "$version" "$version-venv" libseccomp2 || true
            look
        fi
    done
fi
if [ -z "$found" ]; then
    echo "triu needs Python 3.11 or later with venv; this image has none. Choose a newer one (Ubuntu 24.04)." >&2
    exit 1
fi
"$found" -m venv "${TRIU_VENV:-/autograder/venv}"
"${TRIU_VENV:-/autograder/venv}/bin/pip" install --quiet ${TRIU_PIP_OPTIONS:-} -r requirements.txt
"""

RUN = """\
#!/usr/bin/env bash
# Runs for each submission.
set -uo pipefail
root="${AUTOGRADER_ROOT:-/autograder}"
python="${TRIU_VENV:-/autograder/venv}/bin/python"
out="$(mktemp -d)"
mkdir -p "$root/results"
# Each submission has cases of its own: by the id that Gradescope gives it.
name="$("$python" -c 'import json, sys; print(int(json.load(open(sys.argv[1]))["id"]))' \\
    "$root/submission_metadata.json" 2> /dev/null)"
name="submission${name:+-$name}"
PYTHONPATH="$root/source/lib" "$python" -P -m triu.conformance grade \\
    "$root/submission" --single --name "$name" --profile "$root/source/PROFILE" --secret "$root/source/secret" \\
    --out "$out" --workers 1 SPECS
cp "$out"/submissions/*/results.json "$root/results/results.json" || cat > "$root/results/results.json" << 'END'
{"tests": [{"name": "The autograder itself failed", "status": "failed", "visibility": "visible",
  "output": "This is no fault of yours. Please tell your teacher."}]}
END
"""


def write_autograder(profile: str, output: Path, spec: Spec, spec_files: Sequence[str] = ()) -> None:
    """Write the zip.

    Raises:
        ProfileError: there is no such assignment.
        OSError: the file cannot be written.
    """
    loaded = load_profile(profile, spec)
    shipped = profile in shipped_profiles()
    name = profile if shipped else "profile.toml"
    more = [f"spec_{n}.toml" for n in range(len(spec_files))]
    run = RUN.replace('"$root/source/PROFILE"', name if shipped else '"$root/source/profile.toml"')
    run = run.replace("SPECS", " ".join(f'--spec "$root/source/{file}"' for file in more)).replace(
        " \n", "\n"
    )
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED) as archive:
        _add(archive, "setup.sh", SETUP, executable=True)
        _add(archive, "run_autograder", run, executable=True)
        _add(archive, "requirements.txt", _requirements())
        _add(archive, "secret", secrets.token_hex(32) + "\n")
        if not shipped:
            _add(archive, "profile.toml", Path(loaded.source).read_text("utf-8"))
        for file, path in zip(more, spec_files, strict=True):
            _add(archive, file, Path(path).read_text("utf-8"))
        root = Path(__file__).resolve().parents[2]
        for part in ("spec", "reference", "reports", "conformance"):
            for path in sorted((root / part).rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    archive.write(path, f"lib/triu/{path.relative_to(root)}")
        about = f"Metadata-Version: 2.1\nName: triu\nVersion: {version('triu')}\n"
        _add(archive, f"lib/triu-{version('triu')}.dist-info/METADATA", about)


def _requirements() -> str:
    """What triu needs to run."""
    assert metadata("triu")["Name"] == "triu"
    return "".join(f"{line}\n" for line in requires("triu") or () if "extra ==" not in line)


def _add(archive: zipfile.ZipFile, name: str, text: str, *, executable: bool = False) -> None:
    info = zipfile.ZipInfo(name, (2000, 1, 1, 0, 0, 0))
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = (0o755 if executable else 0o644) << 16
    archive.writestr(info, text)
