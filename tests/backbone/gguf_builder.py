"""Write a tiny model as a GGUF file, as quantisers do, and pack files into a wheel, as a package index serves them."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from backbone_builders import CHATML, make_tokenizer

LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
OUTER_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def write_gguf(path: Path, model: Any, template: str | None = CHATML) -> Path:
    """`model` as a Llama in GGUF, its matrices as they are, with the tests' tokenizer."""
    writer = gguf.GGUFWriter(path, "llama")
    _write_config(writer, model.config)
    _write_tokenizer(writer, template)
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        writer.add_tensor(_gguf_name(name), _gguf_layout(name, tensor, model.config))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_wheel(folder: Path, member: str, content: Path) -> Path:
    """A package `tiny-weights 1.0` that holds one data file."""
    wheel = folder / "tiny_weights-1.0-py3-none-any.whl"
    about = "tiny_weights-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(content, member)
        archive.writestr(
            f"{about}/METADATA",
            "Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\nRequires-Dist: nowhere-to-be-found\n",
        )
        archive.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{about}/RECORD", "")
    return wheel


def _write_config(writer: gguf.GGUFWriter, config: Any) -> None:
    writer.add_name("tiny")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)


def _write_tokenizer(writer: gguf.GGUFWriter, template: str | None) -> None:
    vocabulary = make_tokenizer().get_vocab()
    tokens = sorted(vocabulary, key=lambda token: vocabulary[token])
    padded = [*tokens, *(f"<unused{number}>" for number in range(320 - len(tokens)))]
    control = gguf.TokenType.CONTROL
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(padded)
    writer.add_token_types([control if index < 3 else gguf.TokenType.NORMAL for index in range(320)])
    writer.add_token_merges(["t h", "th e"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(0)
    writer.add_pad_token_id(0)
    if template:
        writer.add_chat_template(template)


def _gguf_name(name: str) -> str:
    stem = name.removesuffix(".weight")
    if stem in OUTER_NAMES:
        return f"{OUTER_NAMES[stem]}.weight"
    _, _, layer, rest = stem.split(".", 3)
    return f"blk.{layer}.{LAYER_NAMES[rest]}.weight"


def _gguf_layout(name: str, tensor: torch.Tensor, config: Any) -> np.ndarray[Any, Any]:
    """GGUF interleaves the two halves of each rotary head."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for part, num_heads in heads.items():
        if part in name:
            half = tensor.shape[0] // num_heads // 2
            tensor = tensor.view(num_heads, 2, half, -1).transpose(1, 2).reshape(tensor.shape)
    return tensor.contiguous().numpy()
