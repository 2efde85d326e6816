"""What is to run, as a file that says the same."""

from __future__ import annotations

import json
from typing import Any

from nobroker.running.config import RunConfig
from nobroker.running.settings import SCHEDULER, TOP, WORKER


def as_document(config: RunConfig) -> dict[str, Any]:
    """As plain values, by the keys of the file. A dollar is doubled, as a file must have it."""
    document: dict[str, Any] = {
        "workers": [
            {setting.key: _plain(getattr(worker, setting.key)) for setting in WORKER}
            for worker in config.workers
        ],
        "scheduler": {setting.key: _plain(getattr(config.scheduler, setting.key)) for setting in SCHEDULER},
    }
    return document | {setting.key: _plain(getattr(config, setting.key)) for setting in TOP}


def as_yaml(config: RunConfig) -> str:
    """As the text of ``queue.yml``."""
    lines = []
    for key, value in as_document(config).items():
        if key == "workers":
            lines.append("workers:")
            for worker in value:
                pairs = [f"{name}: {_flow(said)}" for name, said in worker.items()]
                lines += [f"  - {pairs[0]}", *[f"    {pair}" for pair in pairs[1:]]]
        elif isinstance(value, dict):
            lines += [f"{key}:", *[f"  {name}: {_flow(said)}" for name, said in value.items()]]
        else:
            lines.append(f"{key}: {_flow(value)}")
    return "\n".join(lines) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("$", "$$")
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _flow(value: Any) -> str:
    """As JSON, which YAML reads: what is printable stands as it is."""
    return json.dumps(value, ensure_ascii=False)
