"""Run the container file's RUN and COPY lines in a plain directory, where no container engine is at hand.

``python -m benchmarks.release.container [DIRECTORY]``: absolute paths are moved below the directory, ``useradd`` gets
it as its prefix, and the base image is whatever this machine is. Needs root (``useradd``, ``install -o``) and the
package index. What it cannot show: that the base image has what the lines need, and what USER and HEALTHCHECK do.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "packaging" / "Dockerfile"
_MOVED = re.compile(r"(?<![\w./-])/(?=opt/panstream|var/lib/panstream|source)")


def instructions(text: str) -> list[tuple[str, str]]:
    """Return every instruction and its argument, with continued lines joined and comments left out."""
    joined = re.sub(r"\\\n", " ", "\n".join(line for line in text.splitlines() if not line.startswith("#")))
    pairs = (line.partition(" ") for line in joined.splitlines() if line.strip())
    return [(word, " ".join(rest.split())) for word, _, rest in pairs]


def moved(command: str, root: Path) -> str:
    """Return a command whose paths of the image lie below ``root``."""
    command = _MOVED.sub(f"{root}/", command)
    command = command.replace("useradd ", f"useradd --prefix {root} ")
    return command.replace("install -d -m 0700 -o panstream -g panstream", "install -d -m 0700 -o 10001 -g 10001")


def run(root: Path) -> int:
    """Execute the lines; return the number of commands that were run."""
    for folder in ("etc", "opt", "source", "var/lib"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for name in ("passwd", "group", "shadow", "gshadow", "login.defs"):
        if (Path("/etc") / name).is_file():
            shutil.copy(Path("/etc") / name, root / "etc" / name)
    here = root
    count = 0
    for word, rest in instructions(DOCKERFILE.read_text()):
        if word == "WORKDIR":
            here = Path(moved(rest, root))
            here.mkdir(parents=True, exist_ok=True)
        elif word == "COPY" and "--from" not in rest:
            *sources, target = rest.split()
            for source in sources:
                path = ROOT / source
                if path.is_dir():
                    ignored = shutil.ignore_patterns("__pycache__")
                    shutil.copytree(path, here / target, dirs_exist_ok=True, ignore=ignored)
                else:
                    if target.endswith("/"):
                        (here / target).mkdir(parents=True, exist_ok=True)
                    shutil.copy(path, here / target)
        elif word == "RUN":
            shell = shlex.join(json.loads(rest)) if rest.startswith("[") else rest
            print(f"RUN {shell[:100]}", flush=True)
            subprocess.run(["sh", "-e", "-c", moved(shell, root)], cwd=here, check=True, stdin=subprocess.DEVNULL)
            count += 1
    return count


def main() -> int:
    folder = Path(sys.argv[1]).resolve() if sys.argv[1:] else Path(tempfile.mkdtemp(prefix="panstream-image-"))
    try:
        count = run(folder)
    finally:
        if not sys.argv[1:]:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"{count} RUN lines of {DOCKERFILE.name} ended with status 0")
    return 0


if __name__ == "__main__":
    sys.exit(main())
