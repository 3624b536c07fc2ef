"""Fingerprints change with what they stand for; the meter counts the time somebody waits."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from evaluate_builders import make_crew

from jade.evaluate.fingerprint import fingerprint_index, fingerprint_texts, fingerprint_weights, installed_versions
from jade.evaluate.meter import Meter, metered
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


def test_an_index_is_known_by_its_manifest_and_prompts_by_their_texts(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    (tmp_path / "planner.md").write_text("Plan.")
    before = fingerprint_index(str(tmp_path)), fingerprint_texts(tmp_path)
    (tmp_path / "manifest.json").write_text("{ }")
    (tmp_path / "planner.md").write_text("Plan!")
    after = fingerprint_index(str(tmp_path)), fingerprint_texts(tmp_path)
    assert all(old != new for old, new in zip(before, after, strict=True))


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
