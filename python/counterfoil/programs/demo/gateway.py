"""The demo's gateway: `counterfoil gateway` as a child process on a free port, ending with its parent."""

from __future__ import annotations

import argparse
import logging
import sys

import anyio

from counterfoil.adapters.gateway.config import GatewayConfig, load_config
from counterfoil.programs import gateway
from counterfoil.programs.demo.processes import serve_child
from counterfoil.stores.ledger_sqlite.ledger import SqliteLedger


def main() -> int:
    parser = argparse.ArgumentParser(prog="counterfoil demo gateway")
    gateway.add_arguments(parser)
    arguments = parser.parse_args()
    config = load_config(None, {}, gateway.flags_of(arguments))
    logging.basicConfig(level=logging.ERROR)
    gateway.log_to_stderr()
    anyio.run(_serve, config, backend=config.serve.backend)
    return 0


async def _serve(config: GatewayConfig) -> None:
    if config.serve.ledger is None:
        with gateway.seat_among_replicas(config) as members:
            await serve_child(gateway.build_gateway(config, members=members))
        return
    async with SqliteLedger(config.serve.ledger, limits=config.limits) as ledger:
        await serve_child(gateway.build_gateway(config, ledger))


if __name__ == "__main__":
    sys.exit(main())
