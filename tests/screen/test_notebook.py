"""A trace in a notebook: one output, as wide as the page."""

from __future__ import annotations

import builtins

import pytest

import jade
from jade.engine.budget import Account
from jade.engine.case import Case
from jade.types import Node, Question


class ZMQInteractiveShell:
    """By this name a notebook's shell is known."""


def test_a_trace_in_a_notebook_is_one_output_whose_lines_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs: list[str] = []
    monkeypatch.setattr(builtins, "get_ipython", ZMQInteractiveShell, raising=False)
    monkeypatch.setattr("rich.jupyter.display", lambda segments, text: outputs.append(text))
    monkeypatch.delenv("COLUMNS", raising=False)
    question = "Who " + "really " * 18 + "founded Ashford Mill?"
    jade.show(Case(Question("q1", question)).close(Account(), (Node("0", None, question, question),), (), ""))
    (shown,) = outputs
    tree, _, rest = shown.partition("Answer: ")
    assert "founded Ashford Mill?" in tree.replace("\n", " ")
    assert max(map(len, tree.splitlines())) < 140
    assert "none" in rest
