"""Reads the configuration of the gateway program: flags over environment over TOML file over defaults.

Every value is checked here, by name; a key that nobody knows is an error, not a typo that is passed over.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from counterfoil.adapters.gateway.settings import GatewaySettings
from counterfoil.adapters.gateway.wire.headers import HeaderPolicy
from counterfoil.adapters.peers.owners import MAX_WORKERS
from counterfoil.errors import ConfigError
from counterfoil.limits import Limits

VERSION = 1
PREFIX = "COUNTERFOIL_"

Backend = Literal["asyncio", "trio"]


class UpstreamConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[[upstream]]`: requests whose path begins with `prefix` go to `url`."""

    url: str
    prefix: str = ""
    ca: str | None = None
    """A PEM file with the authorities that may sign the upstream's certificate."""
    connect_timeout_s: float = 5.0
    write_timeout_s: float = 30.0
    keep_alive_s: float = 2.0
    """How long an idle connection is kept; less than the upstream keeps it."""
    drop_headers: tuple[str, ...] = ()
    """Fields of requests that this upstream is not told, such as `authorization`."""
    set_headers: dict[str, str] = {}
    """Fields that it is told instead of the client's; `env:NAME` takes the value from the environment."""
    drop_answer_headers: tuple[str, ...] = ()
    """Fields of its answers that no client is told."""

    def __post_init__(self) -> None:
        for name in ("connect_timeout_s", "write_timeout_s", "keep_alive_s"):
            if getattr(self, name) < 1e-3:
                raise ConfigError(f"upstream.{name}", f"{getattr(self, name)} is too small")
        self.header_policy({})

    def header_policy(self, environment: Mapping[str, str]) -> HeaderPolicy:
        """Return the policy, with values from `environment`; without one they stay as they are written."""
        return HeaderPolicy(
            drop=frozenset(name.lower().encode() for name in self.drop_headers),
            add=tuple(
                (name.lower().encode(), self._value(name, environment).encode()) for name in self.set_headers
            ),
            drop_from_answers=frozenset(name.lower().encode() for name in self.drop_answer_headers),
        )

    def _value(self, name: str, environment: Mapping[str, str]) -> str:
        text = self.set_headers[name]
        if not text.startswith("env:") or not environment:
            return text
        value = environment.get(text.removeprefix("env:"))
        if value is None:
            raise ConfigError("upstream.set_headers", f"{name}: {text!r} names a variable that is not set")
        return value


class ServeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[serve]`: where the gateway listens, and who its callers are."""

    listen: str = "127.0.0.1:8080"
    backend: Backend = "asyncio"
    admin: str | None = None
    """The admin listener, which the public must not reach: `unix:PATH`, or a loopback `HOST:PORT`."""
    keys: str | None = None
    """The key file that signs event IDs; without one a random key dies with the process."""
    ledger: str | None = None
    """The SQLite file that keeps what became of calls with a key; without one keys are not honoured.  All
    workers of this host share it; every replica has one of its own."""
    workers: int = 1
    """Processes on the one listening socket; they ask each other, so any of them answers for any stream."""
    sockets: str | None = None
    """The directory of the workers' sockets; without it one is made, and removed in the end."""
    self_name: str | None = None
    """This host's name among the replicas; with `dns:` the address that the others see."""
    peers: tuple[str, ...] = ()
    """The replicas, `NAME=http://HOST:PORT` each (this one may be among them), or one `dns:NAME:PORT`."""
    peer_listen: str | None = None
    """Where the other replicas reach worker 1; worker k listens at the port + k - 1."""
    peer_certificate: str | None = None
    """A PEM file with the certificate of the peer listener; with it and its key the listener speaks TLS."""
    peer_key: str | None = None
    peer_ca: str | None = None
    """A PEM file with the authorities that sign the peers' certificates, in both directions."""
    replicas: int = 1
    """How many gateways share the keys; more than one needs `keys`."""
    scope: str | None = None
    """Where the tenant comes from: `header:NAME` or `jwt:CLAIM`."""
    principal: str | None = None
    """Where the principal comes from, likewise."""
    trusted_proxies: tuple[str, ...] = ()
    jwt_keys: str | None = None
    jwt_audience: str | None = None
    jwt_issuer: str | None = None
    drain_s: float = 10.0
    """How long open responses may go on after SIGTERM."""


class GatewayConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole configuration."""

    config_version: int = VERSION
    upstream: tuple[UpstreamConfig, ...] = ()
    serve: ServeConfig = ServeConfig()
    gateway: GatewaySettings = GatewaySettings()
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        if self.config_version != VERSION:
            raise ConfigError("config_version", f"{self.config_version} is not {VERSION}, which this reads")


_SECTIONS = {"serve": ServeConfig, "gateway": GatewaySettings, "limits": Limits}


def load_config(file: Path | None, environment: Mapping[str, str], flags: Mapping[str, Any]) -> GatewayConfig:
    """Merge the sources; `flags` maps `section.key` (or `upstream`) to values that were given.

    Raises `ConfigError`, which names the key.
    """
    tree = _read_file(file) if file is not None else {}
    for key, text in sorted(environment.items()):
        if _is_setting(key):
            _set(tree, *_key_of_variable(key), text)
    for key, value in flags.items():
        section, _, name = key.partition(".")
        if section == "upstream":
            tree["upstream"] = [{"url": url} for url in value]
        else:
            _set(tree, section, name, value)
    config = _convert(tree)
    _check(config)
    return config


def _read_file(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError("config", f"{file} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError("config", f"{file} is no TOML: {error}") from None


def _is_setting(variable: str) -> bool:
    """Say whether a variable is ours: one word behind the prefix names no section and belongs to others."""
    words = variable.removeprefix(PREFIX)
    return variable.startswith(PREFIX) and ("_" in words or words == "UPSTREAM")


def _key_of_variable(variable: str) -> tuple[str, str]:
    section, _, name = variable.removeprefix(PREFIX).lower().partition("_")
    if section == "upstream" and not name:
        return "upstream", ""
    if section not in _SECTIONS or name not in _SECTIONS[section].__struct_fields__:
        raise ConfigError(variable, f"no such setting; sections are {', '.join(_SECTIONS)}")
    return section, name


def _set(tree: dict[str, Any], section: str, name: str, value: Any) -> None:
    if section == "upstream":
        tree["upstream"] = [{"url": url.strip()} for url in value.split(",")]
        return
    known = _SECTIONS.get(section)
    if known is None or name not in known.__struct_fields__:
        raise ConfigError(f"{section}.{name}", f"no such setting; sections are {', '.join(_SECTIONS)}")
    kind = known.__annotations__[name]
    if isinstance(value, str) and "tuple" in str(kind):
        value = [part.strip() for part in value.split(",")]
    tree.setdefault(section, {})[name] = value


def _convert(tree: dict[str, Any]) -> GatewayConfig:
    try:
        return msgspec.convert(tree, GatewayConfig, strict=False)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, ConfigError):
            raise error.__cause__ from None
        text, _, path = str(error).partition(" - at `$")
        raise ConfigError(path.rstrip("`").lstrip(".") or "config", text) from None


def _check(config: GatewayConfig) -> None:
    if not config.upstream:
        raise ConfigError("upstream", "at least one is needed: --upstream URL, or [[upstream]] in the file")
    prefixes = [upstream.prefix.rstrip("/") for upstream in config.upstream]
    if len(set(prefixes)) < len(prefixes):
        raise ConfigError("upstream.prefix", "several upstreams need a prefix each: [[upstream]]")
    if config.serve.replicas > 1 and config.serve.keys is None:
        raise ConfigError("serve.keys", "several replicas need one key file: counterfoil keys new FILE")
    if not 1 <= config.serve.workers <= MAX_WORKERS:
        raise ConfigError("serve.workers", f"between 1 and {MAX_WORKERS}")
    _check_peers(config.serve)
    if config.serve.backend not in get_args(Backend):
        raise ConfigError("serve.backend", "asyncio or trio")
    if config.gateway.adopt_s > config.limits.grace_s:
        raise ConfigError("gateway.adopt_s", "above limits.grace_s, after which an answer is forgotten")
    if config.gateway.resume_grace_s > config.limits.grace_s:
        raise ConfigError(
            "gateway.resume_grace_s", "above limits.grace_s, after which an answer is forgotten"
        )
    for name in ("scope", "principal"):
        _check_source(config.serve, name, getattr(config.serve, name))
    split_address(config.serve.listen)
    if config.serve.admin is not None and not config.serve.admin.startswith("unix:"):
        host, _ = split_address(config.serve.admin, key="serve.admin")
        if host not in ("127.0.0.1", "::1", "localhost"):
            raise ConfigError("serve.admin", f"{host} is not loopback: use unix:PATH or 127.0.0.1:PORT")


def _check_peers(serve: ServeConfig) -> None:
    if not serve.peers:
        return
    if serve.self_name is None or serve.peer_listen is None:
        raise ConfigError("serve.peers", "replicas need --self NAME and serve.peer_listen HOST:PORT too")
    if serve.keys is None:
        raise ConfigError("serve.keys", "replicas need one key file: counterfoil keys new FILE")
    if (serve.peer_certificate is None) != (serve.peer_key is None):
        raise ConfigError("serve.peer_key", "a certificate and its key come together")
    split_address(serve.peer_listen, key="serve.peer_listen")


def _check_source(serve: ServeConfig, name: str, source: str | None) -> None:
    if source is None:
        return
    kind, _, field = source.partition(":")
    if kind not in ("header", "jwt") or not field:
        raise ConfigError(f"serve.{name}", f"{source!r} is neither header:NAME nor jwt:CLAIM")
    if kind == "header" and not serve.trusted_proxies:
        raise ConfigError(f"serve.{name}", "a header says whose a request is only from --trusted-proxy")
    if kind == "jwt" and (serve.jwt_keys is None or serve.jwt_audience is None):
        raise ConfigError(f"serve.{name}", "a claim counts only if verified: give jwt_keys and jwt_audience")


def split_address(address: str, *, key: str = "serve.listen") -> tuple[str, int]:
    """Split `host:port`; an IPv6 host stands in brackets."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65_535:
        raise ConfigError(key, f"{address!r} is not HOST:PORT")
    return host.strip("[]") or "0.0.0.0", int(port)


