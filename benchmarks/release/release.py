"""Is this fit to be published? Build wheel and sdist, install each into empty environments, and use what was installed.

``python -m benchmarks.release.release [PYTHON ...]``: interpreters to try besides this one; by default the newest that
is found beside it. Needs the package index. ``make release`` runs it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
# megabytes
WHEEL_LIMIT = 1.0
CORE_LIMIT = 350.0
# seconds
IMPORT_LIMIT = 0.4
HELP_LIMIT = 0.3
FIRST_LIMIT = 2.0
FIRST = (
    "from panstream.algorithms.density import OptBern; "
    "m = OptBern(universe=50_000, epsilon=1.0).start(); m.update(range(1000)); print(m.release())"
)
failed = 0


def line(name: str, figure: str, target: str, passed: bool) -> None:
    global failed
    failed += not passed
    print(f"{name:<58}  {figure:>34}  {target:>14}  {'pass' if passed else 'FAIL'}", flush=True)


def call(*words: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL"))}
    run = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, env=environment, check=False, cwd="/"
    )
    if check and run.returncode:
        sys.exit(f"{' '.join(map(str, words))} failed:\n{run.stderr[-2000:]}")
    return run


def seconds(*words: object, repeats: int = 5) -> float:
    """Return the processor time of the quickest of several runs: others use this machine too."""
    times = []
    for _ in range(repeats):
        before = os.times()
        call(*words)
        after = os.times()
        times.append(after.children_user + after.children_system - before.children_user - before.children_system)
    return min(times)


def newest() -> list[str]:
    """Return the newest other interpreter in sight."""
    folders = [*map(Path, os.environ.get("PATH", "").split(os.pathsep)), *Path.home().glob(".pyenv/versions/3.*/bin")]
    found = {match[1]: str(path) for folder in folders if folder.is_dir() for path in folder.glob("python3.*")
             if (match := re.fullmatch(r"python3\.(\d+)", path.name))}  # fmt: skip
    return [found[max(found, key=int)]] if found and int(max(found, key=int)) > sys.version_info[1] else []


def megabytes(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink()) / 1e6


def environment(python: str, folder: Path, what: Path, extras: str = "") -> Path:
    """Make an empty environment with one thing installed."""
    call(python, "-m", "venv", folder)
    call(folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{what}{extras}")
    return folder / "bin"


def core(python: str, folder: Path, what: Path) -> None:
    """The core alone: import, first estimate, size, and what a missing extra says."""
    bin_ = environment(python, folder, what)
    name = call(bin_ / "python", "-c", "import sys; print('Python %d.%d' % sys.version_info[:2])").stdout.strip()
    name += f", {'wheel' if what.suffix == '.whl' else 'sdist'}, core only"
    call(bin_ / "python", "-c", FIRST)  # compiles, and keeps what it compiled
    figure = seconds(bin_ / "python", "-c", "import panstream")
    line(f"{name}: import", f"{figure:.2f} s", f"< {IMPORT_LIMIT} s", figure < IMPORT_LIMIT)
    figure = seconds(bin_ / "python", "-c", FIRST)
    line(f"{name}: first estimate", f"{figure:.2f} s", f"< {FIRST_LIMIT:g} s", figure < FIRST_LIMIT)
    packages = next(folder.glob("lib/python*/site-packages"))
    for package in ("pip", "setuptools"):
        for path in packages.glob(f"{package}*"):
            shutil.rmtree(path, ignore_errors=True)
    sizes = sorted(((megabytes(path), path.name) for path in packages.iterdir() if path.is_dir()), reverse=True)
    total = megabytes(packages)
    line(f"{name}: installed size", f"{total:.0f} MB", f"< {CORE_LIMIT:g} MB", total < CORE_LIMIT)
    print("    " + ", ".join(f"{package} {size:.0f} MB" for size, package in sizes[:8]))
    said = call(bin_ / "panstream", "--help", check=False)
    advice = said.stdout + said.stderr
    line(
        f"{name}: a missing extra names its command",
        "pip install 'panstream[cli]'",
        "",
        "pip install" in advice and "[cli]" in advice,
    )


def whole(python: str, folder: Path, wheel: Path) -> None:
    """With the command line: version, help, and an answer on a file."""
    bin_ = environment(python, folder, wheel, "[engine,cli]")
    version = call(bin_ / "panstream", "--version").stdout.strip()
    line("panstream --version", version, "", version.startswith("panstream "))
    figure = seconds(bin_ / "panstream", "--help")
    line("panstream --help", f"{figure:.2f} s", f"< {HELP_LIMIT} s", figure < HELP_LIMIT)
    shell = call(bin_ / "panstream", "--show-completion", "bash", check=False)
    line(
        "shell completion",
        "printed" if "_PANSTREAM_COMPLETE" in shell.stdout else "missing",
        "",
        "_PANSTREAM_COMPLETE" in shell.stdout,
    )
    work = folder / "work"
    work.mkdir()
    (work / "orders.csv").write_text("customer\n" + "".join(f"c{n}\n" for n in range(3000)))
    for words in (("init", "orders.csv", "--user", "customer"), ("run", "panstream.toml", "orders.csv", "--json")):
        run = subprocess.run([str(bin_ / "panstream"), *words], cwd=work, capture_output=True, text=True, check=False)
    line(
        "an answer on a file of one's own",
        "given" if run.returncode == 0 else run.stderr[-30:],
        "",
        '"value"' in run.stdout,
    )


def again(folder: Path) -> tuple[Path, Path]:
    """Build wheel and sdist from a copy of the sources in another place, whose files are of another time."""
    ignored = shutil.ignore_patterns(".git", ".venv*", ".*_cache", "__pycache__", "build", "dist")
    shutil.copytree(ROOT, folder / "sources", ignore=ignored, copy_function=shutil.copy)
    call(sys.executable, "-m", "build", "--outdir", folder / "dist", folder / "sources")
    return next((folder / "dist").glob("*.whl")), next((folder / "dist").glob("*.tar.gz"))


def code_digest(wheel: Path) -> str:
    """Return what ``panstream audit verify --wheel`` compares."""
    program = "import sys, pathlib; from panstream.audit.evidence import wheel_digest; "
    program += "print(wheel_digest(pathlib.Path(sys.argv[1])))"
    return call(sys.executable, "-c", program, wheel).stdout.strip()


def main() -> int:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        call(sys.executable, "-m", "build", "--outdir", folder / "dist", ROOT)
        wheel = next((folder / "dist").glob("*.whl"))
        sdist = next((folder / "dist").glob("*.tar.gz"))
        size = wheel.stat().st_size / 1e6
        line("wheel", f"{size:.2f} MB", f"< {WHEEL_LIMIT:g} MB", size < WHEEL_LIMIT)
        listing = call(sys.executable, "-m", "zipfile", "-l", wheel).stdout
        line("wheel: says that it is typed", "py.typed", "", "panstream/py.typed" in listing)
        sbom = f"{wheel.name.partition('-py3')[0]}.dist-info/sboms/panstream.cdx.json"
        line("wheel: says what is bundled (PEP 770)", "panstream.cdx.json", "", sbom in listing)
        for name, first, second in zip(("wheel", "sdist"), (wheel, sdist), again(folder / "again"), strict=True):
            same = first.read_bytes() == second.read_bytes()
            line(f"{name}: built again from a copy of the sources", "the same bytes" if same else "differs", "", same)
        line("wheel: digest of the code, as in evidence", code_digest(wheel)[:16] + " ...", "", True)
        pythons = [sys.executable, *(sys.argv[1:] or newest())]
        for number, python in enumerate(pythons):
            core(python, folder / f"core{number}", wheel)
        core(sys.executable, folder / "sdist", sdist)
        whole(pythons[-1], folder / "whole", wheel)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
