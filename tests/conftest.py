"""What all tests share."""

import json
import re
import shutil
import subprocess
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from triu.conformance.api import open_check
from triu.spec import load_spec


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """Torch with one thread: where arrays are this small a second one only waits, and others run beside."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@dataclass(frozen=True)
class Seen:
    """What a browser made of a page: its title, what ran in it, what it complained of and asked for."""

    found: dict[str, object]
    console: list[str]
    requests: set[str]


# Runs in a page around the one that is looked at; {ask} is evaluated there with d, the document, and w, its window.
AROUND = """<!doctype html><meta charset="utf-8"><body>
<iframe id="f" style="width:{width}px;height:800px;border:0" src="{url}"></iframe>
<script>
const f = document.getElementById("f");
f.onload = () => {{
  const d = f.contentDocument, w = f.contentWindow;
  const p = document.createElement("pre");
  p.id = "result";
  p.textContent = JSON.stringify({ask});
  document.body.append(p);
}};
</script></body>
"""
# What reaches beyond the window, but for boxes that scroll on their own.
WIDE = """[...d.querySelectorAll("main *")].filter(e => e.getBoundingClientRect().right > w.innerWidth + 1
  && !e.closest(".drawing, .scroll, pre")).map(e => e.outerHTML.slice(0, 80))"""


@pytest.fixture(scope="session")
def browse(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Seen]:
    """Opens a page in a headless Chromium and asks it something; skips where there is none."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        pytest.skip("no Chromium here")

    def look(page: Path, ask: str = "{}", width: int = 1200) -> Seen:
        folder = tmp_path_factory.mktemp("browser")
        around, log = folder / "around.html", folder / "net.json"
        ask = f"{{title: d.title, wide: {WIDE}, ...({ask})}}".replace("</", "<\\/")
        around.write_text(AROUND.format(width=width, url=page.resolve().as_uri(), ask=ask), "utf-8")
        done = subprocess.run(
            [
                *(chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
                *("--allow-file-access-from-files", "--enable-logging=stderr", "--virtual-time-budget=3000"),
                *(f"--user-data-dir={folder / 'profile'}", f"--log-net-log={log}", "--dump-dom"),
                *("--host-resolver-rules=MAP * ~NOTFOUND", "--disable-background-networking"),
                around.as_uri(),
            ],
            capture_output=True,
            text=True,
            timeout=600,
        )
        result = re.search(r'<pre id="result">(.*?)</pre>', done.stdout, re.DOTALL)
        assert result, done.stderr[-2000:]
        text = result[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
        console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
        events = json.loads(log.read_text("utf-8"))["events"] if log.exists() else []
        asked = {str(e["params"]["url"]) for e in events if "url" in (e.get("params") or {})}
        browser = re.compile(r"https?://([\w.-]+\.)?(google|gvt1|googleapis|gstatic)\.com")
        return Seen(json.loads(text), console, {url for url in asked if not browser.match(url)})

    return look


@pytest.fixture
def report_on(tmp_path):
    """The report on a source, for the claims named or all those of the roles named."""

    def reported(source, *wanted):
        spec = load_spec()
        path = tmp_path / "candidate.py"
        path.write_text(textwrap.dedent(source), "utf-8")
        check = open_check(path, spec=spec, in_process=True, seed=0)
        try:
            return check.report([c for c in spec.claims.values() if {c.role, c.id} & set(wanted)])
        finally:
            check.close()

    return reported