def show_config(config: GatewayConfig) -> str:
    """Return the effective configuration as TOML; it holds no secret."""
    tree = msgspec.to_builtins(config)
    lines = [f"config_version = {tree.pop('config_version')}"]
    for section in ("serve", "gateway", "limits"):
        lines += ["", f"[{section}]", *_pairs(tree[section])]
    for upstream in tree["upstream"]:
        lines += ["", "[[upstream]]", *_pairs(upstream)]
    return "\n".join(lines) + "\n"


def describe_adoption(config: GatewayConfig) -> str:
    """Say in words whose calls may be taken over, as a comment of the configuration."""
    if config.gateway.adopt_s == 0 or config.gateway.adopt_scope == "off":
        text = "off: a re-issued call runs again, and its effect may happen twice"
    elif config.gateway.adopt_scope == "session":
        text = "within a session: an agent that opens a new one runs its call again"
    elif config.serve.principal is None:
        text = (
            "within a session, as no principal is configured: an agent that opens a new one runs its\n"
            "# call again. A tenant is no principal: two of its users may make equal calls and mean both"
        )
    else:
        text = (
            "by principal, across sessions. For a tool whose effect lives in its session (browsers, shells)\n"
            "# set adopt_scope or adopt_scopes to session"
        )
    return f"# Adoption {text}.\n"


def describe_ledger(config: GatewayConfig) -> str:
    """Say in words who shares the ledger, as a comment of the configuration."""
    serve = config.serve
    if serve.ledger is None:
        return "# Ledger none: keys of calls are not honoured, and a restart forgets undelivered calls.\n"
    shared = "one, of this process"
    if serve.workers > 1:
        shared = f"one for the {serve.workers} workers of this host"
    if serve.peers:
        shared += (
            ";\n# each replica needs one; a key belongs to one of them: elsewhere it is passed on, or refused"
        )
    return f"# Ledger {shared}.\n"


def _pairs(values: dict[str, Any]) -> list[str]:
    return [f"{key} = {_write_toml(value)}" for key, value in values.items() if value is not None]


def _write_toml(value: Any) -> str:
    if isinstance(value, dict):
        members = ", ".join(f"{_write_toml(key)} = {_write_toml(each)}" for key, each in value.items())
        return f"{{ {members} }}" if members else "{}"
    # A JSON string, number, boolean or list of strings is TOML as well.
    return msgspec.json.encode(value).decode()
