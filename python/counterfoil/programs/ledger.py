"""`counterfoil ledger`: what became of calls and events, why one was not run again, and what a person
decides.

`show`, `indeterminate`, `undelivered`, `adopted` and `check` read beside a living owner, and `resolve` asks
it; where there is none `resolve` becomes the owner itself, as `recover` always does.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from counterfoil.errors import LedgerInUse, LedgerReadOnly
from counterfoil.model.ledger_verdicts import Entry
from counterfoil.model.tokens import OutcomeToken
from counterfoil.stores.ledger_entries import NAME_LETTERS, is_named, name_entry
from counterfoil.stores.ledger_sqlite import SqliteLedger
from counterfoil.stores.ledger_sqlite.owner_door import ResolveRequest, ask_owner
from counterfoil.stores.ledger_sqlite.reading import LedgerReader, StreamState

_BROKEN = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the subcommands."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    show = actions.add_parser("show", help="list streams with their marks, and what became of each key")
    show.add_argument("--key", metavar="TEXT", help="only entries whose key or name begins with TEXT")
    resolve = actions.add_parser("resolve", help="settle an indeterminate entry with what you found out")
    recover = actions.add_parser(
        "recover", help="after restoring FILE from a backup: drop cursors, doubt every intent"
    )
    for action in (
        show,
        actions.add_parser("indeterminate", help="list what waits for a person"),
        actions.add_parser(
            "undelivered", help="list calls without a key whose answer was not handed over to anybody"
        ),
        actions.add_parser("adopted", help="list calls that an identical one took over"),
        resolve,
        actions.add_parser(
            "check", help="check the file and the proof of every cursor; exit code 1 if broken"
        ),
        recover,
    ):
        action.add_argument("file", metavar="FILE", type=Path)
        action.add_argument("--json", action="store_true", help="print one JSON object per line")
    resolve.add_argument("name", metavar="NAME", help="the entry's name, or the beginning of it")
    resolve.add_argument("outcome", choices=("completed", "failed", "not_applied"))
    resolve.add_argument("--note", required=True, help="how you know; it is kept with the entry")


def run(arguments: argparse.Namespace) -> int:
    """Run one subcommand; raises the ledger's own errors."""
    path: Path = arguments.file
    if not path.exists():
        raise LedgerReadOnly(f"there is no file {path}")
    with LedgerReader(path):
        pass  # nothing makes a ledger of a file that holds none
    match arguments.action:
        case "show":
            return _show(path, arguments)
        case "indeterminate":
            return _indeterminate(path, arguments)
        case "undelivered":
            return _list(path, arguments, is_undelivered, "every answer was handed over")
        case "adopted":
            return _list(path, arguments, lambda entry: entry.adopted > 0, "no call was taken over")
        case "check":
            return _check(path, arguments)
        case "resolve":
            return _resolve(path, arguments)
        case _:
            return _recover(path, arguments)


def _show(path: Path, arguments: argparse.Namespace) -> int:
    with LedgerReader(path) as reader:
        _warn_provisional(reader, arguments)
        if arguments.key is None:
            for stream in reader.streams():
                _print(_stream_json(stream), _stream_lines(stream), arguments)
        for entry in reader.entries():
            if arguments.key is None or is_named(entry, arguments.key):
                _print(_entry_json(entry), _entry_lines(entry), arguments)
    return 0


def _indeterminate(path: Path, arguments: argparse.Namespace) -> int:
    found = 0
    with LedgerReader(path) as reader:
        _warn_provisional(reader, arguments)
        for entry in reader.indeterminate():
            found += 1
            _print(_entry_json(entry), _entry_lines(entry), arguments)
    if not found and not arguments.json:
        print("nothing waits for a person")
    return 0


def is_undelivered(entry: Entry) -> bool:
    """Whether a call without a key has, or may get, an answer that nobody got."""
    has_none = entry.outcome in (OutcomeToken.NOT_APPLIED, OutcomeToken.INDETERMINATE)
    return entry.what == "unkeyed" and not entry.delivered and not has_none


def _list(
    path: Path, arguments: argparse.Namespace, is_wanted: Callable[[Entry], bool], otherwise: str
) -> int:
    with LedgerReader(path) as reader:
        _warn_provisional(reader, arguments)
        found = [entry for entry in reader.entries() if is_wanted(entry)]
    for entry in found:
        _print(_entry_json(entry), _entry_lines(entry), arguments)
    if not found and not arguments.json:
        print(otherwise)
    return 0


