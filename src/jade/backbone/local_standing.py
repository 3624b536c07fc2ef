"""Which prompts stand in which slots. A request whose prompt stands somewhere copies its keys and values instead of
computing them; what a finished request leaves behind counts until another takes the slot."""

from __future__ import annotations

from collections.abc import Container

Ids = tuple[int, ...]


class Standing:
    """Slots by prompt and prompts by slot, kept in step."""

    def __init__(self) -> None:
        self._ids: dict[int, Ids] = {}
        self._slots: dict[Ids, set[int]] = {}

    def put(self, slot: int, ids: Ids) -> None:
        self.remove(slot)
        self._ids[slot] = ids
        self._slots.setdefault(ids, set()).add(slot)

    def remove(self, slot: int) -> None:
        ids = self._ids.pop(slot, None)
        if ids is None:
            return
        self._slots[ids].discard(slot)
        if not self._slots[ids]:
            del self._slots[ids]

    def move(self, source: int, target: int) -> None:
        ids = self._ids.get(source)
        self.remove(source)
        self.remove(target)
        if ids is not None:
            self.put(target, ids)

    def find(self, ids: Ids, but: Container[int] = ()) -> int | None:
        """The lowest slot that holds exactly this prompt, of those that are not about to change."""
        return min((slot for slot in self._slots.get(ids, ()) if slot not in but), default=None)

    def clear(self) -> None:
        self._ids.clear()
        self._slots.clear()
