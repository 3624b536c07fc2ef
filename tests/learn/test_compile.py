from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
import torch
from learn_builders import make_transition

from jade.config import BackboneConfig, PolicyConfig
from jade.learn.batches import make_batch
from jade.learn.policy import load_policy


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch's own, about tensors inside its compiler
@pytest.mark.parametrize("adapt", ["full", "lora"])
def test_compiled_layers_say_the_same_and_are_one_program_for_every_batch(
    tiny_model: Path, adapt: Literal["full", "lora"], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without code generation, which takes a minute on a CPU: what is tested is what the compiler was given.
    compile_layer = torch.nn.Module.compile
    monkeypatch.setattr(torch.nn.Module, "compile", lambda layer, **how: compile_layer(layer, backend="eager", **how))
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    backbone = BackboneConfig(model=str(tiny_model), device="cpu")
    plain, compiled = (load_policy(backbone, PolicyConfig(adapt=adapt, compile=c)) for c in (False, True))
    graphs = []
    for sizes in ((3, 6), (2, 9, 4), (12,)):
        batch = make_batch([make_transition(num_tokens=n) for n in sizes], range(len(sizes)))
        with torch.no_grad():
            looked_back = compiled(batch).logp_N
        said = compiled(batch).logp_N
        torch.testing.assert_close((said, looked_back), (plain(batch).logp_N,) * 2, atol=1e-5, rtol=1e-5)
        said.sum().backward()
        graphs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    # What stands before attention and what stands behind it, with the calls around; not once for each layer.
    assert set(graphs) == {4}
