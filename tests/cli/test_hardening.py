"""A hardened process binds its functions at the start, has no core dumps and cannot be read by others of the same
user.
"""

import ctypes
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

from panstream.cli.app import app
from panstream.cli.main import _HARDENED
from panstream.distributed.sharded.dask_setup import local_cluster
from panstream.primitives.memory.process_hardening import ENVIRONMENT, MARK

TELL = """
import ctypes, os, resource
from panstream.cli.hardening import reexec_hardened
{before}
reexec_hardened()
dumpable = ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)
from panstream.primitives.memory.process_hardening import ENVIRONMENT, MARK
# glibc ends the text at each of the tunables that it has read.
environment = all(value.startswith(os.environ.get(name, "no")) for name, value in {{**ENVIRONMENT, MARK: "1"}}.items())
print(dumpable, resource.getrlimit(resource.RLIMIT_CORE)[0], os.environ.get("LD_BIND_NOW"), environment)
"""
EARLY = """
import os, sys
from panstream.cli.main import main
os.execve = lambda *given: (print(*sorted({"typer", "numpy"} & sys.modules.keys()), "starts again"), os._exit(0))
main()
"""
PERMITTED = "from panstream.testing.memory import allow_scan; allow_scan()"


def tell(directory: Path, before: str = "", name: str = "panstream.py") -> list[str]:
    """Run a command of that name that hardens itself and tells how it stands then."""
    program = directory / name
    program.write_text(TELL.format(before=before))
    environment = {key: value for key, value in os.environ.items() if key not in (*ENVIRONMENT, MARK)}
    done = subprocess.run(
        [sys.executable, "-P", str(program)], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can be hardened so")
class TestOnLinux:
    def test_a_command_keeps_its_memory_to_itself(self, tmp_path: Path) -> None:
        assert tell(tmp_path) == ["0", "0", "1", "True"]

    def test_a_program_that_is_not_the_command_is_left_alone(self, tmp_path: Path) -> None:
        reported = tell(tmp_path, name="other.py")
        assert (reported[0], reported[2:]) == ("1", ["None", "False"])

    def test_a_command_starts_again_before_it_has_loaded_anything(self, tmp_path: Path) -> None:
        program = tmp_path / "panstream.py"
        program.write_text(EARLY)
        environment = {key: value for key, value in os.environ.items() if key not in (*ENVIRONMENT, MARK)}
        for arguments, said in ((["run", "none.toml"], "starts again"), (["run", "--help"], "Usage")):
            done = subprocess.run(
                [sys.executable, "-P", str(program), *arguments], env=environment, capture_output=True, text=True
            )
            assert done.stdout.strip().startswith(said)

    @pytest.mark.slow
    def test_only_a_process_that_asks_for_it_can_be_scanned(self, tmp_path: Path) -> None:
        """The drill's server asks before it starts; the limit on core dumps stays."""
        assert tell(tmp_path, PERMITTED)[:2] == ["1", "0"]

    def test_no_option_or_variable_makes_the_command_readable(self) -> None:
        """What can be read is another program, which the drill starts."""
        source = Path(__file__).parents[2] / "src" / "panstream"
        allowed = {
            "primitives/memory/process_hardening.py",
            "cli/scannable.py",
            "testing/memory/__init__.py",
            "testing/memory/_target_hooks.py",
        }
        users = {
            path.relative_to(source).as_posix()
            for path in source.rglob("*.py")
            if any(name in path.read_text() for name in ("allow_memory_reads", "import allow_scan", "allow_scan()"))
        }
        assert users <= allowed | {"testing/memory/_process.py"}  # which names it in an error

    @pytest.mark.slow
    def test_workers_of_a_local_cluster_have_no_dumps(self) -> None:
        with local_cluster(1, security=False) as cluster, cluster.get_client() as client:
            (dumpable,) = client.run(lambda: ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)).values()
            (bound,) = client.run(lambda: os.environ.get("LD_BIND_NOW")).values()
        assert (dumpable, bound) == (0, "1")


def test_the_commands_that_start_again_early_are_those_that_harden() -> None:
    hardened = {
        command.name
        for command in app.registered_commands
        if command.callback is not None and "no_hardening" in inspect.signature(command.callback).parameters
    }
    assert hardened == set(_HARDENED)
