"""Fingerprints change with what they stand for; the meter counts the time somebody waits."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest
from evaluate_builders import make_crew
from typer.testing import CliRunner

from jade.backbone.fingerprint import fingerprint_weights
from jade.cli.main import app
from jade.evaluate.fingerprint import fingerprint_texts, installed_versions
from jade.evaluate.meter import Meter, metered
from jade.retrieval.fingerprint import fingerprint_index
from jade.types import Prompt, Sampling


def test_names_and_addresses_stand_for_themselves() -> None:
    assert fingerprint_weights("smollm2-135m") == "smollm2-135m"
    assert fingerprint_index("http://host/retrieve") == "http://host/retrieve"


def test_weights_that_were_trained_further_have_another_fingerprint(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"\0" * 3_000_000)
    before = fingerprint_weights(str(tmp_path))
    assert fingerprint_weights(str(tmp_path)) == before
    file.write_bytes(b"\0" * 2_999_999 + b"\1")
    assert fingerprint_weights(str(tmp_path)) != before


def test_prompts_are_known_by_their_texts(tmp_path: Path) -> None:
    (tmp_path / "planner.md").write_text("Plan.")
    before = fingerprint_texts(tmp_path)
    (tmp_path / "planner.md").write_text("Plan!")
    assert fingerprint_texts(tmp_path) != before


def make_index(out: Path, documents: Path, text: str, *options: str) -> str:
    documents.mkdir(parents=True)
    (documents / "page.txt").write_text(text)
    assert CliRunner().invoke(app, ["index", str(documents), "--out", str(out), *options]).exit_code == 0
    return fingerprint_index(str(out))


@pytest.mark.parametrize("options", [(), ("--shard-size", "1")])
def test_an_index_is_known_by_what_it_holds_wherever_it_was_made(tmp_path: Path, options: tuple[str, ...]) -> None:
    """So results of two machines can be compared."""
    here = make_index(tmp_path / "a", tmp_path / "docs", "Warsaw lies on the Vistula.", *options)
    os.utime(tmp_path / "docs" / "page.txt", (1, 1))
    assert make_index(tmp_path / "b", tmp_path / "other" / "docs", "Warsaw lies on the Vistula.", *options) == here
    assert make_index(tmp_path / "c", tmp_path / "third" / "docs", "Warsaw lies on the Oder.", *options) != here


def test_an_index_that_says_nothing_sensible_has_a_fingerprint_too(tmp_path: Path) -> None:
    found = set()
    for said in ("{}", "[]", "{", '{"settings": 1, "parts": 2, "files": 3}'):
        (tmp_path / "manifest.json").write_text(said)
        found.add(fingerprint_index(str(tmp_path)))
    assert len(found) == 4


def test_versions_name_only_what_is_installed() -> None:
    assert installed_versions()["python"].startswith("3.")
    assert "numpy" in installed_versions()


async def test_overlapping_calls_count_once_and_pauses_do_not_count() -> None:
    meter, started = Meter(), time.perf_counter()
    crew = metered(make_crew(lambda prompt: "hm"), meter)
    backbone = crew.cast.of("AG")

    async def call(delay: float) -> None:
        meter.begin()
        await asyncio.sleep(delay)
        meter.end()

    await asyncio.gather(call(0.05), call(0.05), call(0.02))
    await asyncio.sleep(0.05)
    await backbone.generate(Prompt("AG", "", ""), Sampling())
    await crew.cast.close()
    assert meter.num_calls == 4
    assert meter.busy_seconds >= 0.045
    assert time.perf_counter() - started - meter.busy_seconds >= 0.045
