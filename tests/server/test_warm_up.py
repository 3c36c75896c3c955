"""The warm-up before the first request: it uses what requests will use, and leaves nothing behind."""

from pathlib import Path

import pytest

from panstream.engine.runtime.running_query import RunningQuery
from panstream.engine.storage.release_log import ReleaseLog
from panstream.server import server as serve
from tests.server.server_live import CONFIG, write_config

TIMED = """
[stream]
name = "visits"
user = "user"
time = "at"
[stream.columns]
user = "int"
at = "timestamp"
day = "date"
amount = "double"
good = "bool"
[[query]]
name = "people"
sql = "SELECT COUNT(DISTINCT user) FROM visits WHERE good AND day > DATE '2020-01-01'"
epsilon = 1.0
expected = 1000
window = "1 hour"
[[query]]
name = "total"
sql = "SELECT SUM(amount) FROM visits"
epsilon = 1.0
lower = 0.0
upper = 1.0
"""


@pytest.mark.parametrize("text", [CONFIG, TIMED], ids=["plain", "timed"])
def test_every_query_takes_rows_and_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    config = write_config(tmp_path, text)
    taken: list[str] = []
    drawn: list[str] = []
    parsed: list[int] = []
    apply = RunningQuery.apply
    publish = ReleaseLog.publish
    parse = serve.parse

    def watched_apply(self: RunningQuery, prepared: object, draw: object) -> None:
        taken.extend(self.plan.config.name for _ in prepared.batches)  # type: ignore[attr-defined]
        apply(self, prepared, draw)  # type: ignore[arg-type]

    def watched_publish(log: object, release: object) -> bool:
        drawn.append(release.query.partition(" [")[0])  # type: ignore[attr-defined]
        return publish(log, release)  # type: ignore[arg-type]

    def watched_parse(*given: object) -> object:
        batch = parse(*given)  # type: ignore[arg-type]
        parsed.append(len(batch))
        return batch

    monkeypatch.setattr(RunningQuery, "apply", watched_apply)
    monkeypatch.setattr(ReleaseLog, "publish", watched_publish)
    monkeypatch.setattr(serve, "parse", watched_parse)
    serve._warm_up(config)
    names = {query.name for query in config.queries}
    assert set(taken) == names
    assert set(drawn) == names
    assert parsed == [1, 1, 1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["panstream.toml"]
