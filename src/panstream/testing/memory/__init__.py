"""Look for given values in the memory of a running process, and in files (Linux).

"0 of 100,000 ids found in the server's memory after traffic stops" is a sentence about one run, and this is how it is
measured: a third process reads every mapping of the target that can hold data, and the given files, and looks for each
needle at every byte alignment and in every usual encoding.

Three parties keep a drill honest:

* the **test** makes the needles (`make_needles`) *after* the target was started, or starts the target with a
  fresh interpreter; a forked child would inherit them. It sends some of them to the target as traffic, and keeps back
  others of the same shape as **decoys**;
* the **target** knows only what the traffic told it, and plants a control value (`plant_control`);
* the **scanner** is a process of its own, started by `scan`. Needles reach it by a pipe, never by a command line,
  environment or file, and the target never talks to it.

The scan counts for something only if it can fail: a decoy that is found means the needles are guessable or the scan is
wrong; a control that is not found means that the scan did not see the target's memory. Either makes the report
invalid (`valid`), as does memory that could not be read.

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
