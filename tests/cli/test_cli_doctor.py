"""`jade doctor`: what works here, what is missing and how to get it, and whether an index and a model can be used."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from answering_server import Server
from cli_runs import jade

from jade.screen import doctor


def line_of(name: str, *arguments: str | Path, status: int = 0) -> str:
    """The line of one finding, without its table's blanks."""
    done = jade("doctor", *arguments)
    assert done.status == status, done
    assert done.err == ""
    (line,) = [line for line in done.out.splitlines() if line[3:].startswith(name)]
    return " ".join(line.split())


def test_it_names_the_machine_the_device_and_the_packages() -> None:
    assert " on Python 3." in line_of("jade  ")
    local = line_of("models in this process")
    assert local.startswith("✓ models in this process on ")
    assert "; torch " in local
    assert line_of("fetched models").endswith("GB free")


def test_what_is_not_installed_comes_with_its_remedy_and_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find_spec", lambda name: None if name == "faiss" else importlib.util.find_spec(name))
    assert line_of("search by meaning") == "– search by meaning no faiss: pip install 'jade-team[dense]'"


def test_a_torch_that_does_not_load_is_broken_whatever_it_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> str:
        raise OSError("libcudart.so.13: cannot open shared object file")

    monkeypatch.setattr("jade.backbone.local.place.describe_place", fail)
    said = line_of("models in this process", status=1)
    assert said.startswith("✗ models in this process libcudart.so.13: cannot open shared object file; install it again")


def test_a_device_that_is_not_here_is_the_settings_fault_and_not_the_installations() -> None:
    said = line_of("models in this process", "--set", "backbone.device=abacus", status=1)
    assert "'abacus' is no device; give cpu, cuda or auto" in said
    assert "install" not in said


def test_an_index_and_a_server_that_are_named_are_tried(index: Path, server: Server) -> None:
    arguments = ("--index", index, "--model", server.url)
    assert "passages found in" in line_of("index", *arguments)
    model = line_of("model http", *arguments)
    assert model.startswith("✓ model http://127.0.0.1")
    assert "; plans <workflow>QR,R,DS,AG</workflow>; gives no token ids" in model


def test_a_model_that_knows_no_formats_is_told_from_one_that_does(tmp_path: Path) -> None:
    from jade.learn.tiny import TinySize, make_tiny_model

    folder = make_tiny_model(tmp_path / "tiny", ("Who wrote the novel Emma?",), TinySize(300, width=32, layers=1))
    said = line_of("model /", "--model", folder)
    assert "its plan cannot be read, so that fallbacks run" in said
    assert "; gives token ids with log-probs" in said


def test_what_cannot_be_used_is_said_in_one_line_and_fails(tmp_path: Path) -> None:
    assert line_of("index", "--index", tmp_path / "none", status=1).startswith("✗ index ")
    assert "is no shipped name" in line_of("model .", "--model", "./none", status=1)
