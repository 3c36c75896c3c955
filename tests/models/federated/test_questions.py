from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from panstream.errors import InvalidBytes, InvalidParameter
from panstream.models.federated._answers import (
    HolderInfo,
    LocalModelAnswer,
    Refused,
    ScoresAnswer,
    TablesAnswer,
    VoteAnswer,
    read_answer,
)
from panstream.models.federated._messages import Message, digest
from panstream.models.federated._question_registry import read_question
from panstream.models.federated._questions import (
    CountTables,
    InfoQuestion,
    LocalModel,
    LocalScores,
    Table,
    Vote,
)

positive = st.floats(1e-9, 1e9)
label = st.text(max_size=20)
positions = st.lists(st.integers(0, 50), min_size=1, max_size=4, unique=True).map(tuple)
families = st.lists(st.integers(0, 50), min_size=2, max_size=4, unique=True).map(tuple)
questions = st.one_of(
    st.builds(InfoQuestion, run=label),
    st.builds(
        CountTables,
        run=label,
        domain=label,
        noise=st.sampled_from(["laplace", "gaussian"]),
        tables=st.lists(st.builds(Table, attributes=positions, budget=positive), min_size=1, max_size=4).map(tuple),
    ),
    st.builds(Vote, run=label, domain=label, placed=positions, degree=st.integers(1, 8), epsilon=positive),
    st.builds(
        LocalModel,
        run=label,
        domain=label,
        degree=st.integers(1, 8),
        root=st.integers(0, 9),
        structure=positive,
        parameters=positive,
    ),
    st.builds(
        LocalScores,
        run=label,
        domain=label,
        families=st.lists(families, min_size=1, max_size=4).map(tuple),
        epsilon=positive,
    ),
)


@settings(deadline=None)
@given(questions)
def test_a_question_comes_back_and_keeps_its_name(question: object) -> None:
    data = question.write()
    assert read_question(data) == question
    assert digest(read_question(data).write()) == digest(data)


@settings(deadline=None)
@given(questions, st.data())
def test_a_question_with_a_field_missing_added_or_of_another_type_is_refused(
    question: object, data: st.DataObject
) -> None:
    message = Message.decode(question.write())
    name = data.draw(st.sampled_from(sorted(message.fields)))
    without = {key: value for key, value in message.fields.items() if key != name}
    wrong = {**message.fields, name: data.draw(st.sampled_from([None, {}, [[]], True, -1.5]))}
    for fields in (without, {**message.fields, "more": 1}, wrong):
        with pytest.raises(InvalidBytes):
            read_question(Message(kind=message.kind, fields=fields).encode())


def test_questions_have_no_arrays_and_known_kinds() -> None:
    with pytest.raises(InvalidBytes, match="not a question"):
        read_question(Message(kind="drop tables").encode())
    with pytest.raises(InvalidBytes, match="no arrays"):
        read_question(Message(kind="introduce", fields={"run": "a"}, arrays={"x": np.zeros(1, np.int64)}).encode())


def test_groups_are_part_of_a_question() -> None:
    table = Table(attributes=(3, 1), budget=0.5, groups=((0, 0, 1), None))
    question = CountTables(run="r", domain="d", noise="gaussian", tables=(table,))
    assert read_question(question.write()) == question
    for groups in (((0, 2),), ((0, 1), None, None), ((), None)):
        with pytest.raises(InvalidParameter):
            Table(attributes=(3, 1), budget=0.5, groups=groups)


@pytest.mark.parametrize("bad", [0.0, -1.0, float("inf"), float("nan")])
def test_losses_must_be_positive_and_finite(bad: float) -> None:
    with pytest.raises(InvalidParameter):
        Table(attributes=(0,), budget=bad)
    with pytest.raises(InvalidParameter):
        Vote(run="r", domain="d", placed=(0,), degree=1, epsilon=bad)
    with pytest.raises(InvalidParameter):
        LocalModel(run="r", domain="d", degree=1, root=0, structure=1.0, parameters=bad)
    with pytest.raises(InvalidParameter):
        LocalScores(run="r", domain="d", families=((0, 1),), epsilon=bad)


ANSWERS = [
    HolderInfo(holder="h", records=3, domain="d", epsilon=None, delta=0.0, spent=0.5, secure=True, pinned=("h",)),
    TablesAnswer(tables=(np.array([[1, -2]]), np.array([3]))),
    VoteAnswer(child=2, parents=(0, 1)),
    LocalModelAnswer(parents=((), (0,)), tables=(np.array([1, 2]), np.array([[1, 2], [3, 4]]))),
    ScoresAnswer(scores=np.array([5, -6])),
    Refused(reason="budget", text="no"),
]


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: type(answer).__name__)
def test_an_answer_comes_back_only_for_its_own_question(answer: object) -> None:
    data = answer.write("q")
    found = read_answer(data, "q")
    assert type(found) is type(answer)
    assert found.write("q") == data
    with pytest.raises(InvalidBytes, match="another question"):
        read_answer(data, "p")


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: type(answer).__name__)
def test_answers_with_fields_missing_or_added_are_refused(answer: object) -> None:
    message = Message.decode(answer.write("q"))
    bad = [{**message.fields, "more": 1}]
    bad += [{key: value for key, value in message.fields.items() if key != name} for name in message.fields]
    bad += [{**message.fields, name: {"x": 1}} for name in message.fields]
    for fields in bad:
        with pytest.raises(InvalidBytes):
            read_answer(Message(kind=message.kind, fields=fields, arrays=message.arrays).encode(), "q")


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_garbage_is_neither_question_nor_answer(garbage: bytes) -> None:
    with pytest.raises(InvalidBytes):
        read_question(garbage)
    with pytest.raises(InvalidBytes):
        read_answer(garbage, "q")
