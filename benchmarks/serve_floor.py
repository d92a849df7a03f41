"""A plain service to compare with: ``python benchmarks/serve_floor.py MODEL.onnx PORT``

Starlette, uvicorn and onnxruntime around the same ONNX file. It checks, counts and remembers nothing.
"""

from __future__ import annotations

import sys

import numpy as np
import onnxruntime
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

options = onnxruntime.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])


async def score(request: Request) -> JSONResponse:
    rows = (await request.json())["rows"]
    inputs = {name: np.array([row[name] for row in rows]) for name in ("user", "item")}
    return JSONResponse({"scores": session.run(["conversion"], inputs)[0].tolist()})


print("serving", flush=True)
app = Starlette(routes=[Route("/score", score, methods=["POST"])])
uvicorn.run(app, port=int(sys.argv[2]), http="h11", loop="asyncio", log_level="error")
