"""Speed of counting, sampling and exact inference beside pandas, NumPy and pgmpy, in one run.

    PANSTREAM_DATA=<directory with diabetic_data.csv.gz> python -m benchmarks.speed.networks_model

Without the data, records of the same shape are drawn from a random network (43 attributes of 2 to 118 values, 71,518
records). Times are medians in processor time; what peers take long for is measured on a part and scaled, and says so.
Every answer that is timed is also compared with the peer's.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from panstream.models.networks import (
    BayesianNetwork,
    Domain,
    Records,
    contingency,
    exact_tables,
    fit_tables,
    greedy,
    independent,
    local_search,
    marginal_tables,
    pairwise,
    sample,
)
from panstream.models.networks.structure_search import chow_liu
from panstream.papers.diabetes_table import prepare
from panstream.primitives.noise import SeededSource

SIZES = (
    6, 3, 10, 8, 26, 17, 14, 118, 7, 75, 39, 33, 21, 9, 9, 9, 16, 4, 4, 4, 4, 4,
    4, 4, 2, 4, 4, 2, 4, 4, 4, 4, 2, 3, 4, 4, 2, 2, 2, 2, 2, 2, 3,
)  # fmt: skip
Line = tuple[str, str, str, bool]  # name, figure, target, whether it is met
RECORDS = 71_518
DRAWN = 1_000_000
PEER_DRAWN = 100_000
PEER_PAIRS = 30

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from pgmpy.factors.discrete import TabularCPD
    from pgmpy.inference import VariableElimination
    from pgmpy.models import DiscreteBayesianNetwork


def data() -> tuple[str, Records]:
    public = Path(os.environ.get("PANSTREAM_DATA", ".")) / "diabetic_data.csv.gz"
    if public.exists():
        return "Diabetes", prepare(public)
    rng = np.random.default_rng(1)
    domain = Domain({f"a{at}": [str(code) for code in range(size)] for at, size in enumerate(SIZES)})
    parents = ((), *((int(rng.integers(at)),) for at in range(1, len(SIZES))))
    tables = [
        rng.dirichlet(np.full(SIZES[at], 0.3), [SIZES[each] for each in family]) for at, family in enumerate(parents)
    ]
    return "drawn at random", sample(BayesianNetwork(domain, parents, tuple(tables)), RECORDS, SeededSource(1))


def timed(call: Callable[[], Any], runs: int = 5) -> tuple[float, Any]:
    call()  # compile and warm up
    return measured(call, runs)


def measured(call: Callable[[], Any], runs: int = 1) -> tuple[float, Any]:
    times = []
    result = None
    for _ in range(runs):
        start = time.process_time()
        result = call()
        times.append(time.process_time() - start)
    return statistics.median(times), result


def to_pgmpy(network: BayesianNetwork) -> Any:
    names = network.domain.names
    sizes = network.domain.sizes
    model = DiscreteBayesianNetwork()
    model.add_nodes_from(names)
    model.add_edges_from([(names[parent], names[child]) for parent, child in network.edges])
    for node, family in enumerate(network.parents):
        flat = network.tables[node].reshape(-1, sizes[node]).T
        states = {names[each]: list(network.domain.labels(each)) for each in (*family, node)}
        given = [names[each] for each in family]
        cards = [sizes[each] for each in family]
        model.add_cpds(TabularCPD(names[node], sizes[node], flat, given, cards, state_names=states))
    return model


def versus(what: str, ours: float, peer: str, theirs: float, at_least: float) -> Line:
    return (what, f"{theirs / ours:.1f} × {peer}", f">= {at_least:g}", theirs / ours >= at_least)


def counting_lines(records: Records) -> list[Line]:
    sizes = records.domain.sizes
    codes = records.codes
    ours, tables = timed(lambda: pairwise(records))
    wide = codes.astype(np.int64)

    def with_numpy() -> dict[tuple[int, int], Any]:
        return {
            (i, j): np.bincount(wide[i] * sizes[j] + wide[j], minlength=sizes[i] * sizes[j]).reshape(sizes[i], sizes[j])
            for i, j in tables
        }

    numpy_time, numpy_tables = measured(with_numpy, 3)
    assert all(np.array_equal(tables[pair], numpy_tables[pair]) for pair in tables)
    frame = pd.DataFrame({name: codes[at] for at, name in enumerate(records.domain.names)})
    some = list(tables)[:: len(tables) // PEER_PAIRS]
    crosstab_time, crossed = measured(lambda: [pd.crosstab(frame.iloc[:, i], frame.iloc[:, j]) for i, j in some])
    assert all(cross.to_numpy().sum() == len(records) for cross in crossed)
    three, _ = timed(lambda: contingency(records, (1, 2, 13)), 21)
    grouped, counted = measured(lambda: frame.groupby([frame.columns[each] for each in (1, 2, 13)]).size(), 3)
    assert counted.sum() == len(records)
    return [
        (f"all {len(tables)} pair tables", f"{ours:.3f} s", "<= 1 s", ours <= 1),
        versus("the same, speed", ours, "numpy bincount", numpy_time, 1),
        versus(
            "the same, speed (30 pairs, scaled)", ours, "pandas crosstab", crosstab_time * len(tables) / len(some), 20
        ),
        versus(f"one table of three attributes, {three * 1e3:.2f} ms", three, "pandas groupby", grouped, 5),
    ]


def sampling_lines(network: BayesianNetwork) -> list[Line]:
    ours, drawn = timed(lambda: sample(network, DRAWN, SeededSource(2)), 3)
    model = to_pgmpy(network)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer, frame = measured(lambda: model.simulate(PEER_DRAWN, show_progress=False, seed=1))
    assert len(frame) == PEER_DRAWN
    assert len(drawn) == DRAWN
    return [
        (f"{DRAWN:,} records drawn", f"{ours:.2f} s", "<= 3 s", ours <= 3),
        versus(f"the same, speed ({PEER_DRAWN:,}, scaled)", ours, "pgmpy", peer * DRAWN / PEER_DRAWN, 10),
    ]


def inference_lines(what: str, network: BayesianNetwork) -> list[Line]:
    names = network.domain.names
    domain = network.domain
    evidence = {names[at]: domain.labels(at)[0] for at in (0, 2, 6)}
    wanted = [names[-1], names[-2]]
    engine = VariableElimination(to_pgmpy(network))
    ours, answer = timed(lambda: network.posterior(wanted, evidence), 51)
    peer, theirs = timed(lambda: engine.query(wanted, evidence, show_progress=False), 21)
    order = [theirs.variables.index(name) for name in wanted]
    assert np.allclose(answer, np.transpose(theirs.values, order), rtol=1e-8)
    explained, best = timed(lambda: network.most_probable(evidence), 21)
    codes = np.array([[domain.code(at, {**evidence, **best.values}[name])] for at, name in enumerate(names)], np.uint16)
    assert abs(network.log_likelihood(Records(domain, codes)) - best.log_probability) < 1e-6
    # pgmpy's map_query multiplies the tables of all wanted attributes into one, which fits in no memory here
    return [
        versus(f"posterior of 2 given 3, {what}, {ours * 1e3:.1f} ms", ours, "pgmpy", peer, 1),
        (f"most probable record, {what}", f"{explained * 1e3:.1f} ms", "<= 100 ms", explained <= 0.1),
    ]


def held_out(records: Records) -> list[Line]:
    """Return the cross entropy of the last fifth of three shuffles, beside what another program computed from the
    same file.
    """
    bits: dict[str, list[float]] = {"independent": [], "greedy tree": []}
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(records))
        train = records.take(order[: int(0.8 * len(records))])
        test = records.take(order[int(0.8 * len(records)) :])
        for name, parents in (
            ("independent", independent(records.domain)),
            ("greedy tree", greedy(records.domain, exact_tables(train), 1)),
        ):
            bits[name].append(fit_tables(records.domain, parents, exact_tables(train)).cross_entropy(test))
    return [
        (
            f"cross entropy held out, {name}",
            f"{np.mean(bits[name]):.4f} bits",
            f"{other:.4f}",
            abs(np.mean(bits[name]) - other) < 2e-4,
        )
        for name, other in (("independent", 49.0827), ("greedy tree", 46.0589))
    ]


def main() -> int:
    what, records = data()
    print(f"{what}: {len(records.domain)} attributes, {len(records):,} records, processor time on one core")
    lines = counting_lines(records)
    tree = fit_tables(
        records.domain, chow_liu(records.domain, marginal_tables(pairwise(records))), exact_tables(records)
    )
    lines += [*sampling_lines(tree), *inference_lines("tree", tree)]
    climbed, parents = measured(lambda: local_search(records.domain, exact_tables(records), len(records)))
    lines += inference_lines("degree 2", fit_tables(records.domain, parents, exact_tables(records)))
    scored, _ = timed(lambda: tree.cross_entropy(records))
    lines.append(("cross entropy of all records", f"{scored * 1e3:.0f} ms", "<= 100 ms", scored <= 0.1))
    lines.append(("local search, BIC, degree 2", f"{climbed:.1f} s", "<= 10 s", climbed <= 10))
    if what == "Diabetes":
        lines += held_out(records)
    width = max(len(line[0]) for line in lines) + 2
    for name, figure, target, met in lines:
        print(f"{name:{width}}{figure:<28}{target:<14}{'pass' if met else 'FAIL'}")
    return int(not all(line[-1] for line in lines))


if __name__ == "__main__":
    sys.exit(main())
