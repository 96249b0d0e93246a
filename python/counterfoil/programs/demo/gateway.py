"""The demo's gateway: `counterfoil gateway` as a child process on a free port, ending with its parent."""

from __future__ import annotations

import argparse
import logging
import sys

from counterfoil.adapters.gateway.config import load_config
from counterfoil.programs import gateway
from counterfoil.programs.demo.processes import serve_until_stdin_closes


def main() -> int:
    parser = argparse.ArgumentParser(prog="counterfoil demo gateway")
    gateway.add_arguments(parser)
    arguments = parser.parse_args()
    config = load_config(None, {}, gateway.flags_of(arguments))
    logging.basicConfig(level=logging.ERROR)
    gateway.log_to_stderr()
    serve_until_stdin_closes(gateway.build_gateway(config), backend=config.serve.backend)
    return 0


if __name__ == "__main__":
    sys.exit(main())
