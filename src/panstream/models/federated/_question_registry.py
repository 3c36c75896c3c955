"""The list of all kinds of question, and the decoder that picks one by its kind."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TypeAlias, get_args

from panstream.errors import InvalidBytes, InvalidParameter
from panstream.models.federated._messages import Message
from panstream.models.federated._questions import CountTables, InfoQuestion, LocalModel, LocalScores, Vote
from panstream.models.federated.secure_sums import JoinSum, SubmitSum
from panstream.models.federated.sum_reading import ConfirmSum, RevealSum

Question: TypeAlias = (
    InfoQuestion | CountTables | Vote | LocalModel | LocalScores | JoinSum | SubmitSum | ConfirmSum | RevealSum
)
_KINDS: Mapping[str, type[Question]] = {question.kind: question for question in get_args(Question)}


@functools.lru_cache(maxsize=4)  # many holders in one process read the same question
def read_question(data: bytes) -> Question:
    """Decode one question; raise InvalidBytes for anything else, arrays and unknown fields included."""
    message = Message.decode(data)
    if message.arrays:
        raise InvalidBytes("a question has no arrays")
    if message.kind not in _KINDS:
        raise InvalidBytes("the message is not a question that this release knows")
    try:
        return _KINDS[message.kind].read(message.fields)
    except (InvalidParameter, TypeError, ValueError) as error:
        text = str(error) if isinstance(error, InvalidParameter) else "a field is missing, unknown or of a wrong type"
        raise InvalidBytes(f"the question is malformed: {text}") from None
