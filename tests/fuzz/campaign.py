"""Inputs by seed and number, run several at a time, and what is wrong with how they ended."""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import click
import msgspec
import yaml

from .children import SLOW, Child, Ended, Limits, begin, fresh, guarded, nova
from .mutations import TEXTS, WRITTEN, Place, change_content, change_path, places, value_at
from .uses import PLACEHOLDER, STRICT, Use, attackable, command_of, commands, is_number

ALLOWED = (0, 1, 2)
# Of so many inputs, one goes to an interpreter of its own. Prime, so that each use comes by.
FRESH = 13
# Bytes that a command may have in memory, with all that this process has imported for it.
MOST_MEMORY = 1 << 30
# Files that a document names.
BESIDE = {
    "experiment.yaml": ("inventory.yaml",),
    "jobs.yaml": ("problem.yaml", "plan.json", "inventory.yaml"),
}
# How the command line says that it has met what nobody thought of.
KEPT_TRACEBACK = re.compile(r"its traceback is in (\S+)")


@dataclass
class Input:
    """One hostile input.

    Attributes:
        number: with the seed, all that it is made of.
        use: the valid use it spoils.
        folder: its files; the working directory.
        what: how it is spoiled, in words.
        arguments: of the command.
        invalid: why it must not be accepted; empty where it may.
        values: what stands for the placeholders of its line and of its follow-ups.
    """

    number: int
    use: Use
    folder: Path
    what: str = "as it is"
    arguments: list[str] = field(default_factory=list)
    invalid: str = ""
    values: dict[str, str] = field(default_factory=dict)

    @property
    def line(self) -> str:
        """The command, to be given in the folder."""
        return shlex.join(["nova", *self.arguments])


@dataclass(frozen=True)
class Finding:
    """An input that ended as none may."""

    kind: str
    number: int
    line: str
    what: str
    folder: Path
    detail: str


# --- making ---------------------------------------------------------------------------------------


def make(
    seed: int, number: int, uses: Sequence[Use], material: Path, place: Path, port: int
) -> Input:
    """Make the files of an input and what to run on them."""
    use = uses[number % len(uses)]
    made = Input(number, use, place / f"{seed}-{number:05}")
    made.folder.mkdir()
    for name in use.files:
        source, target = material / name, made.folder / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, target)
        for other in BESIDE.get(name, ()):
            shutil.copy(material / other, made.folder / other)
    given = {name: name for name in use.files}
    rng = random.Random(f"{seed} {number}")
    extra: list[str] = []
    if seed >= 0:
        chance = rng.random()
        if use.files and chance < 0.66:
            _spoil_content(rng, made)
        elif use.files and chance < 0.76:
            _spoil_path(rng, made, given)
        else:
            extra = _spoil_option(rng, made)
    made.values = {**given, "PORT": str(port), "CASE": made.folder.name}
    made.arguments = [*_filled(use.line, made), *extra]
    return made


def _filled(line: str, one: Input) -> list[str]:
    """The words of a line with what stands for its placeholders."""
    return [PLACEHOLDER.sub(lambda match: one.values[match[1]], word) for word in line.split()]


def _spoil_content(rng: random.Random, made: Input) -> None:
    name = rng.choice(made.use.files)
    path = made.folder / name
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.is_file())
        # Every kind of file as likely as the next, or else tables would take it all.
        suffix = rng.choice(sorted({p.suffix for p in files}))
        path = rng.choice([p for p in files if p.suffix == suffix])
    before = path.read_bytes()
    change = change_content(rng, path.name, before)
    assert change.content is not None
    path.write_bytes(change.content)
    made.what = f"{path.relative_to(made.folder)}: {change.what}"
    if name in STRICT and change.tree is not None:
        made.invalid = change.invalid or _against_schema(name, change.tree)
        if "unheard of" in change.what and not STRICT[name]:
            made.invalid = "a field unheard of"
        if not made.invalid:
            made.invalid = _against_sums(name, before, change.tree, made.use)


@cache
def _validator(kind: str) -> Any:
    import jsonschema

    from nova_core.schemas import schema_of

    return jsonschema.Draft202012Validator(json.loads(msgspec.json.encode(schema_of(kind))))


def _against_schema(name: str, tree: Any) -> str:
    """What the schema has against a document."""
    if not STRICT[name]:
        return ""
    error = next(iter(_validator(STRICT[name]).iter_errors(tree)), None)
    return "" if error is None else f"not by the schema: {error.message[:100]}"


def _against_sums(name: str, before: bytes, tree: Any, use: Use) -> str:
    """Whether a figure differs that a plan must agree with."""
    kind = STRICT[name]
    if kind == "plan" and use.line.startswith("check "):
        parts, why = ("instances", "edges", "partitions", "totals"), "a sum that no longer matches"
    elif kind == "problem" and any(STRICT.get(one) == "plan" for one in use.files):
        parts, why = ("nodes", "sources", "links", "query", "queries"), "a plan for another problem"
    else:
        return ""
    old, new = (dict(_figures(one)) for one in (yaml.safe_load(before), tree))
    differs = old.keys() == new.keys() and any(
        place[0] in parts and abs(new[place] - old[place]) > 1e-3 * max(1.0, abs(old[place]))
        for place in old
    )
    return why if differs else ""


def _figures(tree: Any) -> Iterator[tuple[Place, float]]:
    for place in places(tree):
        value = value_at(tree, place)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            yield place, min(1e300, max(-1e300, value))


