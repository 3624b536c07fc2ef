"""Which prompts stand in which slots. A request whose prompt stands somewhere copies its keys and values instead of
computing them; what a finished request leaves behind counts until another takes the slot."""

from __future__ import annotations

from collections.abc import Container

Row = bytes
"""A prompt's token ids as words: a tuple of as many numbers would be hashed anew whenever it is looked up."""


class Standing:
    """Slots by prompt and prompts by slot, kept in step."""

    def __init__(self) -> None:
        self._rows: dict[int, Row] = {}
        self._slots: dict[Row, set[int]] = {}

    def put(self, slot: int, row: Row) -> None:
        self.remove(slot)
        self._rows[slot] = row
        self._slots.setdefault(row, set()).add(slot)

    def remove(self, slot: int) -> None:
        row = self._rows.pop(slot, None)
        if row is None:
            return
        self._slots[row].discard(slot)
        if not self._slots[row]:
            del self._slots[row]

    def move(self, source: int, target: int) -> None:
        row = self._rows.get(source)
        self.remove(source)
        self.remove(target)
        if row is not None:
            self.put(target, row)

    def begins_with(self, slot: int, row: Row) -> bool:
        """Whether a slot holds these tokens at its first positions."""
        return self._rows.get(slot, b"").startswith(row)

    def find(self, row: Row, but: Container[int] = ()) -> int | None:
        """The lowest slot that holds exactly this prompt, of those that are not about to change."""
        return min((slot for slot in self._slots.get(row, ()) if slot not in but), default=None)

    def clear(self) -> None:
        self._rows.clear()
        self._slots.clear()
