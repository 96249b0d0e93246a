"""Serves the `app` of one of the files in `examples/`, as uvicorn does when it is given its name."""

from __future__ import annotations

import logging
import runpy
import sys

from serving import serve

logging.disable(logging.CRITICAL)
serve(runpy.run_path(sys.argv[1])["app"])
