"""``make audit-controls``: inject every leak and record every secret; end with 1 if an audit does not notice."""

from panstream.audit.product.fork_server_client import ForkServer
from tests.fault_injection.leaks import INSTRUMENT, run_positive_controls
from tests.fault_injection.recorded_drill import drill_recorded_machines


def main() -> int:
    with ForkServer.started(INSTRUMENT) as fork_server:
        fields = run_positive_controls(fork_server)
    for name, field in fields.items():
        print(f"injected leak, {name}: {'caught: ' + field if field else 'NOT CAUGHT'}")
    print(f"{sum(map(bool, fields.values()))} of {len(fields)} injected leaks caught\n")
    report = drill_recorded_machines()
    print(report)
    return 0 if all(fields.values()) and report.ok else 1


if __name__ == "__main__":
    raise SystemExit(main())
