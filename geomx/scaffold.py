"""`python -m geomx.plugin new`: a distribution from a template. Templates are whole distributions below
geomx/templates/KIND-LANGUAGE, of a plugin that is called yourname."""

import keyword
import re
from pathlib import Path

from geomx import plugins
from geomx.errors import ConfigError

TEMPLATES = Path(__file__).parent / "templates"
GROUPS = {"codec": "compression", "policy": "compression", "transport": "transport", "scheduler": "scheduler",
          "overlay": "scheduler", "placement": "topology", "observer": "tracking", "launcher": "launcher",
          "task": "task", "framework": "framework"}  # fmt: skip
LANGUAGES = ("python", "c", "c++")  # in the order of choice


def languages() -> dict[str, list[str]]:
    """kind -> languages that there are templates in."""
    found = {kind: [lang for lang in LANGUAGES if (TEMPLATES / f"{kind}-{lang}").is_dir()] for kind in GROUPS}
    return {kind: there for kind, there in found.items() if there}


def what(kind: str) -> str:
    """What a kind's template does: the description of its distribution."""
    text = (TEMPLATES / f"{kind}-{languages()[kind][0]}" / "pyproject.toml").read_text()
    found = re.search(r'^description = "GeoMX [^:]*: (.*)"$', text, re.MULTILINE)
    return found[1] if found else ""


def distribution_name(name: str) -> str:
    return f"geomx-{name.replace('_', '-')}"


def write(kind: str, name: str, language: str = "", directory: Path | None = None) -> tuple[Path, list[Path]]:
    """Writes a plugin into a new folder; returns it, and its files. Raises ConfigError with nothing written."""
    template = _template(kind, language)
    _check_name(kind, name, template)
    folder = directory or Path(distribution_name(name))
    if folder.exists():
        raise ConfigError(f"{folder} is there already: give another NAME, or --directory with a folder to make")
    files = sorted(f for f in template.rglob("*") if f.is_file() and "__pycache__" not in f.parts)
    texts = {Path(_named(str(f.relative_to(template)), name)): _named(f.read_text(), name) for f in files}
    try:
        for file, text in texts.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(text)
    except OSError as e:
        raise ConfigError(f"{folder} can't be written: {e.strerror}") from None
    return folder, list(texts)


def _template(kind: str, language: str) -> Path:
    known = languages()
    if kind not in known:
        raise ConfigError(f"{kind!r} is no kind of plugin; there are: {', '.join(known)}")
    if language and language not in known[kind]:
        raise ConfigError(f"a {kind} can't be written in {language!r}; there are: {', '.join(known[kind])}")
    return TEMPLATES / f"{kind}-{language or known[kind][0]}"


def _check_name(kind: str, name: str, template: Path) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,29}", name) or keyword.iskeyword(name):
        raise ConfigError(f"{name!r} given as NAME, allowed are small letters, digits and _, up to 30, a letter first")
    if name in plugins.choices(GROUPS[kind]):
        raise ConfigError(f"{GROUPS[kind]}={name} is installed already; give your plugin another name")
    used = {word for f in template.rglob("*.py") for word in re.findall(r"\w+", f.read_text())}
    if _class_name(name) in used - {"Yourname"}:
        raise ConfigError(f"{name!r} given as NAME: its class would be {_class_name(name)}, a name that its code uses")


def _class_name(name: str) -> str:
    return "".join(piece.capitalize() for piece in name.split("_")) or name


def _wire_id(name: str) -> str:
    """Four letters for the bytes of a codec: the first two and the last two of its name."""
    letters = name.replace("_", "").upper().ljust(4, "0")
    return letters[:2] + letters[-2:]


def _named(text: str, name: str) -> str:
    wire = _wire_id(name)
    for ours, theirs in {
        "geomx-yourname": distribution_name(name),
        "yourname": name,
        "Yourname": _class_name(name),
        "'Y', 'O', 'U', 'R'": ", ".join(f"'{c}'" for c in wire),
        '"YOUR"': f'"{wire}"',
    }.items():
        text = text.replace(ours, theirs)
    return text