def _spoil_path(rng: random.Random, made: Input, given: dict[str, str]) -> None:
    name = rng.choice(made.use.files)
    kind, path = change_path(rng, made.folder / name)
    given[name] = os.path.relpath(path, made.folder) if path.startswith("/") else path
    made.what = f"{name} is {kind}"
    # What a web server does not have is no error, a function opens its files by itself, and a
    # journal that is not there or empty begins.
    begins = name == "journal" and kind in ("missing", "a directory")
    allowed = begins or name == "web" or kind == "a name that is not UTF-8"
    if not allowed and made.use.function is None:
        made.invalid = f"{kind} in place of it"


@cache
def _known() -> Mapping[str, click.Command]:
    return dict(commands())


def _spoil_option(rng: random.Random, made: Input) -> list[str]:
    options = attackable(_known()[command_of(made.use, _known())])
    if not options or made.use.function is not None:
        if made.use.files:
            _spoil_content(rng, made)
        return []
    option = rng.choice(options)
    if is_number(option):
        value = rng.choice([v for v in WRITTEN if "\0" not in v])
    else:
        value = rng.choice([*(t for t in TEXTS if _can_be_given(t)), *WRITTEN])
    made.what = f"{option.opts[0]} is {value[:30]!r}"
    if is_number(option) and value in ("nan", "x", "", " ", "1e", "--", "1,5"):
        made.invalid = "no number"
    return [f"{option.opts[0]}={value}"]


def _can_be_given(text: str) -> bool:
    """Whether an argument can be that; and no device that a file could take the place of."""
    try:
        return b"\0" not in os.fsencode(text) and not text.startswith("/dev")
    except UnicodeEncodeError:
        return False


# --- running --------------------------------------------------------------------------------------


def run(inputs: Iterator[Input], jobs: int) -> Iterator[tuple[Input, Ended, str, str]]:
    """Run inputs, so many at a time; of each how it ended, and what is wrong, if anything.

    Yields:
        the input, how it ended, the kind of what is wrong (empty if nothing) and its detail.
    """
    import time

    running: list[tuple[Input, Child, list[str], Ended | None]] = []
    more = True
    while more or running:
        while more and len(running) < jobs:
            one = next(inputs, None)
            if one is None:
                more = False
            else:
                running.append((one, _begin(one), list(one.use.then), None))
        still = []
        for one, child, then, first in running:
            ended = child.ended()
            if ended is None:
                still.append((one, child, then, first))
                continue
            kind, detail = wrong(one, ended) if first is None else wrong_after(ended)
            if not kind and then and (first or ended).code == 0:
                words = _filled(then.pop(0), one)
                # What a follow-up reads again is read with the same capacities.
                words += [word for word in one.arguments if word.startswith("--capacity=")]
                next_child = begin(nova(words), one.folder, Limits(), "then")
                still.append((one, next_child, then, first or ended))
                continue
            yield one, first or ended, kind, detail
        running = still
        time.sleep(0.002)


def _begin(one: Input) -> Child:
    limits = SLOW if one.use.slow else Limits()
    if one.use.function is not None:
        return begin(guarded(one.use.function, one.folder), one.folder, limits)
    what = fresh if one.number % FRESH == 0 else nova
    return begin(what(one.arguments), one.folder, limits)


def wrong(one: Input, ended: Ended) -> tuple[str, str]:
    """The kind of what is wrong with how an input ended, and what shows it; empty if nothing."""
    kind, detail = wrong_at_all(ended)
    if kind:
        return kind, detail
    if ended.code == 0 and one.invalid:
        return "wrong success", one.invalid
    if ended.peak > MOST_MEMORY and not one.use.slow:
        return "memory", f"{ended.peak >> 20} MiB"
    if "out of memory" in ended.stderr and not one.what.startswith("--"):
        # Of an option that says how much there is to do, that is the right answer.
        return "memory", ended.stderr.strip().rpartition("\n")[2][-300:]
    if ended.code == 0 and "--json" in one.arguments:
        try:
            msgspec.json.decode(ended.stdout)
        except msgspec.DecodeError as error:
            return "no JSON", str(error)
    return "", ""


def wrong_at_all(ended: Ended) -> tuple[str, str]:
    """What no command may do, whatever it is given."""
    last = ended.stderr.strip().rpartition("\n")[2][-300:]
    if ended.hang:
        return "hang", f"{ended.seconds:.0f} s"
    if ended.code < 0:
        return "abort", f"signal {-ended.code}: {last}"
    if "Traceback (most recent call last)" in ended.stderr or "Exception ignored" in ended.stderr:
        return "traceback", last
    if kept := KEPT_TRACEBACK.search(ended.stderr):
        path = Path(kept[1])
        text = path.read_text(errors="replace") if path.exists() else ""
        path.unlink(missing_ok=True)
        return "traceback", f"{last}\n{text[-600:]}"
    if ended.code not in ALLOWED:
        return "exit code", f"{ended.code}: {last}"
    if ended.code == 2 and "nova: error: " not in ended.stderr and ended.stderr.strip() == "":
        return "silent", "exit code 2 without a word"
    return "", ""


def wrong_after(ended: Ended) -> tuple[str, str]:
    """What is wrong with a follow-up: it must accept what was written."""
    kind, detail = wrong_at_all(ended)
    if kind:
        return kind, f"in a follow-up: {detail}"
    if ended.code != 0:
        return "wrong success", f"what was written is refused: {ended.stderr[-300:].strip()}"
    return "", ""


def findings(found: Sequence[Finding]) -> Mapping[str, int]:
    """How many there are of each kind."""
    return {kind: sum(f.kind == kind for f in found) for kind in sorted({f.kind for f in found})}
