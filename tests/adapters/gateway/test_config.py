"""The configuration names what is wrong with it, and flags win over environment over file."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from counterfoil.adapters.gateway.config import (
    describe_adoption,
    describe_ledger,
    load_config,
    show_config,
)
from counterfoil.errors import ConfigError

FILE = """
config_version = 1
[serve]
listen = "127.0.0.1:1"
[gateway]
prime_after_ms = 50
beat_s = 5
[limits]
event_lines = 7
[[upstream]]
url = "http://127.0.0.1:8000/mcp"
prefix = "/one"
write_timeout_s = 7
drop_headers = ["Authorization"]
drop_answer_headers = ["server"]
[upstream.set_headers]
x-key = "env:UPSTREAM_KEY"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "gateway.toml"
    path.write_text(FILE)
    return path


def test_flags_win_over_environment_over_file(file: Path) -> None:
    environment = {"COUNTERFOIL_GATEWAY_PRIME_AFTER_MS": "60", "COUNTERFOIL_SERVE_LISTEN": "127.0.0.1:2"}
    config = load_config(file, environment, {"serve.listen": "127.0.0.1:3"})
    assert config.serve.listen == "127.0.0.1:3"
    assert config.gateway.prime_after_ms == 60
    assert config.gateway.beat_s == 5
    assert config.limits.event_lines == 7
    assert config.upstream[0].prefix == "/one"


def test_upstreams_can_come_from_flags_and_environment() -> None:
    flag = load_config(None, {}, {"upstream": ["http://a/mcp"]})
    assert flag == load_config(None, {"COUNTERFOIL_UPSTREAM": "http://a/mcp"}, {})


def test_several_upstreams_need_a_prefix_each() -> None:
    with pytest.raises(ConfigError, match="prefix"):
        load_config(None, {}, {"upstream": ["http://a/mcp", "http://b/mcp"]})


def test_what_is_shown_reads_back_as_the_same(file: Path, tmp_path: Path) -> None:
    config = load_config(file, {}, {})
    again = tmp_path / "shown.toml"
    again.write_text(show_config(config))
    tomllib.loads(again.read_text())
    assert load_config(again, {}, {}) == config


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("config_version = 2", "config_version"),
        ("[gateway]\nprime_after = 3", "gateway"),
        ("[gateway]\nbeat_s = 'x'", "gateway.beat_s"),
        ("[gateway]\nbeat_s = 0", "beat_s"),
        ("[surprise]\na = 1", "config"),
        ("[serve]\nscope = 'x-tenant'", "serve.scope"),
        ("[serve]\nscope = 'header:x-tenant'", "serve.scope"),
        ("[serve]\nprincipal = 'jwt:sub'", "serve.principal"),
        ("[serve]\nreplicas = 2", "serve.keys"),
        ("[serve]\nlisten = 'nowhere'", "serve.listen"),
        ("[serve]\nbackend = 'twisted'", "serve.backend"),
        ("not toml", "config"),
    ],
)
def test_a_bad_key_is_named(tmp_path: Path, text: str, key: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as error:
        load_config(path, {"COUNTERFOIL_UPSTREAM": "http://a/mcp"}, {})
    assert error.value.key == key


def test_no_upstream_is_an_error() -> None:
    with pytest.raises(ConfigError, match="--upstream"):
        load_config(None, {}, {})


@pytest.mark.parametrize("variable", ["COUNTERFOIL_GATEWAY_NOPE", "COUNTERFOIL_NOPE_X"])
def test_a_variable_that_nobody_knows_is_an_error(variable: str) -> None:
    with pytest.raises(ConfigError, match=variable):
        load_config(None, {variable: "1", "COUNTERFOIL_UPSTREAM": "http://a/mcp"}, {})


def test_a_variable_without_a_section_is_left_to_others() -> None:
    environment = {"COUNTERFOIL_FULL": "1", "COUNTERFOIL_UPSTREAM": "http://a/mcp"}
    assert load_config(None, environment, {}).upstream[0].url == "http://a/mcp"


def test_the_file_in_the_manual_is_a_configuration(tmp_path: Path) -> None:
    manual = (Path(__file__).resolve().parents[3] / "docs" / "operations.md").read_text()
    file = tmp_path / "gateway.toml"
    file.write_text(manual.split("```toml\n")[1].split("```")[0])
    config = load_config(file, {}, {})
    assert config.serve.scope == "header:x-tenant"
    assert config.gateway.allow_hosts == ("mcp.example",)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({}, "no principal is configured"),
        ({"serve.principal": "header:x-user", "serve.trusted_proxies": ["10.0.0.0/8"]}, "across sessions"),
        ({"gateway.adopt_scope": "session"}, "within a session"),
        ({"gateway.adopt_s": 0}, "off"),
    ],
)
def test_whose_calls_may_be_taken_over_is_said_in_words(flags: dict[str, Any], says: str) -> None:
    config = load_config(None, {}, {"upstream": ["http://a/mcp"], **flags})
    text = describe_adoption(config)
    assert says in text
    assert tomllib.loads(text + show_config(config))["config_version"] == 1


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({}, "not honoured"),
        ({"serve.ledger": "calls.db"}, "of this process"),
        ({"serve.ledger": "calls.db", "serve.workers": 3}, "the 3 workers of this host"),
        (
            {
                "serve.ledger": "calls.db",
                "serve.peers": ("b=http://b:7000",),
                "serve.self_name": "a",
                "serve.peer_listen": "10.0.0.1:7000",
                "serve.keys": "keys",
            },
            "a key belongs to one of them",
        ),
    ],
)
def test_who_shares_the_ledger_is_said_in_words(flags: dict[str, Any], says: str) -> None:
    config = load_config(None, {}, {"upstream": ["http://a/mcp"], **flags})
    text = describe_ledger(config)
    assert says in text
    assert tomllib.loads(text + show_config(config))["config_version"] == 1


@pytest.mark.parametrize(
    ("flags", "key"),
    [
        ({"gateway.adopt_s": 121}, "gateway.adopt_s"),
        ({"gateway.adopt_scopes": "order=nobody"}, "adopt_scopes"),
        ({"gateway.adopt_scope": "tenant"}, "gateway.adopt_scope"),
    ],
)
def test_adoption_that_cannot_work_is_refused_by_name(flags: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        load_config(None, {}, {"upstream": ["http://a/mcp"], **flags})


def test_what_an_upstream_is_told_beside_comes_from_the_environment_and_is_never_shown(file: Path) -> None:
    (upstream,) = load_config(file, {}, {}).upstream
    policy = upstream.header_policy({"UPSTREAM_KEY": "s3cret"})
    assert policy.apply(((b"authorization", b"Bearer t"),)) == ((b"x-key", b"s3cret"),)
    assert policy.apply_to_answer(((b"server", b"x"),)) == ()
    shown = show_config(load_config(file, {}, {}))
    assert 'set_headers = { "x-key" = "env:UPSTREAM_KEY" }' in shown
    with pytest.raises(ConfigError, match="UPSTREAM_KEY"):
        upstream.header_policy({"OTHER": "1"})


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("connect_timeout_s = 0", "upstream.connect_timeout_s"),
        ("drop_headers = ['mcp-session-id']", "upstream.headers"),
        ('set_headers = { x = "\\n" }', "upstream.set_headers"),
    ],
)
def test_a_bad_key_of_an_upstream_is_named(tmp_path: Path, text: str, key: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(f"[[upstream]]\nurl = 'http://a'\n{text}")
    with pytest.raises(ConfigError) as error:
        load_config(path, {}, {})
    assert error.value.key == key
