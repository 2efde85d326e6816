"""A web application that answers at once and works later.

    pip install "nobroker[examples]"
    python examples/web.py

A request enqueues a job and is answered with the job's address, where its state stands, and its result as
soon as there is one. The jobs run in a process of their own: a slow one holds up no request, and a web server
that is restarted loses none. In earnest, start `uvicorn web:site` and `nobroker run web` beside each other.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from collections import Counter

import httpx
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from nobroker import App, JobNotFoundError, JobState, current_job

app = App("./web-data")


@app.job
def frequent_words(text: str, count: int) -> list[tuple[str, int]]:
    """The words that a text uses most."""
    found: Counter[str] = Counter()
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        found.update(re.findall(r"\w+", line.lower()))
        current_job().progress(number / len(lines), f"line {number}")
        time.sleep(0.1)  # stands for something slow
    return found.most_common(count)


async def ask(request: Request) -> Response:
    """Take a text; the work on it begins when a worker has time."""
    text = (await request.body()).decode()
    # It waits for the disk, so it does that in a thread, as everything that blocks.
    handle = await run_in_threadpool(frequent_words.perform_later, text, 3)
    return JSONResponse({"job": handle.id}, 202, headers={"location": f"/words/{handle.id}"})


def look(request: Request) -> Response:
    """How the work on a text is going."""
    handle = app.handle(request.path_params["id"])
    try:
        state = handle.status()
    except JobNotFoundError:
        return JSONResponse({"error": "there is no such job (any more)"}, 404)
    if state is JobState.DONE:
        return JSONResponse({"state": state, "words": handle.result()})
    progress = handle.progress()
    return JSONResponse({"state": state, "progress": progress and progress.note}, 202)


site = Starlette(routes=[Route("/words", ask, methods=["POST"]), Route("/words/{id}", look)])

TEXT = """\
the queue is a directory
the jobs are in the queue
and the worker takes the jobs out
"""


async def browse() -> None:
    """One request, then looks at the job's address until the result is there."""
    async with httpx.AsyncClient(transport=httpx.ASGITransport(site), base_url="http://site") as browser:
        answer = await browser.post("/words", content=TEXT)
        print(answer.status_code, answer.json())
        said = None
        while (found := await browser.get(answer.headers["location"])).status_code == 202:
            if found.json() != said:
                said = found.json()
                print(found.status_code, said)
            await asyncio.sleep(0.02)
        print(found.status_code, found.json())


def main() -> None:
    """A worker in a process beside this one, and somebody who uses the site."""
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    worker = subprocess.Popen([sys.executable, "-m", "nobroker", "run", "web"], env=here)
    try:
        asyncio.run(asyncio.wait_for(browse(), timeout=60))
    finally:
        worker.terminate()
        worker.wait()


if __name__ == "__main__":
    main()
