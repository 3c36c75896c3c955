"""Files of networks, JSON and BIF: a network that is written and read again as it is, or a refusal."""

import json

import fuzzing

with fuzzing.instrumented():
    from panstream.errors import PanstreamError
    from panstream.models.networks.serialization import _digest, from_bif, from_json, read_metadata, to_bif, to_json


def test_one_input(data: bytes) -> None:
    """BIF, or JSON whose checksum is made to fit."""
    text = data.decode("utf-8", "replace")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        content = None
    try:
        if isinstance(content, dict):
            content.pop("sha256", None)
            whole = json.dumps({**content, "sha256": _digest(content)})
            read_metadata(whole)
            network = from_json(whole)
            assert to_json(from_json(to_json(network))) == to_json(network)
        else:
            again = to_bif(from_bif(text))
            assert from_bif(again).parents == from_bif(text).parents
    except PanstreamError:
        pass


if __name__ == "__main__":
    fuzzing.run(test_one_input)
