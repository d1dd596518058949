"""Whatever Hydra or OmegaConf raise -> one sentence that names the field, what was given and what is allowed."""

import difflib
import re
from typing import Any

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException, ReadonlyConfigError

from geomx.config import MANY
from geomx.errors import Told
from geomx.options import allowed_text, fields_of
from geomx.plugins import choices, unknown


def cause(e: BaseException) -> BaseException:
    """Hydra wraps OmegaConf's exceptions, which know field and value; sometimes only as the context."""
    inner = e.__cause__ or e.__context__
    return inner if isinstance(e, HydraException) and isinstance(inner, OmegaConfBaseException) else e


def is_unknown_option(e: BaseException) -> bool:
    return isinstance(cause(e), ConfigAttributeError | ConfigKeyError)


def sentence(e: BaseException) -> str:
    """Never empty, never more than the user needs."""
    inner, text = cause(e), " ".join(str(e).split()).partition(" See https:")[0]
    if isinstance(e, Told):
        return str(e)
    if isinstance(e, OSError) and e.filename and e.strerror:
        return f"{e.filename}: {e.strerror}"
    if isinstance(e, MissingConfigException) and (found := re.search(r"Could not \w+ '([^']+)/([^'/]+)'", text)):
        return _unknown_choice(*found.groups())
    if isinstance(inner, OmegaConfBaseException):
        return _unknown_option(inner) if is_unknown_option(e) else _bad_value(inner, str(e))
    if text.startswith("Ambiguous value"):
        key = text.split()[4].strip("':").partition("=")[0]
        return f"{key}: several values are a sweep (add -m) or a list (write [a,b])"
    if isinstance(e, OverrideParseException):
        return (
            f"{e.override}: can't be read as NAME=VALUE; quote the whole word for the shell, and a value with ~ or "
            "other signs once more inside: \"name='~/data'\""
        )
    return text if isinstance(e, HydraException) else f"{type(e).__name__}: {text}".removesuffix(": ")


def _unknown_choice(group: str, name: str) -> str:
    if group in MANY and "+" in name:  # only the wrong one of several is named
        name = next((n for n in name.split("+") if n not in choices(group)), name)
    hint = f"; Hydra's own is hydra/launcher={name}" if group == "launcher" else ""
    return unknown(group, name) + hint


def _unknown_option(e: OmegaConfBaseException) -> str:
    where, _, name = (e.full_key or str(e.key)).rpartition(".")
    parent: Any = e.parent_node if e.parent_node is not None else {}
    if where in MANY and name in choices(where):
        return f"{where}.{name}: {name} is not chosen; choose it too ({where}={'+'.join([*parent, name])})"
    known = [str(key) for key in parent if key != "name"]
    if "[" in where:
        return f"{e.full_key}: isn't written out in the list, so it can't be overridden; write it there"
    close = difflib.get_close_matches(name, known, 1)
    hint = f"; did you mean {close[0]}?" if close else f"; there are: {', '.join(known)}" if known else ""
    choice = parent.get("name") if where and "." not in where else None
    return (f"{where}={choice} has no option {name}" if choice else f"{e.full_key or name}: no such option") + hint


def _bad_value(e: OmegaConfBaseException, told: str) -> str:
    line = re.search(r"Error merging override \+*(\S+?)=(.*)", told)  # below a mapping full_key is wrong, this is not
    if isinstance(e, ReadonlyConfigError):
        group = str(e.full_key).rpartition(".")[0]
        return f"{e.full_key}: can't be set; another choice is made with {group}=..."
    key, given = line.groups() if line else (str(e.full_key), getattr(e, "value", "this"))
    name, cls = key.rpartition(".")[2], e.object_type
    known = isinstance(cls, type) and name in fields_of(cls)
    allowed = f"allowed is {allowed_text(cls, name)}" if known and isinstance(cls, type) else str(e).splitlines()[0]
    return f"{key}: {given!r} given, {allowed}"
