"""Certificates for the server, and keys that authenticate devices."""

import datetime
from dataclasses import dataclass
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS = 3650
SERVER_DAYS = 397
WARNING_DAYS = 30
"""How many days before its end a certificate is warned about."""
CLOCK_SKEW = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Certificate:
    """A certificate and its private key, both in PEM, and its last valid day."""

    certificate: bytes
    key: bytes
    expires_on: datetime.date


@dataclass(frozen=True)
class KeyPair:
    """A key pair in OpenSSH form."""

    private: bytes
    public: bytes


def make_authority() -> Certificate:
    """Return a new certificate authority. The holder of its key can impersonate the server."""
    key = _new_key()
    name = _common_name("AQUILA federation")
    builder = (
        _builder(name, name, key, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(key_cert_sign=True, crl_sign=True), critical=True)
    )
    return _sign(builder, key, key)


def issue_server_certificate(authority: Certificate, hosts: tuple[str, ...]) -> Certificate:
    """Return a server certificate that is valid for these host names and addresses."""
    root = x509.load_pem_x509_certificate(authority.certificate)
    root_key = serialization.load_pem_private_key(authority.key, password=None)
    if not isinstance(root_key, ec.EllipticCurvePrivateKey):
        raise ValueError("the authority's key must be an elliptic-curve key")
    key = _new_key()
    names = [_alternative_name(host) for host in hosts]
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(root_key.public_key())
    builder = (
        _builder(_common_name("AQUILA server"), root.subject, key, SERVER_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(issuer, critical=False)
    )
    return _sign(builder, key, root_key)


def read_certificate(certificate: bytes, key: bytes) -> Certificate:
    """Return a certificate from the contents of its saved files."""
    expires_on = x509.load_pem_x509_certificate(certificate).not_valid_after_utc.date()
    return Certificate(certificate, key, expires_on)


def days_left(certificate: bytes) -> int:
    """Return the number of whole days until a certificate expires; negative if it has."""
    end = x509.load_pem_x509_certificate(certificate).not_valid_after_utc
    return (end - datetime.datetime.now(datetime.UTC)).days


def expiry_warning(certificate: bytes) -> str | None:
    """Return a sentence if a certificate has expired or expires within 30 days, else None."""
    end = x509.load_pem_x509_certificate(certificate).not_valid_after_utc.date()
    days = days_left(certificate)
    if days < 0:
        return f"this certificate expired on {end}; devices refuse it; run aquila deploy renew"
    if days >= WARNING_DAYS:
        return None
    return f"this certificate expires on {end}, in {days} days; run aquila deploy renew"


def make_key_pair() -> KeyPair:
    """Return a new key pair for a device, on the curve P-384, which Flower needs."""
    return _key_pair(_new_key())


def make_signing_pair() -> KeyPair:
    """Return a new Ed25519 key pair that signs the messages of the server or of a device."""
    return _key_pair(Ed25519PrivateKey.generate())


def _key_pair(key: ec.EllipticCurvePrivateKey | Ed25519PrivateKey) -> KeyPair:
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    return KeyPair(private, public + b"\n")


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP384R1())


def _common_name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _alternative_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(identifier, critical=False)
    )


def _key_usage(**allowed: bool) -> x509.KeyUsage:
    names = (
        "digital_signature", "content_commitment", "key_encipherment", "data_encipherment",
        "key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
    )  # fmt: skip
    return x509.KeyUsage(**{name: allowed.get(name, False) for name in names})


def _sign(
    builder: x509.CertificateBuilder,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
) -> Certificate:
    certificate = builder.sign(signer, hashes.SHA384())
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return read_certificate(certificate.public_bytes(serialization.Encoding.PEM), private)
