"""What the documentation says that can be checked: commands, options, snippets, paths, tests, variables, links.

A page's code is its fenced blocks and its code spans. A command is a line of code that begins with one of the words in
`STARTS`; the rest of a block is output or a program. A word in capitals, or with <, stands for the reader's own.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = [p.relative_to(ROOT).as_posix() for where in ("*.md", "docs/**/*.md", "plugins/*/README.md",
         "examples/*/README.md", "launchers/*.md") for p in sorted(ROOT.glob(where))]  # fmt: skip
STARTS = re.compile(r"(?:[A-Z_0-9]+=\S+ )*(python -m geomx\S*|make [a-z]|bash \S+\.sh|pip install)")
FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
FOLDERS = ("geomx", "plugins", "examples", "launchers", "conf", "docs", "tests", "tools", "scripts")


@dataclass(frozen=True)
class Block:
    language: str
    code: str


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(text: str) -> list[Block]:
    """Fenced code, without the fence's indentation."""
    found = []
    for indent, language, code in FENCE.findall(COMMENT.sub("", text)):
        found.append(Block(language, re.sub(f"^{indent}", "", code, flags=re.MULTILINE)))
    return found


def spans(text: str) -> list[str]:
    """Code inside of lines."""
    return SPAN.findall(FENCE.sub("", COMMENT.sub("", text)))


def commands(text: str) -> list[str]:
    """Each without its comment. Those that are shown to be refused are left out."""
    found = [line for line, told in _typed(text) if not told]
    return [re.split(r"\s+#", line)[0].strip() for line in [*found, *filter(STARTS.match, spans(text))]]


def refusals(text: str) -> list[tuple[str, str]]:
    """(command, sentence) for commands that are followed by the sentence of a refusal."""
    return [(line, told.removeprefix("geomx: ")) for line, told in _typed(text) if told]


def _typed(text: str) -> Iterator[tuple[str, str]]:
    """Commands in blocks, and the next line where that is a refusal."""
    for block in blocks(text):
        if block.language in ("", "sh", "bash", "console"):
            lines = [line.strip().removeprefix("$ ") for line in block.code.replace("\\\n", " ").splitlines()]
            for line, following in zip(lines, [*lines[1:], ""], strict=True):
                if STARTS.match(line):
                    yield line, following if following.startswith("geomx: ") else ""


def words(command: str) -> list[str]:
    """Of a command, without variables that are set before it."""
    found = shlex.split(command)
    while found and re.fullmatch(r"[A-Z_0-9]+=.*", found[0]):
        found = found[1:]
    return found


def is_own(word: str) -> bool:
    """A word that stands for the reader's own: RUN, sweeps/<time>, task.text=FOLDER."""
    return "<" in word or "..." in word or "/xpu/" in word or re.search(r"(^|[=/])[A-Z]{2,}$", word) is not None


def overrides(text: str) -> list[str]:
    """Code spans such as `transport.k=0.5`."""
    return [s for s in spans(text) if re.fullmatch(r"[a-z_]+(\.\w+)*=\S+", s) and not is_own(s)]


def paths(text: str) -> Iterator[tuple[str, str]]:
    """(file or folder of this repository, name of a test in it or "")."""
    for span in spans(text):
        path, _, test = span.partition("::")
        is_path = re.fullmatch(r"[\w.\-]+(/[\w.\-]+)+/?|[\w.\-]+/", path) and path.split("/")[0] in FOLDERS
        if is_path and not is_own(path):
            yield path.replace("geomx/plugin.h", "geomx/include/geomx/plugin.h"), test


def variables(text: str) -> set[str]:
    """Environment variables of this project and of the seed."""
    code = "\n".join([*(b.code for b in blocks(text)), *spans(text)])
    return set(re.findall(r"\b(?:DMLC|ENABLE|DGT|PS|MXNET_KVSTORE|GEOMX|ADAPTIVE_K|MAX_GREED)_\w*[A-Z0-9]\b", code))


def links(text: str) -> list[str]:
    """Targets that lie in this repository."""
    return [t for t in LINK.findall(FENCE.sub("", text)) if not re.match(r"[a-z]+:", t)]


def anchors(text: str) -> set[str]:
    """Of its headings, as both GitHub and the site make them of plain words."""
    heads = re.findall(r"^#+ +(.*)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", head.lower()).strip()) for head in heads}
