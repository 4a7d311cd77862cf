"""Errors that name the argument, the value given and what is accepted."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches
from importlib import import_module
from numbers import Real
from typing import Any, TypeGuard


class ContrastLabError(Exception):
    """Base class of every error this package raises on purpose."""

    def __str__(self) -> str:  # those of KeyError and OSError add to the message
        return str(self.args[0]) if self.args else ""


class ArgumentError(ContrastLabError, ValueError):
    """A value outside the accepted range."""


class UnknownNameError(ContrastLabError, KeyError):
    """A name that is not registered; the message lists near matches."""


class NotApplicableError(ContrastLabError):
    """A combination that cannot exist, such as a colour split of grey images.

    ``reason`` says why, without names and values of the one combination; by default it is the message.
    """

    def __init__(self, message: str, *, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason or message


class MissingDataError(ContrastLabError, FileNotFoundError):
    """A data set that is not where it was looked for."""


class CorruptFileError(ContrastLabError):
    """A stored file that cannot be read back."""


class TooLargeError(ContrastLabError):
    """A file that would take more memory than one file may, told before it is decoded."""


class StorageError(ContrastLabError, OSError):
    """A file or folder that cannot be written, such as on a full disk, or may not be read."""


class DeviceError(ContrastLabError):
    """An accelerator, a number of devices or a cluster that is not there."""


class MissingExtraError(ContrastLabError, ImportError):
    """A library that an extra of this package installs is not there."""


class NonFiniteLossError(ContrastLabError, FloatingPointError):
    """The loss became NaN or infinite during training."""


def reject(argument: str, value: Any, accepted: str) -> ArgumentError:
    """An :class:`ArgumentError` in the one wording used everywhere."""
    return ArgumentError(f"{argument}={value!r}: expected {accepted}")


def check(holds: object, argument: str, value: Any, accepted: str) -> None:
    """Reject a value for which ``holds`` is false; ``accepted`` says in words what would hold."""
    if not holds:
        raise reject(argument, value, accepted)


def is_integer(value: object, least: int = 1) -> bool:
    """Whether a value is an integer of at least ``least``; a boolean is not one."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a finite number; a boolean and a text of digits are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def check_flag(argument: str, value: object) -> None:
    """Reject what is neither ``True`` nor ``False``, such as the text ``"no"``, which Python takes for true."""
    check(isinstance(value, bool), argument, value, "True or False")


def check_integer(argument: str, value: object, least: int = 1, most: float = math.inf) -> None:
    """Reject what is no integer from ``least`` to ``most``."""
    accepted = f"an integer of at least {least}"
    if most < math.inf:
        accepted = f"{accepted} and at most {most}"
    check(isinstance(value, int) and is_integer(value, least) and value <= most, argument, value, accepted)


def check_positive(**values: object) -> None:
    """Reject what is no positive number."""
    for argument, value in values.items():
        check(is_number(value) and value > 0, argument, value, "a positive number")


def check_range(argument: str, value: object, low: float, high: float = math.inf, *, above: bool = False) -> None:
    """Reject what is no finite number from ``low`` to ``high``; with ``above``, ``low`` itself as well."""
    accepted = f"a number above {low:g}" if above else f"a number of at least {low:g}"
    if high < math.inf:
        accepted = f"{accepted} and at most {high:g}"
    number = math.nan
    if not isinstance(value, bool) and isinstance(value, Real):  # numbers of NumPy, too
        number = float(value)
    in_range = math.isfinite(number) and low <= number <= high
    is_excluded_end = above and number == low
    check(in_range and not is_excluded_end, argument, value, accepted)


def check_choice(argument: str, value: object, known: Sequence[object]) -> None:
    """Reject a value that is not among a few."""
    *others, last = [str(choice) for choice in known]
    check(value in known, argument, value, f"{', '.join(others)} or {last}")


def unreadable(where: str, error: PermissionError) -> StorageError:
    """A :class:`StorageError` of a file or folder, ``where``, that may not be read."""
    return StorageError(f"{where} may not be read ({error.strerror or error}); give yourself the right to read it")


def unknown(kind: str, name: object, known: Iterable[str]) -> UnknownNameError:
    """An :class:`UnknownNameError` with near matches first and a dozen names after."""
    names = sorted(known)
    near_matches = get_close_matches(str(name), names, n=3, cutoff=0.5)
    hint = "."
    if near_matches:
        hint = f"; did you mean {' or '.join(near_matches)}?"
    listed = ", ".join(names[:12])
    if len(names) > 12:
        listed += f" and {len(names) - 12} more"
    return UnknownNameError(f"unknown {kind} {name!r}{hint} Known: {listed}")


def check_name(kind: str, name: object, known: Collection[str]) -> None:
    """Refuse a name that is not registered, as :func:`unknown` says it."""
    if not isinstance(name, str) or name not in known:
        raise unknown(kind, name, known)


def import_extra(name: str, extra: str) -> Any:
    """The module ``name``, imported now; where it cannot be, a ``MissingExtraError`` says which extra installs it."""
    try:
        return import_module(name)
    except ImportError as error:
        reason = f"{name} cannot be imported ({error})"
        raise MissingExtraError(f"{reason}; install it with: pip install 'contrastlab[{extra}]'") from error
