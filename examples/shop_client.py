"""Keep a table in step with a server's notifications: effect, outcome and cursor commit together.

    python examples/shop_client.py http://127.0.0.1:8000/mcp shop.db

Kill it at any moment and start it again: no notification is lost, and none is applied twice.
"""

import sys

import counterfoil
import trio  # asyncio.run(...) works as well

handlers = counterfoil.Handlers()


@handlers.on("notifications/stock", kind="transactional")  # a plain function, on the ledger's own transaction
def stock(transaction: counterfoil.Transaction, delivery: counterfoil.Delivery) -> None:
    transaction.execute("create table if not exists stock (sku text primary key, level integer)")
    transaction.execute(
        "insert into stock values (:sku, :level) on conflict do update set level = level + :level",
        {"sku": delivery.params["sku"], "level": delivery.params["change"]},
    )


@handlers.on("notifications/alert", kind="idempotent")  # whoever takes it applies each key once
async def alert(delivery: counterfoil.Delivery, *, idempotency_key: str) -> None:
    print("alert:", delivery.params["text"], idempotency_key, flush=True)


async def main(url: str, database: str) -> None:
    async with (
        counterfoil.SqliteLedger(database) as ledger,
        counterfoil.connect(url, ledger=ledger, handlers=handlers) as connection,
    ):
        async for entry in ledger.indeterminate():
            print("nobody knows what became of", entry.label, entry.evidence, flush=True)
        while True:
            try:
                await connection.run()
                return
            except counterfoil.StreamLost as lost:
                # Ask the server what the levels are now; then go on from what it sends next.
                print("lost:", lost, flush=True)
                connection.accept(lost.stream)


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:3])
