"""Where metadata of a protected resource is asked for, and where its upstream keeps it (RFC 9728, RFC 8414).

That of `/mcp` is at `/.well-known/<name>/mcp`: the name stands before the path, so that no prefix finds it.
"""

from __future__ import annotations

import msgspec

_ROOT = b"/.well-known/"
_READING = ("GET", "HEAD", "OPTIONS")
#: Documents that a client of MCP asks for before it has a token.
_NAMES = (b"oauth-protected-resource", b"oauth-authorization-server", b"openid-configuration")


class MetadataPath(msgspec.Struct, frozen=True):
    """A document, the path of the resource that it is about, and the query as sent."""

    name: bytes
    resource: bytes
    query: bytes

    def write(self, resource: bytes) -> bytes:
        """Return the target of the same document about another path."""
        return _ROOT + self.name + resource + self.query


def read_metadata_path(method: str, target: bytes) -> MetadataPath | None:
    """Read a target that asks for metadata; None for any other."""
    if method not in _READING:
        return None
    path, mark, query = target.partition(b"?")
    name, slash, resource = path.removeprefix(_ROOT).partition(b"/")
    if not path.startswith(_ROOT) or name not in _NAMES:
        return None
    return MetadataPath(name, (slash + resource).rstrip(b"/"), mark + query)


def asks_for_metadata(method: str, target: bytes) -> bool:
    """Whether a request reads metadata, asked before a path or (as OpenID has it) behind one."""
    if read_metadata_path(method, target) is not None:
        return True
    path = target.partition(b"?")[0]
    return method in _READING and any(path.endswith(_ROOT + name) for name in _NAMES)
