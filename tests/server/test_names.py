"""Open-domain names over HTTP: the list that a statement shows, and counts of any name afterwards."""

from tests.server.server_live import CSV, Live

CONFIG = """
[stream]
name = "visits"
columns = { page = "string" }

[[query]]
name = "top"
sql = "SELECT page, COUNT(*) FROM visits GROUP BY page ORDER BY COUNT(*) DESC LIMIT 1"
epsilon = 8.0
delta = 1e-6
max_item_bytes = 8
memory = 400000

[store]
directory = "state"
"""


def test_a_list_and_counts_of_any_name(live: Live) -> None:
    counts = "/v1/queries/top/counts"
    assert live.get(f"{counts}?name=/a").code == "not_found"
    body = b"page\n" + b"/a\n" * 900 + b"/b\n" * 2000 + b"\xc3\xa4\n" * 300
    assert live.post(body, CSV, "/v1/streams/visits/events").json["rows"] == 3200
    (release,) = live.ask("POST", "/v1/queries/top/release").json["releases"]
    assert [item["name"] for item in release["items"]] == ["/b"] and release["key"] == "page"
    assert live.get("/v1/releases").json["releases"] == [release]
    found = live.get(f"{counts}?name=/a&name=%C3%A4&name=/c").json["counts"]
    assert [row["name"] for row in found] == ["/a", "ä", "/c"]
    for row, true in zip(found, (900, 300, 0), strict=True):
        assert abs(row["value"] - true) < 7 * row["standard_error"]  # 1e-11
    assert live.get(f"{counts}?name=/a&number=1").json["counts"] == found[:1]
    assert live.get(f"{counts}?name=/a&number=2").code == "not_found"
    assert live.get("/v1/queries/none/counts?name=/a").code == "not_found"
    for wrong in ("", "?name=/a&number=-1", "?" + "&".join(["name=x"] * 101)):
        assert live.get(counts + wrong).code == "bad_request"
