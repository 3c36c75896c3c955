"""JSON schema of ``GET /healthz``."""

from __future__ import annotations

from typing import Any

_FLAG = {"type": "boolean"}
_TEXT = {"type": "string"}

_SUMMARY: dict[str, Any] = {
    "type": "object",
    "properties": {
        "date": {"type": "string", "format": "date-time", "description": "When the audits ended."},
        "passed": {**_FLAG, "description": "Whether all audits passed."},
        "version": {**_TEXT, "description": "The version of panstream that was audited."},
        "this_version": {**_FLAG, "description": "Whether the server has the version that was audited."},
        "this_configuration": {**_FLAG, "description": "Whether the server's configuration was audited."},
        "positive_controls": {**_FLAG, "description": "Whether leaks were injected to test the audits."},
    },
    "additionalProperties": False,
}
_SUMMARY["required"] = list(_SUMMARY["properties"])
_ERROR: dict[str, Any] = {
    "type": "object",
    "properties": {"error": {**_TEXT, "description": "Why the newest document cannot be used."}},
    "required": ["error"],
    "additionalProperties": False,
}

HEALTH: dict[str, Any] = {
    "type": "object",
    "properties": {
        "status": {
            "enum": ["ok", "waiting", "failed", "stopping"],
            "description": "Waiting: the system's clock jumped ahead; rows are taken, no answers drawn.",
        },
        "version": _TEXT,
        "memory": {
            "enum": ["secret", "locked", "ordinary"],
            "description": "Where this process keeps states between steps: in memory that no other process can "
            "read, in memory that is never swapped, or in ordinary memory.",
        },
        "evidence": {
            "oneOf": [_SUMMARY, _ERROR],
            "description": "The newest signed evidence of audits, if [statement] names its directory.",
        },
    },
    "required": ["status", "version", "memory"],
    "additionalProperties": False,
}
