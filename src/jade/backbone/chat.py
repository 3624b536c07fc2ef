"""A prompt becomes token ids, by the model's own chat template, in one place for sampling and for training.

Text that a prompt carries is data: a special token spelled out in it (an end-of-turn mark in a passage) is broken up,
so it can never end the turn or open another. A prompt that is too long loses the middle of its user part, where
passages stand, and says so in the text; its beginning and end, where the question stands, are kept.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from jade.errors import BackboneFailed
from jade.types import Prompt

PROBES = ("a", "0")
"""Two user texts that share no first token: what their prompts have in common is the fixed part."""
TRICKY = ("", " a  b\n\n c\t", "\u00e9\u4e2d\U0001f642 e\u0301 1234 don't", "A.B, c_d")
"""Texts by which two ways of tokenising would show that they differ."""
MARK_OF_TURN = re.compile(r"[^\w\s].+[^\w\s]")
"""What was added as a token and may be a mark: words and blanks are added too, and are text."""
MARK = "\n [user] \n"
"""Stands for the user text when a template is rendered once for all; its blank ends show whether any are trimmed."""


@dataclass(frozen=True, slots=True)
class EncodedPrompt:
    """`num_cut` tokens of the user part were left out (0 almost always: the engine trims passages before)."""

    ids: tuple[int, ...]
    num_cut: int = 0


class ChatFormat:
    """How one model's tokenizer writes prompts and replies."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        special = {str(token) for token in tokenizer.all_special_tokens}
        special |= {str(token) for token in tokenizer.added_tokens_decoder.values() if token.special}
        self._special = _any_of(special)
        self.fixed_prefix = functools.lru_cache(maxsize=256)(self._fixed_prefix)
        self._frame = functools.lru_cache(maxsize=256)(self._new_frame)

    def encode(self, prompt: Prompt, max_tokens: int) -> EncodedPrompt:
        """Raises BackboneFailed when not even the fixed part has room."""
        (ids,) = self.encode_all([prompt])
        return self.cut_to(prompt, ids, max_tokens)

    def encode_all(self, prompts: Sequence[Prompt]) -> list[tuple[int, ...]]:
        """Token ids of any length, uncut. All at once, because the tokenizer works on many texts in parallel."""
        return self._ids([self._render(prompt.system, prompt.user) for prompt in prompts])

    def cut_to(self, prompt: Prompt, ids: tuple[int, ...], max_tokens: int) -> EncodedPrompt:
        return EncodedPrompt(ids) if len(ids) <= max_tokens else self._cut(prompt, len(ids), max_tokens)

    def plain(self, prompt: Prompt) -> Prompt:
        """The prompt with every special token that its text spells out broken up, for a server that would read it."""
        return Prompt(prompt.role, self._plain(prompt.system), self._unmarked(prompt.user))

    def encode_reply(self, text: str) -> tuple[int, ...]:
        """What a model would have to sample to say this, its end of turn included."""
        (ids,) = self._ids([self._plain(text)])
        return (*ids, self.tokenizer.eos_token_id)

    def decode_all(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """The texts of sampled tokens, without special ones."""
        lists = [list(row) for row in rows]
        if self._backend:
            # One by one, which is as quick: a batch would wait in the tokenizer's pool behind prompts that are read.
            return [self._backend.decode(row, skip_special_tokens=True) for row in lists]
        return self._decode_plainly(lists)

    def _fixed_prefix(self, system: str) -> tuple[int, ...]:
        """The token ids that every prompt with this system text begins with."""
        one, other = self._ids([self._render(system, probe) for probe in PROBES])
        return one[: common_length(one, other)]

    def _render(self, system: str, user: str) -> str:
        """By the template; what it writes round the user text is kept, as rendering costs as much as tokenising."""
        user, frame = self._unmarked(user), self._frame(system)
        return user.join(frame) if frame else self._apply_template(system, user)

    def _new_frame(self, system: str) -> tuple[str, str] | None:
        """What stands before and after any user text, if the template writes that text as it is."""
        before, mark, after = self._apply_template(system, MARK).partition(MARK)
        return (before, after) if mark and MARK not in after else None

    def _apply_template(self, system: str, user: str) -> str:
        system = self._plain(system)
        if not self.tokenizer.chat_template:
            return f"{system}\n\n{user}\n"
        messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
        text: str = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        return text

    def _plain(self, text: str) -> str:
        return self._special.sub(_broken, text)

    def _unmarked(self, text: str) -> str:
        """The text of others: nor may it hold what the template marks turns by."""
        return self._marks.sub(_broken, self._plain(text))

    @functools.cached_property
    def _marks(self) -> re.Pattern[str]:
        """Tokens that the template writes and the tokenizer does not call special (DeepSeek's `<｜User｜>`)."""
        written = f"{self.tokenizer.chat_template or ''}{self._conversation()}"
        added = [str(token) for token in self.tokenizer.added_tokens_decoder.values() if not token.special]
        return _any_of([token for token in added if MARK_OF_TURN.fullmatch(token) and token in written])

    def _conversation(self) -> str:
        """A turn of everyone, as the template writes it: it may put its marks together from parts."""
        said = [{"role": role, "content": "a"} for role in ("system", "user", "assistant", "user")]
        try:
            return str(self.tokenizer.apply_chat_template(said, add_generation_prompt=True, tokenize=False))
        except Exception:  # a template for one question alone, or none
            return ""

    def _ids(self, texts: list[str]) -> list[tuple[int, ...]]:
        """Equal texts are read once: the rollouts of one question begin alike."""
        distinct = list(dict.fromkeys(texts))
        rows = self._read_by(self._backend, distinct) if self._backend else self._read_plainly(distinct)
        if len(distinct) == len(texts):
            return rows
        known = dict(zip(distinct, rows, strict=True))
        return [known[text] for text in texts]

    @functools.cached_property
    def _backend(self) -> Any:
        """The tokenizer without its wrapper, which spends more time under the interpreter's lock than on all else; None
        where there is none or it does not do the same."""
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        if backend is None or self.tokenizer.split_special_tokens or not hasattr(backend, "encode_batch_fast"):
            return None
        texts = [*TRICKY, *(f"{token} a{token}\n" for token in self.tokenizer.all_special_tokens)]
        rows = self._read_plainly(texts)
        lists = [list(row) for row in rows]
        same = self._read_by(backend, texts) == rows
        written = [backend.decode(row, skip_special_tokens=True) for row in lists]
        same = same and written == self._decode_plainly(lists)
        return backend if same else None

    def _read_by(self, backend: Any, texts: list[str]) -> list[tuple[int, ...]]:
        # Whoever else has this tokenizer may have set these for a call of their own.
        if backend.truncation is not None:
            backend.no_truncation()
        if backend.padding is not None:
            backend.no_padding()
        return [tuple(one.ids) for one in backend.encode_batch_fast(texts, add_special_tokens=False)]

    def _read_plainly(self, texts: list[str]) -> list[tuple[int, ...]]:
        rows = self.tokenizer(texts, add_special_tokens=False, return_attention_mask=False)["input_ids"]
        return [tuple(row) for row in rows]

    def _decode_plainly(self, rows: list[list[int]]) -> list[str]:
        texts: list[str] = self.tokenizer.batch_decode(
            rows, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return texts

    def _cut(self, prompt: Prompt, num_tokens: int, max_tokens: int) -> EncodedPrompt:
        (user,) = self._ids([self._unmarked(prompt.user)])
        room = len(user) - (num_tokens - max_tokens)
        # The mark takes tokens too, and joined text may be read as more of them than were kept: cut until it fits.
        while room > 0:
            head, tail = user[: (room + 1) // 2], user[len(user) - room // 2 :]
            num_cut = len(user) - len(head) - len(tail)
            texts = self.decode_all([head, tail])
            (ids,) = self._ids([self._render(prompt.system, f"\n[… {num_cut} tokens left out …]\n".join(texts))])
            if len(ids) <= max_tokens:
                return EncodedPrompt(ids, num_cut)
            room -= len(ids) - max_tokens
        raise BackboneFailed(
            f"the {prompt.role} prompt has {num_tokens} tokens and its fixed part alone exceeds max_prompt_tokens = "
            f"{max_tokens}; raise backbone.max_prompt_tokens or shorten the role's prompt file"
        )


def _any_of(tokens: Collection[str]) -> re.Pattern[str]:
    longest_first = sorted(filter(None, tokens), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")


def _broken(token: re.Match[str]) -> str:
    return f"{token[0][0]} {token[0][1:]}"


def common_length(one: Sequence[int], other: Sequence[int]) -> int:
    """How many leading ids two rows share."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (left, right) in pairs if left != right), min(len(one), len(other)))
