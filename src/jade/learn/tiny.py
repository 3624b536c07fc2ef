"""A tiny language model made from nothing: random weights, and a tokenizer trained on the text it will read.

For tests and for the training run that a laptop can do. It is an ordinary Hugging Face folder.

    python -m jade.learn.tiny [--digits-apart] OUT TEXT_FILE_OR_FOLDER...
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
SPECIAL = ("<|im_end|>", "<|im_start|>", "<|pad|>")


@dataclass(frozen=True, slots=True)
class TinySize:
    vocabulary: int = 1000
    width: int = 96
    layers: int = 3
    heads: int = 4
    key_value_heads: int = 2
    positions: int = 4096
    digits_apart: bool = False
    """Every digit a token of its own, as SmolLM2 reads them: then 0.31 and 0.32 begin alike."""


def make_tiny_model(out: Path, texts: Iterable[str], size: TinySize | None = None) -> Path:
    """Write a folder with config, tokenizer and random safetensors; the same texts give the same folder."""
    import torch
    import transformers
    from transformers.utils.logging import disable_progress_bar

    llama = cast(Any, transformers.LlamaForCausalLM)
    cast(Any, disable_progress_bar)()
    size = size or TinySize()
    tokenizer = make_tokenizer(texts, size.vocabulary, digits_apart=size.digits_apart)
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=size.width,
        intermediate_size=3 * size.width,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.key_value_heads,
        max_position_embeddings=size.positions,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = llama(config)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    return out


def make_tokenizer(texts: Iterable[str], vocabulary: int, *, digits_apart: bool = False) -> Any:
    """A byte-level BPE tokenizer with a chat template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    by_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False)
    by_digits = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), by_bytes])
    tokenizer.pre_tokenizer = by_digits if digits_apart else by_bytes
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return cast(Any, PreTrainedTokenizerFast)(
        tokenizer_object=tokenizer, eos_token=SPECIAL[0], pad_token=SPECIAL[2], chat_template=CHAT_TEMPLATE
    )


def read_texts(paths: Iterable[Path]) -> list[str]:
    """All text and JSONL files under the paths, in a fixed order."""
    files = [file for path in paths for file in (sorted(path.rglob("*")) if path.is_dir() else [path])]
    return [file.read_text(encoding="utf-8") for file in files if file.suffix in (".md", ".txt", ".jsonl")]


if __name__ == "__main__":
    apart = sys.argv[1:2] == ["--digits-apart"]
    places = [Path(argument) for argument in sys.argv[1 + apart :]]
    if len(places) < 2:
        sys.exit("usage: python -m jade.learn.tiny [--digits-apart] OUT TEXT_FILE_OR_FOLDER...")
    print(make_tiny_model(places[0], read_texts(places[1:]), TinySize(digits_apart=apart)))
