"""An environment with what ``make run`` installs and nothing else, made without a network of links to what is here."""

import os
import re
import subprocess
import tomllib
import venv
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]


def core_install(place: Path) -> Path:
    """Make the environment; return the folder of its programs."""
    venv.EnvBuilder(symlinks=True, with_pip=False).create(place)
    site = next(place.glob("lib/python*/site-packages"))
    (site / "panstream.pth").write_text(f"{ROOT / 'src'}\n")
    for name in needed():
        distribution = metadata.distribution(name)
        for top in {file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")}:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(distribution.locate_file(top))))
    programs = place / "bin"
    command = programs / "panstream"
    command.write_text(f"#!{programs / 'python'}\nfrom panstream.cli import main\n\nmain()\n")
    command.chmod(0o755)
    return programs


def needed() -> set[str]:
    """Return every package that the extras of ``make run`` need, by the metadata of what is installed here."""
    extras = re.search(r"-e '\.\[([\w,]+)\]'", (ROOT / "Makefile").read_text())
    assert extras is not None
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    waiting = [*project["dependencies"]]
    for extra in extras[1].split(","):
        waiting += project["optional-dependencies"][extra]
    found: set[tuple[str, str]] = set()
    while waiting:
        wanted = Requirement(waiting.pop())
        for extra in ("", *wanted.extras):
            if (wanted.name, extra) not in found:
                found.add((wanted.name, extra))
                waiting += [text for text in metadata.requires(wanted.name) or () if _applies(Requirement(text), extra)]
    return {name for name, _ in found}


def _applies(wanted: Requirement, extra: str) -> bool:
    return wanted.marker is None or wanted.marker.evaluate({"extra": extra})


# ``sort | head`` ends its ``sort`` by a broken pipe now and then, which pipefail takes for a failure.
HEAD = 'head() { command head "$@"; cat > /dev/null; }\n'


def run(programs: Path, command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command as a user types it."""
    environment = {
        "PATH": f"{programs}:/usr/bin:/bin",
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        **{name: os.environ.get(name, "") for name in ("NUMBA_CACHE_DIR", "OPENBLAS_NUM_THREADS")},
    }
    environment = {name: value for name, value in environment.items() if value}
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", HEAD + command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        stdin=subprocess.DEVNULL,
    )
