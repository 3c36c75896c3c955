"""Search the memory of a running process, and files, for given values (Linux).

"0 of 100,000 ids found in the server's memory after traffic stops" is a statement about one run. It is measured by a
third process, which reads every mapping of the target that can contain data, and the given files, and searches them for
each needle at every byte alignment and in every usual encoding.

Three parties take part in a memory audit:

* the **test** makes the needles (`make_needles`) *after* the target was started, or starts the target with a new
  interpreter; a forked child would inherit them. It sends some of them to the target as traffic; others of the same
  shape are never sent and serve as **decoys**;
* the **target** receives the needles only as traffic, and plants a control value (`plant_control`);
* the **scanner** is a separate process, started by `scan`. Needles reach it through a pipe, never by a command line,
  environment or file, and it does not communicate with the target.

A decoy in the results means that needles are guessable or the scan is wrong; a control that is missing means that the
scan did not read the target's memory. Either makes the report invalid (`valid`), as does unreadable memory.

::

    needles, decoys, (control,) = make_needles(1000), make_needles(1000), make_needles(1, "bytes")
    server.send(needles); server.send_control(control); server.wait_until_idle()
    report = scan(server.pid, needles, decoys=decoys, control=control, files=[server.directory])
    assert report.ok, report
"""

from panstream.testing.memory._encodings import ENCODINGS
from panstream.testing.memory._launcher import Occurrence, ScanReport, scan
from panstream.testing.memory._needles import Needle, make_needles
from panstream.testing.memory._target_hooks import allow_scan, plant_control

__all__ = ["ENCODINGS", "Needle", "Occurrence", "ScanReport", "allow_scan", "make_needles", "plant_control", "scan"]
