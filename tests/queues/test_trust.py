"""Certificates are read once, and anew where others are to be believed."""

import os
import ssl
from pathlib import Path

import certifi
import pytest

from fleet.queues.http import trusted


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file of certificates that this process is told to believe: two of them."""
    first = Path(certifi.where()).read_text(encoding="utf-8").split("-----END CERTIFICATE-----")
    path = tmp_path / "believed.pem"
    path.write_text("-----END CERTIFICATE-----".join([*first[:2], "\n"]), encoding="utf-8")
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    return path


def test_changed_setting_of_trust_store_is_read(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = len(trusted().get_ca_certs())
    assert trusted() is trusted()
    assert (trusted().verify_mode, trusted().check_hostname) == (ssl.CERT_REQUIRED, True)

    monkeypatch.delenv("SSL_CERT_FILE")

    assert bundle.exists()
    assert few == 2
    assert len(trusted().get_ca_certs()) > few


def test_replaced_certificate_file_is_read_again(bundle: Path) -> None:
    before = len(trusted().get_ca_certs())

    one, _, _ = bundle.read_text(encoding="utf-8").partition("-----END CERTIFICATE-----\n")
    newer = bundle.with_suffix(".new")
    newer.write_text(f"{one}-----END CERTIFICATE-----\n", encoding="utf-8")
    # Clocks of file systems tick: what is written soon afterwards may be of the same moment.
    moment = bundle.stat().st_mtime_ns
    os.utime(newer, ns=(moment, moment))
    newer.replace(bundle)

    assert (before, len(trusted().get_ca_certs())) == (2, 1)
