"""A stand-in for a vLLM server: a real tiny model behind the HTTP calls that rollouts make of the real one.

It samples for `/v1/chat/completions`, holds what arrives while it is paused, reads weights anew from the folder it is
told, and takes adapters in and out. What it was asked is kept.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse
from safetensors.torch import load_file
from torch import Tensor

from jade.backbone.local.backbone import LocalBackbone
from jade.config import BackboneConfig
from jade.types import Prompt, Sampling


@dataclass(frozen=True)
class Standing:
    """How a server was started, and what it does wrong."""

    developer: bool = True
    runtime_lora: bool = True
    token_ids: bool = True
    other_tokens: bool = False
    fails_to_reload: bool = False


@dataclass
class StandIn:
    """The server's state, and what it was asked: routes in order, the models of its completions."""

    model: Path
    standing: Standing
    url: str = ""
    asked: list[str] = field(default_factory=list)
    spoke_as: list[str] = field(default_factory=list)
    reloaded: list[int] = field(default_factory=list)
    num_busy_at_pause: int = 0
    num_busy: int = 0
    texts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.base = LocalBackbone.open(BackboneConfig(model=str(self.model), device="cpu", inline=True))
        self.adapters: dict[str, LocalBackbone] = {}
        self.running = asyncio.Event()
        self.running.set()
        self.idle = asyncio.Event()
        self.idle.set()
        self.began = threading.Event()

    async def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        await self.running.wait()
        self.spoke_as.append(body["model"])
        system, user = (message["content"] for message in body["messages"])
        self.texts.append(user)
        self.num_busy += 1
        self.idle.clear()
        self.began.set()
        sampling = Sampling(body["temperature"], body["top_p"], body["max_tokens"], body["seed"])
        found = await self.adapters.get(body["model"], self.base).generate(Prompt("", system, user), sampling)
        self.num_busy -= 1
        if not self.num_busy:
            self.idle.set()
        choice: dict[str, Any] = {"message": {"content": found.text}, "finish_reason": found.finish}
        if body.get("logprobs"):
            choice["logprobs"] = {"content": [{"token": "", "logprob": value} for value in found.logprobs]}
        if not (body.get("return_token_ids") and self.standing.token_ids):
            return {"choices": [choice]}
        ids = [token + self.standing.other_tokens for token in found.prompt_ids]
        return {"choices": [choice | {"token_ids": list(found.token_ids)}], "prompt_token_ids": ids}

    async def reload(self, folder: Path) -> None:
        weights = read_weights(folder)
        await self.base.update_weights(weights, 0)
        self.reloaded.append(len(weights))


def read_weights(folder: Path) -> dict[str, Tensor]:
    files = sorted(folder.glob("*.safetensors"))
    return {name: tensor for file in files for name, tensor in load_file(file).items()}


def make_app(server: StandIn) -> FastAPI:
    app = FastAPI()

    @app.middleware("http")
    async def note(request: Request, call_next: Any) -> Any:
        if request.method == "POST" and not request.url.path.endswith("completions"):
            server.asked.append(request.url.path)
        return await call_next(request)

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"data": [{"id": "base"}, *({"id": name} for name in server.adapters)]}

    @app.post("/v1/chat/completions")
    async def chat(body: dict[str, Any]) -> dict[str, Any]:
        return await server.complete(body)

    if server.standing.developer:
        _add_developer_routes(app, server)
    if server.standing.runtime_lora:
        _add_adapter_routes(app, server)
    return app


def _add_developer_routes(app: FastAPI, server: StandIn) -> None:
    @app.post("/pause")
    async def pause(mode: str) -> dict[str, str]:
        assert mode == "wait"
        server.running.clear()
        server.num_busy_at_pause = max(server.num_busy_at_pause, server.num_busy)
        await server.idle.wait()
        return {"status": "paused"}

    @app.post("/resume")
    async def resume() -> dict[str, str]:
        server.running.set()
        return {"status": "resumed"}

    @app.post("/reset_prefix_cache")
    async def reset() -> PlainTextResponse:
        return PlainTextResponse("")

    @app.post("/collective_rpc")
    async def rpc(body: dict[str, Any]) -> JSONResponse:
        assert body["method"] == "reload_weights"
        assert not server.running.is_set(), "weights change only while the server is paused"
        if server.standing.fails_to_reload:
            return JSONResponse({"error": "out of memory"}, 500)
        await server.reload(Path(body["kwargs"]["weights_path"]))
        return JSONResponse({"results": [None]})


def _add_adapter_routes(app: FastAPI, server: StandIn) -> None:
    @app.post("/v1/load_lora_adapter")
    async def load(body: dict[str, str]) -> PlainTextResponse:
        assert body["lora_name"] not in server.adapters
        server.adapters[body["lora_name"]] = server.base.with_adapter(Path(body["lora_path"]))
        return PlainTextResponse("Success")

    @app.post("/v1/unload_lora_adapter")
    async def unload(body: dict[str, str]) -> PlainTextResponse:
        await server.adapters.pop(body["lora_name"]).close()
        return PlainTextResponse("Success")


@contextmanager
def vllm_server(model: Path, standing: Standing | None = None) -> Iterator[StandIn]:
    server = StandIn(model, standing or Standing())
    http = uvicorn.Server(uvicorn.Config(make_app(server), port=0, log_level="error"))
    thread = threading.Thread(target=http.run, daemon=True)
    thread.start()
    while not http.started:
        time.sleep(0.005)
    server.url = f"http://127.0.0.1:{http.servers[0].sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        http.should_exit = True
        thread.join()
