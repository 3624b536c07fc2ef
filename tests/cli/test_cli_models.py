"""`--model`: a folder of weights, an embedded name and a URL work the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from answering_server import ONE_HOP, SERIAL, Server
from cli_runs import jade

from jade.backbone.weights import SHIPPED, TRAINED, default_cache
from jade.config import BackboneConfig

TEXTS = ("Ashford Mill was founded by Ada Lenn. The Len is a river. Which river? <answer>Corby</answer>",)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face folder with random weights."""
    from jade.learn.tiny import TinySize, make_tiny_model

    size = TinySize(vocabulary=300, width=32, layers=1)
    return make_tiny_model(tmp_path_factory.mktemp("model") / "tiny", TEXTS, size)


@pytest.fixture
def threads() -> Iterator[int]:
    """Another number of threads than torch has; what it had is given back."""
    import torch

    before = torch.get_num_threads()
    yield before % 2 + 1
    torch.set_num_threads(before)


def cached(name: str) -> None:
    """Skip where using a model would mean fetching it."""
    if not any((default_cache() / "weights").glob(f"{name}-*")):
        pytest.skip(f"no {name} in {default_cache()}; `jade ask --model {name}` fetches it")


def test_a_folder_of_random_weights_makes_only_legal_plans_when_constrained(index: Path, folder: Path) -> None:
    settings = ["--set", "team.constrain_plans=true", "--set", "sampling.temperature=1", "--set", "budget.calls=3"]
    for seed in range(3):
        done = jade("ask", SERIAL, "--index", index, "--model", folder, "--seed", str(seed), "--json", *settings)
        steps = json.loads(done.out)["trace"]["steps"]
        plans = [step["action"] for step in steps if step["role"] == "P"]
        assert plans
        assert {plan["kind"] for plan in plans} == {"Workflow"}


def test_threads_of_a_local_model_are_a_setting(index: Path, folder: Path, threads: int) -> None:
    import torch

    settings = ["--set", f"backbone.threads={threads}", "--set", "backbone.inline=true", "--set", "budget.calls=1"]
    done = jade("ask", ONE_HOP, "--index", index, "--model", folder, "--json", *settings)
    assert json.loads(done.out)["usage"]["calls"] > 0
    assert torch.get_num_threads() == threads


def test_a_frozen_remote_executor_works_beside_a_local_planner(index: Path, folder: Path, server: Server) -> None:
    remote = [part for role in ("QR", "DS", "AG") for part in ("--set", f"roles.{role}.model={server.url}")]
    plans = ["--set", 'team.workflows=["R,AG", "QR,R,DS,AG"]', "--set", "team.constrain_plans=true"]
    done = jade("ask", ONE_HOP, "--index", index, "--model", folder, "--json", *remote, *plans)
    answer = json.loads(done.out)
    assert answer["answer"] == "Ada Lenn"
    planned, *rest = answer["trace"]["steps"]
    assert len(planned["generation"]["token_ids"]) > 0
    assert all("token_ids" not in step["generation"] for step in rest if "generation" in step)
    assert server.roles[-1] == "AG"


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SHIPPED, *TRAINED])
def test_an_embedded_model_works_over_an_index(name: str, index: Path) -> None:
    cached(name)
    settings = ["--set", 'team.workflows=["R,AG"]', "--set", "retrieval.k=1", "--set", "backbone.threads=1"]
    done = jade("ask", ONE_HOP, "--index", index, "--model", name, "--json", *settings)
    answer = json.loads(done.out)
    assert done.status == 0
    assert answer["answer"]
    assert [one["passage"]["title"] for one in answer["citations"]] == ["mill"]
    (written,) = (step["generation"] for step in answer["trace"]["steps"] if step["role"] == "AG")
    assert len(written["token_ids"]) == len(written["logprobs"]) == answer["usage"]["completion_tokens"] > 0


@pytest.mark.slow
def test_without_a_name_the_trained_team_plans_finds_and_cites(index: Path) -> None:
    cached(BackboneConfig().model)
    done = jade("ask", ONE_HOP, "--index", index, "--set", "backbone.threads=1")
    assert done.status == 0
    assert "malformed" not in done.out
    assert "Answer: Ada Lenn" in done.out
    assert "[1] ✓ 0: mill (mill.txt:chars 0-69)" in done.out
