"""The official SDK's everything-server, as its own `main` sets it up, on a free port (`serving.py`)."""

from __future__ import annotations

import importlib.util
import logging
import sys

from serving import serve


def main(source: str) -> None:
    logging.disable(logging.CRITICAL)
    spec = importlib.util.spec_from_file_location("everything_server", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    serve(module.mcp.streamable_http_app(event_store=module.event_store, retry_interval=100))


if __name__ == "__main__":
    main(sys.argv[1])
