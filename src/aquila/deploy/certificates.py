"""Certificates of the server, and keys by which devices prove who they are."""

import datetime
from dataclasses import dataclass
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS = 3650
SERVER_DAYS = 397
CLOCK_SKEW = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Certificate:
    """A certificate and its private key, both PEM, and the last day it is valid."""

    certificate: bytes
    key: bytes
    expires_on: datetime.date


@dataclass(frozen=True)
class KeyPair:
    """A device's key in the form Flower reads: OpenSSH, on the curve P-384."""

    private: bytes
    public: bytes


def make_authority() -> Certificate:
    """Return the root of a federation: whoever has its key can pretend to be the server."""
    key = _new_key()
    name = _name("AQUILA federation")
    builder = (
        _builder(name, name, key, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
    )
    return _sign(builder, key, key)


def issue_server_certificate(authority: Certificate, hosts: tuple[str, ...]) -> Certificate:
    """Return a certificate for a server that is reached by these names and addresses."""
    root = x509.load_pem_x509_certificate(authority.certificate)
    root_key = serialization.load_pem_private_key(authority.key, password=None)
    if not isinstance(root_key, ec.EllipticCurvePrivateKey):
        raise ValueError("the authority's key is not one that this release makes")
    key = _new_key()
    known = x509.AuthorityKeyIdentifier.from_issuer_public_key(root_key.public_key())
    builder = (
        _builder(_name("AQUILA server"), root.subject, key, SERVER_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
        .add_extension(known, critical=False)
    )
    return _sign(builder, key, root_key)


def read_certificate(certificate: bytes, key: bytes) -> Certificate:
    """Return a certificate that was saved."""
    expires_on = x509.load_pem_x509_certificate(certificate).not_valid_after_utc.date()
    return Certificate(certificate, key, expires_on)


def make_key_pair() -> KeyPair:
    """Return a key by which a device proves who it is."""
    key = _new_key()
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


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _host(host: str) -> x509.GeneralName:
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


def _usage(**allowed: bool) -> x509.KeyUsage:
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
    made = builder.sign(signer, hashes.SHA384())
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return read_certificate(made.public_bytes(serialization.Encoding.PEM), private)
