"""From config to backbones: what is the same is shared, what differs is not."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from backbone_builders import make_model, make_prompt, make_tokenizer
from misbehaving_server import serving
from test_local_adapters import write_adapter

from jade.backbone.base import Backbone
from jade.backbone.local.backbone import LocalBackbone
from jade.backbone.open import open_backbone, open_cast_backbones
from jade.backbone.remote import RemoteBackbone
from jade.config import BackboneConfig
from jade.errors import ConfigError, WeightsMissing
from jade.types import Sampling

pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # peft's

PROMPT = make_prompt("where is the river?")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    make_model().save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder


def local(folder: Path, **settings: object) -> BackboneConfig:
    return BackboneConfig.model_validate({"model": str(folder), "device": "cpu", **settings})


async def close_all(*backbones: Backbone) -> None:
    for backbone in backbones:
        await backbone.close()


async def test_a_folder_opens_locally_and_a_url_remotely(folder: Path) -> None:
    near = open_backbone(local(folder, threads=1, inline=True))
    far = open_backbone(BackboneConfig(model="http://127.0.0.1:1/v1#m"))
    assert isinstance(near, LocalBackbone)
    assert isinstance(far, RemoteBackbone)
    direct = LocalBackbone(make_model(), make_tokenizer(), device="cpu")
    one, two = [await backbone.generate(PROMPT, Sampling(max_tokens=9)) for backbone in (near, direct)]
    assert one.token_ids == two.token_ids
    await close_all(near, far, direct)


async def test_equal_configs_are_one_backbone(folder: Path) -> None:
    shared, roles = open_cast_backbones(local(folder), {"P": local(folder), "AG": local(folder)})
    assert shared is roles["P"] is roles["AG"]
    await close_all(shared, *roles.values())


async def test_adapters_of_several_roles_stand_over_one_model_in_memory(folder: Path, tmp_path: Path) -> None:
    planner, reader = (write_adapter(tmp_path / name, seed) for seed, name in enumerate(("P", "AG")))
    shared, roles = open_cast_backbones(
        local(folder, threads=1),
        {"P": local(folder, adapter=planner), "AG": local(folder, adapter=reader), "AS": local(folder, adapter=reader)},
    )
    assert roles["AG"] is roles["AS"]
    every = [shared, roles["P"], roles["AG"]]
    assert len({id(backbone._runner.model) for backbone in every}) == 1  # type: ignore[attr-defined]
    found = await asyncio.gather(*(backbone.generate(PROMPT, Sampling(max_tokens=9)) for backbone in every))
    assert len({generation.token_ids for generation in found}) == 3
    await close_all(shared, *roles.values())


async def test_the_bare_model_can_serve_beside_a_default_with_an_adapter(folder: Path, tmp_path: Path) -> None:
    adapter = write_adapter(tmp_path / "all", 3)
    shared, roles = open_cast_backbones(local(folder, adapter=adapter), {"DS": local(folder)})
    bare = open_backbone(local(folder))
    adapted, frozen, expected = [
        await backbone.generate(PROMPT, Sampling(max_tokens=9)) for backbone in (shared, roles["DS"], bare)
    ]
    assert frozen.token_ids == expected.token_ids != adapted.token_ids
    await close_all(shared, roles["DS"], bare)


async def test_a_frozen_remote_executor_stands_beside_a_local_planner(folder: Path) -> None:
    with serving() as server:
        far = BackboneConfig(model=f"{server.url}#big")
        shared, roles = open_cast_backbones(far, {"P": local(folder), "AG": far})
        assert roles["AG"] is shared
        plan, answer = await asyncio.gather(
            roles["P"].generate(PROMPT, Sampling(max_tokens=4)), roles["AG"].generate(PROMPT, Sampling())
        )
        await close_all(shared, roles["P"])
    assert len(plan.token_ids) <= 4
    assert answer.text == "Paris"


def test_an_adapter_over_a_server_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"backbone\.adapter"):
        open_backbone(BackboneConfig(model="http://host/v1", adapter=tmp_path))


def test_an_adapter_that_is_not_there_is_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(WeightsMissing, match="nothing"):
        open_backbone(local(folder, adapter=tmp_path / "nothing"))


def test_opening_a_remote_backbone_loads_no_torch() -> None:
    code = (
        "import sys\n"
        "from jade.backbone.open import open_backbone, open_cast_backbones\n"
        "from jade.backbone.weights import resolve_weights\n"
        "from jade.config import BackboneConfig\n"
        "open_backbone(BackboneConfig(model='http://host/v1'))\n"
        "print([name for name in ('torch', 'transformers', 'numpy', 'llguidance') if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
