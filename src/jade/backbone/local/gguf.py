"""Turn a GGUF file into a Hugging Face folder that any transformers program loads.

Weights are dequantised and stored as bfloat16: the rounding (1 part in 256) is far below the error of the 4-bit numbers
they come from, and the folder is half the size of float32. Tied matrices are stored once.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

from jade.backbone.local.quiet import hushed
from jade.errors import WeightsMissing

GGUF_STRING = 8
END_OF_TURN = "<|im_end|>"
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def _digits_one_by_one() -> Any:
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )


PRE_TOKENIZERS: dict[str, Callable[[], Any]] = {"smollm": _digits_one_by_one}
"""How text is split before BPE, by the name GGUF gives it, where transformers' own conversion does not look."""


def write_folder(gguf: Path, out: Path) -> None:
    """Fill `out` with model.safetensors, config, tokenizer and chat template."""
    try:
        with hushed():
            model, tokenizer = _load(gguf)
    except WeightsMissing:
        raise
    except Exception as error:  # whatever a damaged file makes the parsers raise
        raise WeightsMissing(f"{gguf} cannot be read as a GGUF model ({type(error).__name__}: {error})") from error
    _tie_again(model)
    _end_turns(model, tokenizer)
    with hushed():
        model.to(torch.bfloat16).save_pretrained(out)
        tokenizer.save_pretrained(out)


def _load(gguf: Path) -> tuple[Any, Any]:
    folder, file = str(gguf.resolve().parent), gguf.name
    dequantise = GgufConfig(gguf_file=file, dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=file, dtype=torch.float32, quantization_config=dequantise, trust_remote_code=False
    )
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file, trust_remote_code=False)
    if split := PRE_TOKENIZERS.get(_pre_tokenizer_name(gguf)):
        tokenizer.backend_tokenizer.pre_tokenizer = split()
    return model, tokenizer


def _pre_tokenizer_name(gguf: Path) -> str:
    """The one string wanted, found in place: gguf's own reader takes seconds to walk the whole vocabulary."""
    key = b"tokenizer.ggml.pre"
    with gguf.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        at = data.find(struct.pack("<Q", len(key)) + key + struct.pack("<I", GGUF_STRING))
        if at < 0:
            return ""
        start = at + 8 + len(key) + 4
        (length,) = struct.unpack_from("<Q", data, start)
        return data[start + 8 : start + 8 + length].decode(errors="replace")


def _tie_again(model: Any) -> None:
    """Quantisers store a tied matrix twice, at two precisions; the output's copy is the finer one."""
    embedding, output = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    if embedding is output or embedding.shape != output.shape:
        return
    likeness = torch.nn.functional.cosine_similarity(embedding[:1000].flatten(), output[:1000].flatten(), dim=0)
    if likeness > 0.95:
        with torch.no_grad():
            embedding.copy_(output)
        model.config.tie_word_embeddings = True
        model.tie_weights()


def _end_turns(model: Any, tokenizer: Any) -> None:
    """A chat model stops at its end-of-turn token and has a template; some files say neither."""
    if END_OF_TURN in tokenizer.get_vocab():
        tokenizer.eos_token = END_OF_TURN
        tokenizer.chat_template = tokenizer.chat_template or CHATML
    model.config.eos_token_id = model.generation_config.eos_token_id = tokenizer.eos_token_id
