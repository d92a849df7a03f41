"""The least that a service of this kind costs: ``python benchmarks/serve_floor.py MODEL.onnx PORT``

uvloop reads, httptools parses the head, orjson the body, onnxruntime scores, orjson writes, uvloop sends. No
id is looked up (pairs come as codes), nothing is checked, counted or remembered, and each request is scored
by itself. :mod:`benchmarks.serve` asks it the same as the service, in the same run.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import httptools
import numpy as np
import onnxruntime
import orjson
import uvloop

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"


def session_of(model: str) -> Any:
    """On one thread that does not spin, as the service has it."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


class Floor(asyncio.Protocol):
    """One connection."""

    def __init__(self, session: Any) -> None:
        self._session, self._parser, self._body = session, httptools.HttpRequestParser(self), b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        asked, self._body = orjson.loads(self._body), b""
        columns = asked.get("columns") or {key: [each] for key, each in asked["rows"][0].items()}
        pairs = {name: np.array(each, dtype=np.int64) for name, each in columns.items()}
        (score,) = self._session.run(None, pairs)
        content = orjson.dumps({"scores": score}, option=orjson.OPT_SERIALIZE_NUMPY)
        self._transport.write(HEAD % (len(content), content))


async def main(model: str, port: int) -> None:
    session = session_of(model)
    server = await asyncio.get_running_loop().create_server(lambda: Floor(session), "127.0.0.1", port)
    print("serving", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2])))
