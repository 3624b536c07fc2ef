"""What a listener hears while a question is being worked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from jade.types import Node, Step


@dataclass(frozen=True, slots=True)
class NodeOpened:
    node: Node


@dataclass(frozen=True, slots=True)
class StepBegan:
    id: str
    node: str
    role: str


@dataclass(frozen=True, slots=True)
class StepEnded:
    step: Step


@dataclass(frozen=True, slots=True)
class NodeSolved:
    node: Node


Event: TypeAlias = NodeOpened | StepBegan | StepEnded | NodeSolved
Listener: TypeAlias = Callable[[Event], None]


def silent(event: Event) -> None:
    """The listener that does not listen."""
