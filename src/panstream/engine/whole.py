"""A step that must not be left half done."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Whole"]


class Whole:
    """An error inside, even Ctrl-C, ends the engine: ``give_up`` is called."""

    __slots__ = ("_give_up",)

    def __init__(self, give_up: Callable[[], None]) -> None:
        self._give_up = give_up

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is not None:
            self._give_up()
