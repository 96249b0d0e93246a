"""A certificate for the tests of TLS between hosts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from counterfoil.adapters.peers.tls import ServerTls
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


def make_tls(folder: Path) -> ServerTls:
    """Return a certificate for `localhost` that is its own authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(tz=UTC)
    building = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    building = building.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(hours=1))
    building = building.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    names = x509.SubjectAlternativeName([x509.DNSName("localhost")])
    own = building.add_extension(names, critical=False).sign(key, hashes.SHA256())
    (folder / "certificate").write_bytes(own.public_bytes(Encoding.PEM))
    (folder / "key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    certificate = str(folder / "certificate")
    return ServerTls(certificate, str(folder / "key"), certificate)
