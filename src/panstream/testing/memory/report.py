"""What a scan found, and whether the scan can be believed."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

__all__ = ["Finding", "Report"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A needle (by its index, never its value) in one encoding in one kind of place."""

    needle: int
    encoding: str
    where: str
    """``"[heap]"``, ``"[stack]"``, ``"anon"``, the path of a mapped file, or ``"file:"`` and a scanned file's path."""
    count: int
    first: int
    """The lowest address, or offset in the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of one scan; ``str`` of it is a table."""

    pid: int | None
    stopped: bool
    """Whether the process stood still during the scan."""
    scanned_bytes: int
    regions: int
    files: int
    unread_bytes: int
    """Memory or files that exist and could not be read."""
    needles: int
    decoys: int
    found: tuple[Finding, ...]
    found_needles: int
    decoys_found: int
    control_found: bool | None
    """None if no control was given."""

    @property
    def faults(self) -> tuple[str, ...]:
        """Return the reasons why the scan proves nothing."""
        faults = []
        if self.decoys_found:
            faults.append(f"{self.decoys_found} decoys that were never sent were found")
        if self.control_found is False:
            faults.append("the control was not found")
        if self.unread_bytes and self.stopped:
            faults.append(f"{self.unread_bytes} bytes could not be read")
        return tuple(faults)

    @property
    def valid(self) -> bool:
        """Return whether the scan can be believed: no decoy found, the control found, all memory read."""
        return not self.faults

    @property
    def ok(self) -> bool:
        """Return whether the scan is valid and found no needle."""
        return self.valid and not self.found

    def __str__(self) -> str:
        control = {True: "found", False: "NOT FOUND", None: "none given"}[self.control_found]
        moving = "" if self.stopped or self.pid is None else " (not stopped)"
        target = "files only" if self.pid is None else f"process {self.pid}{moving}"
        verdict = "clean" if self.ok else "needles found" if self.valid else "INVALID: " + "; ".join(self.faults)
        lines = [
            f"memory scan of {target}: {self.found_needles:,} of {self.needles:,} needles found",
            f"  scanned  {self.scanned_bytes / 1e6:,.1f} MB in {self.regions:,} mappings and {self.files:,} files; "
            f"{self.unread_bytes:,} bytes not readable",
            f"  decoys   {self.decoys_found:,} of {self.decoys:,} found",
            f"  control  {control}",
            f"  verdict  {verdict}",
        ]
        if self.found:
            lines += ["", f"  {'encoding':<10}  {'needles':>9}  {'copies':>9}  where"]
            places: dict[tuple[str, str], list[int]] = defaultdict(list)
            for finding in self.found:
                places[finding.encoding, finding.where].append(finding.count)
            lines += [
                f"  {encoding:<10}  {len(counts):>9,}  {sum(counts):>9,}  {where}"
                for (encoding, where), counts in sorted(places.items())
            ]
        return "\n".join(lines)
