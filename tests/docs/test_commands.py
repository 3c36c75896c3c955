"""Command blocks of the pages that people follow first, typed as they stand where only a core install is.

A block that cannot run here (it waits for ever, or needs systemd, Docker, root or another machine) has a comment above,
``<!-- not run: why -->``. Its shell syntax is checked, and that every command and option of panstream in it exists.
``<!-- left running -->`` marks a server that the blocks after it talk to, here on a free port.
"""

import contextlib
import csv
import re
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer.main

from panstream.cli.app import app
from tests.docs.core_install import ROOT, core_install, run
from tests.ports import free_port
from tests.waiting import PATIENCE

FENCE = re.compile(r"(?sm)^(?:<!-- (?P<why>not run: [^\n]+|left running) -->\n)?```(?P<kind>\w+)\n(?P<text>.*?)^```")


class Block(NamedTuple):
    """One fenced block of a page."""

    kind: str
    text: str
    why: str | None

    @property
    def commands(self) -> list[str]:
        """Return its commands, one each; a line that ends in a backslash goes on."""
        return [line for line in self.text.replace("\\\n", " ").splitlines() if line.strip()]


def blocks(page: str) -> list[Block]:
    found = FENCE.finditer((ROOT / page).read_text("utf-8"))
    return [Block(match["kind"], match["text"], match["why"]) for match in found]


def table(folder: Path, name: str, header: list[str], rows: list[list[object]]) -> None:
    with (folder / name).open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def orders(folder: Path) -> None:
    table(folder, "orders.csv", ["customer", "country", "amount"], [[f"c{n % 3000:04d}", "DE", n] for n in range(9000)])


def access(folder: Path) -> None:
    table(folder, "access.csv", ["host", "bytes"], [[f"host{n % 3000}", n] for n in range(9000)])


def written(page: str) -> Callable[[Path], None]:
    """Return what makes the data of a page by its own first Python block, and saves its configurations."""

    def prepare(folder: Path) -> None:
        found = blocks(page)
        (folder / "data.py").write_text(next(block.text for block in found if block.kind == "python"))
        subprocess.run(["python3", "data.py"], cwd=folder, check=True)
        (folder / "panstream.toml").write_text(next(block.text for block in found if block.kind == "toml"))
        for name, text in re.findall(
            r"(?sm)`(\w+\.toml)`[^\n]*\n\n```toml\n(.*?)^```", (ROOT / page).read_text("utf-8")
        ):
            (folder / name).write_text(text)

    return prepare


def visits(folder: Path) -> None:
    table(folder, "visits.csv", ["visitor", "page"], [[f"v{n % 3000:05d}", "/"] for n in range(9000)])


def examples(folder: Path) -> None:
    (folder / "examples").symlink_to(ROOT / "examples")


PAGES: dict[str, Callable[[Path], None]] = {
    "README.md": access,
    "docs/quickstart.md": orders,
    "docs/howto/deploy.md": visits,
    "docs/howto/operate.md": written("docs/howto/operate.md"),
    "docs/tutorial/daily-visitors.md": written("docs/tutorial/daily-visitors.md"),
    "docs/tutorial/sections.md": written("docs/tutorial/sections.md"),
    "docs/tutorial/three-hospitals.md": examples,
    "docs/tutorial/my-site.md": examples,
}
READ = ["ask-a-file", "which-algorithm", "moments", "sources", "cluster", "synthetic-table"]
OTHERS = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs" / "tutorial").glob("*.md"))]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return core_install(tmp_path_factory.mktemp("core"))


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_commands_run_as_they_stand(page: str, programs: Path, tmp_path: Path) -> None:
    PAGES[page](tmp_path)
    port = str(free_port())
    with contextlib.ExitStack() as running:
        for block in blocks(page):
            if block.kind != "sh" or (block.why or "").startswith("not run"):
                continue
            if block.why == "left running":
                running.enter_context(kept_running(programs, f"{block.text.strip()} --port {port}", tmp_path, port))
            elif block.text.startswith("make "):  # what it would do; the environment is what it installs
                for command in block.commands:
                    call = ["make", "-n", *shlex.split(command, comments=True)[1:]]
                    assert not subprocess.run(call, cwd=ROOT, capture_output=True, check=False).returncode, command
            elif not block.text.startswith("export PATH="):  # the path is set
                done = run(programs, block.text.replace(":8080", f":{port}"), tmp_path)
                assert done.returncode == 0, f"{block.text}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    kept = b"".join(path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file())
    assert not any(name in kept for name in (b"c0001", b"v00001", b"host17"))


@pytest.mark.parametrize("page", [*PAGES, *(f"docs/howto/{name}.md" for name in READ)])
def test_commands_exist(page: str) -> None:
    """Every line that calls panstream names a command of it, with options that it has, and is valid shell."""
    for block in blocks(page):
        if block.kind != "sh":
            continue
        assert subprocess.run(["bash", "-n", "-c", block.text], check=False).returncode == 0, block.text
        for command in block.commands:
            for call in re.findall(r"(?:^|\| |bin/)panstream (.*?)(?=\s\||\s<\(|\s>|$)", command):
                check(shlex.split(call, comments=True))


@contextlib.contextmanager
def kept_running(programs: Path, command: str, folder: Path, port: str) -> Iterator[None]:
    """Start a server, wait until it answers, and stop it at the end as a service manager does."""
    environment = {"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(folder), "LANG": "C.UTF-8"}
    started = subprocess.Popen(shlex.split(command), cwd=folder, env=environment, stderr=subprocess.DEVNULL)
    try:
        wait = ["curl", "--silent", "--fail", "--retry", "120", "--retry-delay", "1", "--retry-all-errors"]
        subprocess.run([*wait, f"http://127.0.0.1:{port}/healthz"], check=True, capture_output=True)
        yield
    finally:
        started.terminate()
        assert started.wait(PATIENCE) == 128 + signal.SIGTERM


def test_every_tutorial_is_followed() -> None:
    """A page with commands that nobody types is not a tutorial of this list."""
    assert {page for page in OTHERS if any(block.kind == "sh" for block in blocks(page))} <= set(PAGES)


def check(words: list[str]) -> None:
    """Read the words as the command line would, without doing anything."""
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    if words != ["--help"]:
        command.make_parser(command.context_class(command)).parse_args(words)
