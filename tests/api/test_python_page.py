"""docs/python.md is run as it stands: every block, in order, in one session."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import jade
from jade.api import settings
from jade.api.documents import index_documents
from jade.config import load_config
from jade.learn.tiny import TinySize, make_tiny_model
from loopback import Handler, listening

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python.md"
BLOCKS = re.compile(r"```python\n(.*?)```", re.DOTALL)
FOUNDER = {"id": "1", "question": "Who founded Ashford Mill?", "golden_answers": ["Ada Lenn"]}
LENGTH = {"id": "2", "question": "How long is the Len?", "golden_answers": ["40 kilometres"]}


class Model(Handler):
    """An OpenAI-compatible server that plans one round and answers the first question only."""

    def do_GET(self) -> None:
        self.answer(200, b'{"object": "list", "data": [{"id": "scripted"}]}')

    def do_POST(self) -> None:
        system, user = (message["content"] for message in json.loads(self.body())["messages"])
        said = "<workflow>R,AG</workflow>" if system.startswith("You plan") else "<answer>Ada Lenn</answer>"
        choice = {"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
        usage = {"prompt_tokens": len(user), "completion_tokens": len(said)}
        self.answer(200, json.dumps({"choices": [choice], "usage": usage}).encode())


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the papers, questions and settings that the page speaks of. The team that ships is too large for
    a test: where the page names no model, a server of a few lines stands in its place."""
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "mill.txt").write_text("Ashford Mill was founded by Ada Lenn in 1802.")
    (tmp_path / "papers" / "len.md").write_text("# River Len\n\nThe Len is 40 kilometres long.\n")
    _write_rows(tmp_path / "questions.jsonl", FOUNDER, LENGTH)
    _write_learning(tmp_path)
    load = load_config
    monkeypatch.chdir(tmp_path)
    with listening(Model) as address:

        def load_with_model(path: Path | None = None, *, values: dict[str, Any]) -> jade.Config:
            named = values if path else {"backbone.model": f"{address}/v1", **values}
            return load(path, values=named)

        monkeypatch.setattr(settings, "read_config", load_with_model)
        yield tmp_path


def _write_learning(folder: Path) -> None:
    """A tiny model of random weights and the settings of a warm start and a run, each over in a moment."""
    size = TinySize(vocabulary=320, width=32, layers=2, heads=4, key_value_heads=2, positions=640)
    make_tiny_model(
        folder / "model", ["Who founded it? <answer>Ada Lenn</answer> <workflow>R,AG</workflow>"] * 20, size
    )
    index_documents([folder / "papers"], folder / "index")
    _write_rows(folder / "train.jsonl", {**FOUNDER, "id": "3"}, {**LENGTH, "id": "4"})
    common = f"""
[backbone]
model = "{folder / "model"}"
device = "cpu"
inline = true
max_prompt_tokens = 450

[retrieval]
index = "{folder / "index"}"
inline = true
k = 1

[budget]
rounds = 1
calls = 3
"""
    (folder / "warm.toml").write_text(f"""{common}
[warmstart]
questions = ["train.jsonl"]
epochs = 1
roles = ["P", "AG"]

[learn.policy]
adapt = "lora"
lora_rank = 2
""")
    (folder / "run.toml").write_text(f"""{common}
[learn]
questions = ["train.jsonl"]
iterations = 2
questions_per_iteration = 2
rollouts = 2

[learn.policy]
adapt = "lora"
lora_rank = 2

[learn.guard]
max_kl = 50.0
max_entropy = 20.0
""")


def _write_rows(path: Path, *rows: dict[str, Any]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def run_page() -> dict[str, Any]:
    """The names that the page's session ends with."""
    session: dict[str, Any] = {}
    for block in BLOCKS.findall(PAGE.read_text(encoding="utf-8")):
        exec(block, session)
    return session


async def in_a_notebook() -> dict[str, Any]:
    """A cell of a notebook is run while the notebook's own loop is running."""
    return run_page()


@pytest.mark.parametrize("run", [run_page, lambda: asyncio.run(in_a_notebook())], ids=["script", "notebook"])
def test_the_page_does_what_it_says(
    here: Path, run: Callable[[], dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    session = run()
    printed = capsys.readouterr().out
    assert printed.startswith("Ada Lenn\nTrue\n1 ")
    assert "└── AG" in printed
    assert [trace.answer for trace in session["traces"]] == ["Ada Lenn", "Ada Lenn"]
    assert session["table"] == {"questions": {"jade": 0.5, "vanilla-rag": 0.5}}
    assert [row["scores"]["f1"] for row in session["rows"]] == [1.0, 0.0, 1.0, 0.0]
    assert session["page"] == Path("report/report.html")
    assert session["page"].is_file()
    assert (session["run"].folder, session["run"].iterations) == (Path("run"), 2)
    assert [row["iteration"] for row in session["curve"]] == [1, 2]
    assert (here / "my-team" / "model.safetensors").is_file()


def test_train_without_a_place_for_its_run_says_so(here: Path) -> None:
    with pytest.raises(jade.JadeError, match="out: not given"):
        jade.train(jade.load_config(here / "run.toml"))


def test_records_of_what_is_no_run_are_refused(tmp_path: Path) -> None:
    with pytest.raises(jade.JadeError, match=r"is not the folder of a run"):
        jade.read_records(tmp_path)


def test_reports_pool_by_name(here: Path) -> None:
    for seed in (0, 1):
        jade.measure("questions.jsonl", index="index", out=f"run-{seed}", settings={"seed": seed})
    page = jade.report({"team": ["run-0", "run-1"], "again": "run-0"}, "report", baseline="again")
    assert "team" in page.read_text()
    assert "again" in page.read_text()
