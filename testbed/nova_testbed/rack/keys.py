"""Keys of a rack: one to log in with, one per host to know it by."""

from __future__ import annotations

from pathlib import Path

from nova_testbed.rack.state import replace


def make_key(file: Path, comment: str) -> str:
    """Make an Ed25519 key pair unless there is one.

    Args:
        file: for the private key, mode 600; the public one gets the suffix ``.pub``.
        comment: of the public key.

    Returns:
        The public key, as one line.
    """
    public_file = file.with_name(f"{file.name}.pub")
    if file.exists() and public_file.exists():
        return public_file.read_text().strip()
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    line = f"{public.decode()} {comment}"
    replace(file, private)
    replace(public_file, f"{line}\n", mode=0o644)
    return line


def known_hosts(keys: dict[str, str]) -> str:
    """A known-hosts file.

    Args:
        keys: public key of each address.
    """
    return "".join(f"{address} {' '.join(key.split()[:2])}\n" for address, key in keys.items())
