"""``make audit-controls``: inject every leak and record every secret; end with 1 if an audit does not notice.

With ``--json`` the last line is the result as JSON, for evidence.
"""

import json
import sys

from panstream.audit.product.fork_server_client import ForkServer
from tests.fault_injection.leaks import INSTRUMENT, run_positive_controls
from tests.fault_injection.recorded_drill import drill_recorded_machines


def main() -> int:
    with ForkServer.started(INSTRUMENT) as fork_server:
        fields = run_positive_controls(fork_server)
    for name, field in fields.items():
        print(f"injected leak, {name}: {'caught: ' + field if field else 'NOT CAUGHT'}")
    caught = sum(map(bool, fields.values()))
    print(f"{caught} of {len(fields)} injected leaks caught\n")
    report = drill_recorded_machines()
    print(report)
    passed = all(fields.values()) and report.ok
    if "--json" in sys.argv[1:]:
        result = {
            "passed": passed,
            "caught": caught,
            "leaks": {name: field or None for name, field in fields.items()},
            "recorded_secrets": {kind: hits for kind, _, hits in report.rows},
        }
        print(json.dumps(result))
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
