"""pgmpy reads our BIF to the same distribution, and answers the same questions in the same way."""

from __future__ import annotations

import functools
import importlib
import itertools
import warnings
from typing import Any

import numpy as np
import pytest

from panstream.models.networks import BayesianNetwork, Domain, from_bif, seven_attributes, to_bif
from tests.models.networks.models import random_network

SPECIAL = Domain({"income>50K": ["<=50K", ">50K"], "age group": ["[0-10)", "[10-20)", "a b"], "x": ["1", "1.0"]})


def special() -> BayesianNetwork:
    tables = (np.array([0.25, 0.75]), np.array([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]]), np.full((2, 3, 2), 0.5))
    return BayesianNetwork(SPECIAL, ((), (0,), (0, 1)), tables)


NETWORKS = {
    "seven": seven_attributes,
    "special-names": special,
    "random": lambda: random_network(5, (2, 3, 2, 4, 2, 3), 3),
    "tiny-probabilities": lambda: random_network(17, (5, 5, 5), 2),
}


def theirs(module: str) -> Any:
    """Return a module of pgmpy, not imported before a test needs it: that takes a second."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pgmpy warns about itself
        return importlib.import_module(f"pgmpy.{module}")


@functools.cache  # its grammar costs a second
def read(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = theirs("readwrite").BIFReader(string=to_bif(NETWORKS[name]())).get_model()
        assert model.check_model()
    return model


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_pgmpy_reads_the_same_distribution(name: str) -> None:
    network = NETWORKS[name]()
    model = read(name)
    words = [line.split()[1] for line in to_bif(network).splitlines() if line.startswith("variable")]
    assert sorted(model.nodes()) == sorted(words)
    assert sorted(model.edges()) == sorted((words[parent], words[child]) for parent, child in network.edges)
    for node, family in enumerate(network.parents):
        cpd = model.get_cpds(words[node]).to_factor()
        axes = [cpd.variables.index(words[each]) for each in (*family, node)]
        assert np.allclose(np.transpose(cpd.values, axes), network.tables[node], rtol=1e-12, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["random", "seven"])
def test_both_answer_alike(name: str) -> None:
    network = NETWORKS[name]()
    model = read(name)
    engine = theirs("inference").VariableElimination(model)
    names = network.domain.names
    for first, second, observed in itertools.islice(itertools.permutations(range(len(names)), 3), 0, None, 17):
        label = network.domain.labels(observed)[-1]
        ours = network.posterior([names[first], names[second]], {names[observed]: label})
        answer = engine.query([names[first], names[second]], {names[observed]: label}, show_progress=False)
        axes = [answer.variables.index(names[first]), answer.variables.index(names[second])]
        assert np.allclose(ours, np.transpose(answer.values, axes), rtol=1e-9)
    for observed in range(len(names)):
        label = network.domain.labels(observed)[0]
        best = engine.map_query(
            [each for each in names if each != names[observed]], {names[observed]: label}, show_progress=False
        )
        assert dict(network.most_probable({names[observed]: label}).values) == best


@pytest.mark.slow
def test_we_read_what_pgmpy_writes() -> None:
    network = NETWORKS["random"]()
    again = from_bif(str(theirs("readwrite").BIFWriter(read("random"))))
    order = [again.domain.names.index(name) for name in network.domain.names]
    assert np.allclose(np.transpose(again.joint(), order), network.joint(), rtol=1e-9)
