"""Certificates and keys, checked by the libraries that read them."""

import datetime
import socket
import ssl
import threading

import pytest

pytest.importorskip("cryptography", reason="not installed: pip install -e '.[flower]'")
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from aquila.deploy import certificates
from aquila.deploy.certificates import (
    expiry_warning,
    issue_server_certificate,
    make_authority,
    make_key_pair,
)


@pytest.fixture(scope="module")
def authority():
    return make_authority()


def handshake(tmp_path, certificate, trusted, name):
    """Run a TLS handshake of a client that trusts an authority with a server of this name."""
    (tmp_path / "crt").write_bytes(certificate.certificate)
    (tmp_path / "key").write_bytes(certificate.key)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "crt", tmp_path / "key")
    client = ssl.create_default_context(cadata=trusted.certificate.decode())
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    near, far = socket.socketpair()

    def answer() -> None:
        try:
            server.wrap_socket(far, server_side=True).close()
        except OSError:
            far.close()

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        near.settimeout(30)
        client.wrap_socket(near, server_hostname=name).close()
    finally:
        near.close()
        thread.join(30)


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "fd00::7"])
def test_certificate_is_valid_for_its_hosts(tmp_path, authority, name):
    certificate = issue_server_certificate(authority, ("127.0.0.1", "localhost", "fd00::7"))
    handshake(tmp_path, certificate, authority, name)


def test_certificate_is_invalid_for_another_host(tmp_path, authority):
    certificate = issue_server_certificate(authority, ("fl.example.org",))
    with pytest.raises(ssl.SSLCertVerificationError, match="not valid for 'localhost'"):
        handshake(tmp_path, certificate, authority, "localhost")


def test_certificate_is_invalid_under_another_authority(tmp_path, authority):
    certificate = issue_server_certificate(authority, ("localhost",))
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(tmp_path, certificate, make_authority(), "localhost")


def test_server_certificate_cannot_issue_certificates(tmp_path, authority):
    false_authority = issue_server_certificate(authority, ("localhost",))
    certificate = issue_server_certificate(false_authority, ("fl.example.org",))
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(tmp_path, certificate, authority, "fl.example.org")


def test_validity_periods(authority):
    today = datetime.datetime.now(datetime.UTC).date()
    server = issue_server_certificate(authority, ("localhost",))
    assert 390 < (server.expires_on - today).days < 400
    assert 3640 < (authority.expires_on - today).days < 3660
    began = x509.load_pem_x509_certificate(server.certificate).not_valid_before_utc
    assert began.date() < today  # a device's clock may be behind


def test_keys_have_flowers_form():
    pair = make_key_pair()
    private = serialization.load_ssh_private_key(pair.private, None)
    public = serialization.load_ssh_public_key(pair.public)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    assert private.public_key() == public
    assert public.curve.name == "secp384r1"
    assert make_key_pair() != pair


@pytest.mark.parametrize(
    ("days", "warning"),
    [(31, None), (29, "in 28 days; run aquila deploy renew"), (-1, "expired on 20")],
)
def test_expiry_is_warned_about_thirty_days_ahead(authority, monkeypatch, days, warning):
    monkeypatch.setattr(certificates, "SERVER_DAYS", days)
    monkeypatch.setattr(certificates, "CLOCK_SKEW", datetime.timedelta(days=9))
    server = issue_server_certificate(authority, ("localhost",))
    text = expiry_warning(server.certificate)
    assert text is None if warning is None else warning in text
