"""Vendored files are listed in the wheel, fault injection is not in it, and what builds a release is pinned by hash."""

import hashlib
import json
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
VENDOR = ROOT / "src/panstream/server/dashboard/static/vendor"


def test_the_list_of_parts_names_every_vendored_file_by_its_hash() -> None:
    (listed,) = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["sbom-files"]
    parts = json.loads((ROOT / listed).read_text())
    assert parts["bomFormat"] == "CycloneDX"
    assert parts["metadata"]["component"]["version"] == PROJECT["project"]["version"]
    files = {file["name"]: file["hashes"][0]["content"] for part in parts["components"] for file in part["components"]}
    vendored = {path.name: path for path in VENDOR.iterdir() if path.suffix != ".txt"}
    assert files == {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in vendored.items()}
    sources = (VENDOR / "SOURCES.txt").read_text()
    for part in parts["components"]:
        assert f"{part['name']} {part['version']}" in sources


@pytest.mark.slow
def test_only_the_sdist_can_inject_leaks_and_record_secrets(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path)], cwd=ROOT, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    (sdist,) = tmp_path.glob("*.tar.gz")
    names = zipfile.ZipFile(wheel).namelist()
    assert "panstream/__init__.py" in names
    assert not [name for name in names if re.search("fault_injection|leaks|secret_recorder", name)]
    assert not [name for name in names if name.startswith("tests/")]
    with tarfile.open(sdist) as archive:
        sources = {name.partition("/")[2] for name in archive.getnames()}
    for name in ("leaks", "secret_recorder"):
        assert f"tests/fault_injection/{name}.py" in sources


def test_the_tools_of_a_release_are_those_of_the_constraints_with_a_hash_each() -> None:
    text = (ROOT / "packaging/build-requirements.txt").read_text()
    pinned = re.findall(r"^([a-z0-9-]+)==(\S+) \\\n    --hash=sha256:[0-9a-f]{64}$", text, re.MULTILINE)
    assert len(pinned) == text.count("==") and {"build", "hatchling"} <= {name for name, _ in pinned}
    assert "://" not in text
    constraints = (ROOT / "constraints.txt").read_text().lower().replace("_", "-").splitlines()
    for name, version in pinned:
        assert f"{name}=={version}" in constraints or not any(each.startswith(f"{name}==") for each in constraints)
    recipe = (ROOT / ".github/workflows/release.yml").read_text()
    assert "--require-hashes -r packaging/build-requirements.txt" in recipe
    assert "build --no-isolation" in recipe
