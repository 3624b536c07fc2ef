"""Tiny models and a byte-level tokenizer, made from nothing, for the tests of the backbones."""

from __future__ import annotations

from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast, Qwen2Config

from jade.types import Prompt

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
WORDS = ("the", "system", "user", "assistant", "and", "in", "er")
SIZES = {
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
}
CONFIGS = {"llama": LlamaConfig, "qwen2": Qwen2Config}


def make_tokenizer() -> Any:
    """256 bytes, a few merged words and the special tokens; ids 0-2 are special."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {piece: index for index, piece in enumerate((*SPECIAL, *alphabet))}
    merges: list[tuple[str, str]] = []
    for word in WORDS:
        for end in range(2, len(word) + 1):
            if word[:end] not in vocabulary:
                vocabulary[word[:end]] = len(vocabulary)
                merges.append((word[: end - 1], word[end - 1]))
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>", chat_template=CHATML
    )


def make_model(kind: str = "llama", seed: int = 0, ends: bool = True, **overrides: Any) -> Any:
    """A randomly initialised model whose logits are spread enough for greedy decoding to be well defined.
    One that never `ends` gives its end-of-turn token a logit of zero, which is never the largest."""
    torch.manual_seed(seed)
    config = CONFIGS[kind](
        vocab_size=320, eos_token_id=2, bos_token_id=1, pad_token_id=0, initializer_range=0.3, **(SIZES | overrides)
    )
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    if not ends:
        with torch.no_grad():
            model.get_output_embeddings().weight[2] = 0
    return model


def make_prompt(
    user: str, role: str = "AG", system: str = "Answer in a few words, and only from the passages."
) -> Prompt:
    return Prompt(role, system, user)


def recomputed_logprobs(model: Any, prompt_ids: tuple[int, ...], token_ids: tuple[int, ...], temperature: float) -> Any:
    """The log-probs of an action as a learner would compute them: one plain forward pass over prompt and action."""
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt_ids, *token_ids]])).logits[0, len(prompt_ids) - 1 : -1]
    return (logits / temperature).log_softmax(-1).gather(1, torch.tensor(token_ids)[:, None])[:, 0]
