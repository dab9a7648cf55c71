"""Reservation of a rack: two programs on the same hosts would break each other's work.

Racks of other names, and those of other users, have hosts and addresses of their own: programs
on them run side by side.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

from nova_testbed.rack.state import RackError, give_to_user, make_directory

# State directories that this process has reserved; nested calls may reserve them again.
_own: set[Path] = set()


@contextlib.contextmanager
def reserved(name: str, state_directory: Path) -> Iterator[None]:
    """Reserve a rack, up or not, against other programs.

    The reservation ends with this process, however that ends.

    Args:
        name: of the rack.
        state_directory: of the rack.

    Raises:
        RackError: that names the program that has reserved it.
    """
    if state_directory in _own:
        yield
        return
    # Beside the state directory, which is removed with the rack.
    file = state_directory.with_name(f".{state_directory.name}.lock")
    make_directory(file.parent)
    try:
        descriptor = _lock(file)
    except BlockingIOError:
        raise RackError(
            f"rack {name} is in use by {_holder(file)}: wait until that ends, or end it; "
            "`nova testbed down` then removes what it may leave of the rack"
        ) from None
    except OSError as error:
        raise RackError(f"{file}: {error.strerror}") from error
    try:
        try:
            command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"process {os.getpid()} (`{command}`)".encode())
            give_to_user(file)
        except OSError as error:
            raise RackError(f"{file}: {error.strerror}") from error
        _own.add(state_directory)
        yield
    finally:
        _own.discard(state_directory)
        file.unlink(missing_ok=True)
        os.close(descriptor)


def _lock(file: Path) -> int:
    while True:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(descriptor)
            raise
        # An earlier holder may have removed it since it was opened.
        if os.fstat(descriptor).st_nlink:
            return descriptor
        os.close(descriptor)


def _holder(file: Path) -> str:
    """The program that has locked a file, as the file says."""
    with contextlib.suppress(OSError):
        return file.read_text(errors="replace") or "another program"
    return "another program"