def _check(path: Path, arguments: argparse.Namespace) -> int:
    with LedgerReader(path) as reader:
        _warn_provisional(reader, arguments)
        problems = list(reader.problems())
        streams = sum(1 for _ in reader.streams()) if not problems else 0
    if arguments.json:
        print(json.dumps({"sound": not problems, "problems": problems}))
    else:
        for problem in problems:
            print(problem)
        if not problems:
            print(f"sound: {streams} cursors, each written with the outcome at its mark")
    return _BROKEN if problems else 0


def _resolve(path: Path, arguments: argparse.Namespace) -> int:
    request = ResolveRequest(name=arguments.name, outcome=arguments.outcome, note=arguments.note)
    ledger = SqliteLedger(path)
    try:
        with ledger.blocking():
            now = ledger.resolve_named(request)
    except LedgerInUse:
        now = ask_owner(path, request)
    _print(_entry_json(now), _entry_lines(now), arguments)
    return 0


def _recover(path: Path, arguments: argparse.Namespace) -> int:
    ledger = SqliteLedger(path)
    with ledger.blocking():
        done = ledger.recover().wait_blocking()
    if arguments.json:
        print(json.dumps({"doubts": done.doubts, "streams": done.streams}))
    else:
        print(f"{done.streams} cursors dropped, {done.doubts} intents are indeterminate now")
    return 0


def _warn_provisional(reader: LedgerReader, arguments: argparse.Namespace) -> None:
    if reader.is_provisional and not arguments.json:
        print("the last owner ended uncleanly: what you see is confirmed when the next one opens the file")


def _print(record: dict[str, Any], lines: Iterator[str], arguments: argparse.Namespace) -> None:
    if arguments.json:
        print(json.dumps(record))
        return
    for line in lines:
        print(line)


def _entry_json(entry: Entry) -> dict[str, Any]:
    record = msgspec.to_builtins(entry)
    del record["key"]
    return {"name": name_entry(entry), **record, "changed_at": _date(entry.changed_at)}


def _entry_lines(entry: Entry) -> Iterator[str]:
    is_settled = entry.state == "settled" and entry.outcome is not None
    outcome = entry.outcome.value if is_settled and entry.outcome is not None else entry.state
    whose = "/".join(part or "-" for part in (entry.tenant, entry.principal, entry.session))
    what = f"{entry.what} {entry.idempotency_key}" + (f" of stream {entry.stream}" if entry.stream else "")
    yield f"{name_entry(entry)[:NAME_LETTERS]}  {outcome:13}  {what}  at {entry.server}  for {whose}"
    label = f"{entry.label}, " if entry.label else ""
    fate = f", adopted {entry.adopted}×" if entry.adopted else ""
    if entry.what == "unkeyed":
        fate += ", handed over" if entry.delivered else ", not handed over"
    yield f"    {label}{entry.kind}, attempt {entry.attempt}{fate}, {_date(entry.changed_at)}"
    if entry.why or entry.evidence:
        yield f"    why: {entry.why}{': ' if entry.evidence else ''}{entry.evidence}"
    if entry.note:
        yield f"    note: {entry.note}"


def _stream_json(stream: StreamState) -> dict[str, Any]:
    words, mark = stream.words, stream.mark
    return {
        "what": "stream",
        "tenant": words.tenant,
        "principal": words.principal,
        "session": words.session,
        "server": words.server,
        "stream": words.stream,
        "epoch": mark.epoch,
        "processed": mark.processed,
        "event_id": mark.event_id,
        "settled_ahead": [one.position for one in mark.ahead],
        "ended": mark.ended,
    }


def _stream_lines(stream: StreamState) -> Iterator[str]:
    words, mark = stream.words, stream.mark
    whose = "/".join(part or "-" for part in (words.tenant, words.principal, words.session))
    ended = f", ended: {mark.ended}" if mark.ended else ""
    yield f"stream {words.stream}  at {words.server}  for {whose}: processed to {mark.processed}{ended}"
    if mark.ahead:
        yield f"    settled ahead of it: {', '.join(str(one.position) for one in mark.ahead)}"


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
