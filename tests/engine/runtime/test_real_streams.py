"""The bundled pieces of two real streams: intervals hold the true answers as often as promised.

benchmarks/accuracy/real_streams.py does the same with the whole data, more questions and more runs.
"""

import gzip
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pyarrow.csv
import pytest
from scipy import stats

from tests.statistical import ALPHA

ROOT = Path(__file__).parents[3]
RUNS = 25


@pytest.fixture(scope="module")
def experiment() -> ModuleType:
    spec = importlib.util.spec_from_file_location("real_streams", ROOT / "benchmarks" / "accuracy" / "real_streams.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["real_streams"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def web_log() -> pa.Table:
    """The bundled hosts, one request a second; what was asked for is made up."""
    with gzip.open(ROOT / "examples" / "data" / "nasa_hosts.txt.gz", "rt") as file:
        hosts = file.read().split()[:10_000]
    numbers = range(len(hosts))
    return pa.table(
        {
            "host": hosts,
            "time": pa.array([807_256_800 + number for number in numbers], pa.int64()),
            "response": [("200", "304", "302", "404", "500")[number % 5] for number in numbers],
            "bytes": pa.array([number * 7919 % 60_000 for number in numbers], pa.int64()),
        }
    )


def retail() -> pa.Table:
    """The bundled customers and quantities, with made-up prices, countries and dates."""
    table = pyarrow.csv.read_csv(ROOT / "examples" / "data" / "online_retail.csv.gz").slice(0, 20_000)
    numbers = range(table.num_rows)
    return pa.table(
        {
            "customer": table["CustomerID"],
            "quantity": table["Quantity"],
            "price": [number % 50 / 4 for number in numbers],
            "country": [("United Kingdom", "Germany", "France", "EIRE", "Spain")[number % 5] for number in numbers],
            "date": pa.array(
                [1_291_161_600_000_000 + number * 1_500_000_000 for number in numbers], pa.timestamp("us")
            ),
        }
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["web_log", "retail"])
def test_intervals_hold_the_truth(experiment: ModuleType, name: str) -> None:
    case = getattr(experiment, name)({"web_log": web_log, "retail": retail}[name]())
    for _ in range(RUNS):
        case.run()
    assert len(case.config["query"]) >= 6
    for question, hits in case.hits.items():
        if len(case.truths[question]) == 1:  # answers of one run are not independent of each other
            assert stats.binom.cdf(sum(hits), RUNS, 0.95) > ALPHA, (question, sum(hits), case.truths[question])
        else:
            assert sum(hits) / RUNS > 0.75, (question, sum(hits) / RUNS)
