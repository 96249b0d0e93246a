"""Runs a plan through a published client in a process of its own, and reads what became of each call."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import anyio
import msgspec
from interop.environments import client_command
from interop.plans import Plan

#: The codes that JSON-RPC keeps for itself.
RESERVED = range(-32_768, -31_999)


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """What a client says of one call: `result`, `error`, `hung`, or `session lost`."""

    key: str
    session: int
    outcome: str
    progress: list[tuple[float, str | None]]
    text: str = ""
    error: dict[str, Any] = {}
    elapsed_s: float = 0.0
    tries: int = 1

    @property
    def is_right(self) -> bool:
        """The call ended in its own result."""
        return self.outcome == "result" and f"receipt ☂ {self.key}" in self.text

    @property
    def is_anothers(self) -> bool:
        """The call ended in the result of another one."""
        return self.outcome == "result" and not self.is_right

    def has_all_progress(self, steps: int) -> bool:
        """Every progress note of this call came once, in order, and none of another."""
        wanted = [(float(step), f"{self.key} ☂ étape {step}") for step in range(1, steps + 1)]
        return self.progress == wanted

    @property
    def evidence(self) -> dict[str, Any] | None:
        """What our in-band error says beside its code; None for an error that the client made up."""
        data = self.error.get("data")
        return data.get("io.counterfoil") if isinstance(data, dict) else None


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """All calls of a run by key, and what each session heard beside them."""

    calls: dict[str, Call]
    notices: dict[int, list[str]]
    strays: dict[int, list[str]]

    def unexpected_answers(self) -> list[str]:
        """Return what a session complained of as answering nothing that it had asked."""
        return [stray for strays in self.strays.values() for stray in strays if "unknown" in stray.lower()]


def check_typed_end(call: Call) -> None:
    """The call was ended by our in-band error, soon, and not by anything that the client made up."""
    assert call.outcome == "error", call
    assert call.evidence is not None, call
    assert call.evidence["executed"] == "unknown", call
    assert call.error["code"] not in RESERVED, call
    assert call.elapsed_s < 3, call


async def run_client(client: str, url: str, plan: Plan) -> Run:
    """Run `plan` against `url`; fails if a call was answered twice or not at all."""
    done = await anyio.run_process(client_command(client), input=plan.to_json(url), stderr=subprocess.STDOUT)
    calls: dict[str, Call] = {}
    notices: dict[int, list[str]] = {}
    strays: dict[int, list[str]] = {}
    for line in done.stdout.decode().splitlines():
        if not line.startswith("{"):
            continue  # the log of an SDK
        said = json.loads(line)
        if "key" in said:
            call = msgspec.convert(said, Call)
            assert call.key not in calls, f"{call.key} was answered twice: {calls[call.key]}, {call}"
            calls[call.key] = call
        else:
            notices[said["session"]] = said["notices"]
            strays[said["session"]] = said["strays"]
    missing = set(plan.keys()) - set(calls)
    assert not missing, f"{client} says nothing of {sorted(missing)}:\n{done.stdout.decode()[-3000:]}"
    return Run(calls=calls, notices=notices, strays=strays)
