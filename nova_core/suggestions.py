"""What somebody may have meant who wrote a name that is not known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

# More names than this are not searched for the nearest one.
_MOST_SEARCHED = 5000
_MOST_SHOWN = 12


def nearest(name: str, accepted: Iterable[str]) -> str:
    """The accepted name nearest to what was written, or an empty text."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, list(accepted), 1)), "")


def suggestion(name: str, accepted: Sequence[str]) -> str:
    """The accepted name nearest to what was written, or all of them."""
    if near := nearest(name, accepted):
        return f"did you mean {near!r}?"
    if not accepted:
        return "none is accepted here"
    more = ", …" if len(accepted) > _MOST_SHOWN else ""
    return f"accepted are {', '.join(accepted[:_MOST_SHOWN])}{more}"


def unknown(what: str, name: str, accepted: Iterable[str]) -> str:
    """Error text for an unknown name, with the nearest one unless there are too many to search."""
    names = sorted(accepted)
    hint = suggestion(name, names) if len(names) <= _MOST_SEARCHED else f"{len(names)} are known"
    return f"unknown {what} {name!r}; {hint}"
