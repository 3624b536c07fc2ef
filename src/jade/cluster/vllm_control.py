"""The calls by which a vLLM server is steered: pause, reload, resume, adapters in and out. Spoken over HTTP alone.

The server offers them only when it is started so: whole models need `VLLM_SERVER_DEV_MODE=1`, adapters
`VLLM_ALLOW_RUNTIME_LORA_UPDATING=True` and `--enable-lora`. Both let whoever reaches the server change what it says:
keep it on a network of your own.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from jade.errors import BackboneFailed, ConfigError

DEVELOPER = "VLLM_SERVER_DEV_MODE=1"
RUNTIME_LORA = "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True and --enable-lora"
MODELS = {"/pause": DEVELOPER, "/resume": DEVELOPER, "/collective_rpc": DEVELOPER, "/reset_prefix_cache": DEVELOPER}
ADAPTERS = {"/v1/load_lora_adapter": RUNTIME_LORA, "/v1/unload_lora_adapter": RUNTIME_LORA}
"""The routes that whole models and adapters need, and how a server is started that has them."""


class VllmControl:
    """The steering side of one server. `url` is its root, without /v1."""

    def __init__(self, url: str, key: str, timeout_seconds: float) -> None:
        self.url = url
        self._key = key
        self._timeout_seconds = timeout_seconds

    async def require(self, routes: Mapping[str, str]) -> None:
        """Raises when a route is not there. All of them answer POST only, so that a GET asks without doing."""
        for route, switch in routes.items():
            response = await self._send("GET", route)
            if response.status_code == 404:
                raise ConfigError(
                    f"learn.vllm.urls: {self.url} has no {route}, so that its weights cannot follow the learner's; "
                    f"start it with {switch}"
                )

    async def reload(self, folder: Path) -> None:
        """Read the whole model anew, from a folder of safetensors, when all that is under way has ended."""
        await self._post("/pause", params={"mode": "wait"})
        try:
            await self._post("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}})
            # Keys and values of prompts that the old weights computed.
            await self._post("/reset_prefix_cache")
        finally:
            await self._post("/resume")

    async def load_adapter(self, name: str, folder: Path) -> None:
        await self._post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(folder)})

    async def unload_adapter(self, name: str) -> None:
        await self._post("/v1/unload_lora_adapter", {"lora_name": name})

    async def _post(self, route: str, body: Any = None, params: Mapping[str, str] | None = None) -> None:
        response = await self._send("POST", route, json=body, params=params)
        if response.status_code != 200:
            said = " ".join(response.text.split())[:200]
            raise BackboneFailed(f"{self.url}{route}: HTTP {response.status_code} ({said})")

    async def _send(self, method: str, route: str, **how: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        try:
            # A client for each call: there are a few an iteration, and idle sockets would not outlive the update.
            async with httpx.AsyncClient(timeout=self._timeout_seconds, headers=headers) as client:
                return await client.request(method, f"{self.url}{route}", **how)
        except httpx.HTTPError as error:
            raise BackboneFailed(f"{self.url}{route}: {type(error).__name__}: {error or 'no answer'}") from None
