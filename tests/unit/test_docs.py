"""What the documentation tells people to type, to set, to open and to trust is there. The site itself is built in
tests/process/test_site.py."""

import ast
import functools
import importlib.util
import os
import re
import subprocess

import doc_pages
import pytest
import seed_page
from conftest import ROOT
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra

from geomx import app, bench, env, plugins, reference, run, scaffold, summary, sweep
from geomx.config import MANY, Config
from geomx.errors import ConfigError, Forbidden
from geomx.launch import accounts
from geomx.launch.ledger import BYTES
from geomx.options import fields_of, plain
from geomx.sentences import sentence
from geomx.spec import ROUND_FIELDS

run.install()
PAGES = doc_pages.PAGES
TABLE = re.compile(r'\[project\.entry-points\."geomx\.plugins"\]\n(.*?)(?:\n\[|\Z)', re.DOTALL)
NEW = {"compression=squash"}  # what a page has its reader write
OF_THE_BUILD = {"GEOMX_BUILD_TESTS"}  # CMake's


@pytest.fixture(scope="module", autouse=True)
def _hydra():
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(plugins.CONF), version_base="1.3"):
        yield
    GlobalHydra.instance().clear()


@pytest.mark.parametrize("page", PAGES)
def test_what_is_to_be_typed_is_accepted(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    for command in doc_pages.commands(doc_pages.read(page)):
        try:
            accept(tuple(doc_pages.words(command)))
        except Exception as e:
            pytest.fail(f"{page}: {command}\n{type(e).__name__}: {e}")


@pytest.mark.parametrize("page", [p for p in PAGES if doc_pages.refusals(doc_pages.read(p))])
def test_what_is_refused_is_refused_by_that_sentence(page):
    for command, told in doc_pages.refusals(doc_pages.read(page)):
        with pytest.raises(Exception) as refused:  # noqa: PT011  whatever Hydra raises
            app.typed(compose("config", doc_pages.words(command)[3:]))
        assert sentence(refused.value) == told


@pytest.mark.parametrize("page", PAGES)
def test_options_are_there(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    strange = offered_by("examples/*/pyproject.toml") | NEW
    for word in doc_pages.overrides(doc_pages.read(page)):
        assert word in strange or composes_with_some_choice(word), f"{page}: {word}"


@pytest.mark.parametrize("page", PAGES)
def test_snippets_compile_paths_and_tests_exist_and_variables_are_known(page):
    text = doc_pages.read(page)
    for block in doc_pages.blocks(text):
        if block.language == "python":
            ast.parse(block.code)
    for path, test in doc_pages.paths(text):
        place = next((p for p in (ROOT / path, (ROOT / page).parent / path) if p.exists()), None)
        assert place, f"{page} names {path}"
        assert not test or f"def {test}(" in place.read_text(), f"{page} names {path}::{test}"
    known = {v.name for v in env.variables()} | OF_THE_BUILD
    assert doc_pages.variables(text) <= known


@pytest.mark.parametrize("page", [p for p in PAGES if not p.startswith("docs/")])  # of docs/ the site's build judges
def test_links_lead_somewhere(page):
    for link in doc_pages.links(doc_pages.read(page)):
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), f"{page} links to {link}"
        assert not anchor or anchor in doc_pages.anchors(target.read_text()), f"{page} links to {link}"


@pytest.mark.parametrize("page", [p for p in PAGES if "<!-- reference:" in doc_pages.read(p)])
def test_the_reference_is_what_the_dataclasses_say(page):
    assert reference.renewed(doc_pages.read(page)) == doc_pages.read(page), f"python -m geomx.reference --write {page}"


@pytest.mark.parametrize(
    ("group", "name"), [(g, n) for g, n in plugins.offers() if (ROOT / "plugins" / n).is_dir() and g != "bench"]
)
def test_a_plugins_own_table_has_its_defaults(group, name):
    """In rows such as "| `adaptive_k`, `k_min` | false, 0.2 | ..."."""
    made = plugins.load(group, name)()
    for names, told in re.findall(
        r"^\| (`[^|]*) \| ([^|]*) \|", doc_pages.read(f"plugins/{name}/README.md"), re.MULTILINE
    ):
        options = re.findall(r"`(\w+)`", names)
        if set(options) <= set(fields_of(made)):
            for option, default in zip(options, told.replace("`", "").split(", "), strict=False):
                shown = str(plain(getattr(made, option))).lower().removesuffix(".0") or "empty"
                assert shown == default, f"{name}: {option}"


def test_the_reference_has_every_choice_of_this_repository():
    told = reference.subjects(doc_pages.read("docs/reference/configuration.md"))
    entries = "\n".join(
        TABLE.search(p.read_text())[1] for p in [ROOT / "pyproject.toml", *ROOT.glob("plugins/*/pyproject.toml")]
    )
    offered = {name.replace(".", "=", 1) for name in re.findall(r'^"([\w.]+)" = ', entries, re.MULTILINE)}
    assert {name for name in offered if not name.startswith("bench=")} | set(reference.PARTS) | {"presets"} == set(told)


def test_what_a_run_leaves_has_every_field():
    told = doc_pages.read("docs/reference/run-directory.md")
    fields = [*summary.empty({}), *BYTES, *ROUND_FIELDS, *accounts.SENT]
    assert [f for f in fields if f"`{f}`" not in told] == []


def test_every_option_and_variable_says_what_it_is():
    for subject in (*reference.PARTS, *(f"{g}={n}" for g, n in plugins.offers() if g not in plugins.FUNCTIONS)):
        for line in reference.block(subject).splitlines():
            assert not line.endswith("|  |"), f"{subject}: {line}"
    assert all(v.meaning for v in env.variables())


def test_a_mistake_in_a_mark_is_a_sentence():
    with pytest.raises(ConfigError, match="reference: 'runs' given, allowed is a choice such as transport=zmq"):
        reference.renewed("<!-- reference: runs -->\n<!-- end of reference -->")


def test_code_on_writing_plugins_runs():
    """What is printed there is whole: each block by itself."""
    text = doc_pages.read("docs/guides/plugins.md")
    for number, block in enumerate(b for b in doc_pages.blocks(text) if "--8<--" not in b.code):
        if block.language == "python":
            exec(compile(block.code, f"block {number}", "exec"), {"__name__": f"block{number}"})
        if block.language == "c":
            checked = ["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c", "-"]
            subprocess.run([*checked, f"-I{ROOT / 'geomx' / 'include'}"], input=block.code, text=True, check=True)


def test_excerpts_are_whole_functions():
    for page in PAGES:
        for path, first, last in re.findall(r'^--8<-- "([^":]+):(\d+):(\d+)"', doc_pages.read(page), re.MULTILINE):
            lines = (ROOT / path).read_text().splitlines()[int(first) - 1 : int(last)]
            assert re.match(r"(static|gx_status|def|class) ", lines[0]), f"{page}: {path} begins with {lines[0]!r}"
            assert lines[-1].rstrip() == "}" or len(lines[-1]) - len(lines[-1].lstrip()) > 0


def test_a_tensors_way_goes_through_functions_that_are_there():
    rows = re.findall(r"^\| \d+ \|[^|]*\| `([^`]+)` \| (`[^|]+`) \|", doc_pages.read("DESIGN.md"), re.MULTILINE)
    assert len(rows) == 11
    for file, functions in rows:
        text = (ROOT / "geomx" / "core" / file).read_text()
        for function in re.findall(r"\w+", functions):
            assert re.search(rf"^\S.*::{function}\(", text, re.MULTILINE), f"{file} has no {function}"


def test_both_readmes_say_the_same():
    """The same commands, links, and in each row of the table the same figures (1 of "1/74.2" is none)."""

    def told(page):
        text = doc_pages.read(page)
        lines = [line.replace(" 1/", " ") for line in text.splitlines() if line.startswith("|")]
        rows = [sorted(re.findall(r"\d[\d,.]*\d|\d", line)) for line in lines]
        links = [link for link in doc_pages.links(text) if not link.startswith("README")]
        return doc_pages.commands(text), rows, links

    assert told("README.md") == told("README.zh.md")


def test_every_variable_program_and_call_of_the_seeds_page_has_its_line():
    page, table = seed_page.PAGE.read_text(encoding="utf-8"), doc_pages.read("docs/seed.md")
    variables = set(re.findall(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b", page))
    programs = set(re.findall(r"examples/\w+\.py|run_\w+\.sh", page))
    calls = set(re.findall(r"kvstore_dist\.(\w+)", page)) | set(re.findall(r"\b(?:trainer|param)\.(\w+)\(", page))
    assert len(variables) >= 11 and len(programs) == 10
    # what MXNet's parameters are read by is no business of the store's
    assert [n for n in sorted(variables | programs | calls - {"data", "grad"}) if n not in table] == []


def offered_by(*projects):
    """GROUP=NAME of each entry point of these distributions, whether they are installed or not."""
    entries = "\n".join(TABLE.search(p.read_text())[1] for where in projects for p in ROOT.glob(where))
    return {name.replace(".", "=", 1) for name in re.findall(r'^"([\w.]+)" = ', entries, re.MULTILINE)}


# --- what a command must be -------------------------------------------------------------------------------------------
@functools.cache
def accept(words):
    """Raises whatever is wrong with a command."""
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), f"no target {words[1]}"
    elif words[0] == "bash":
        assert doc_pages.is_own(words[1]) or (ROOT / words[1]).is_file()
    elif words[:2] == ("pip", "install"):
        own = [w for w in words[2:] if "/" in w and not doc_pages.is_own(w) and w != "./geomx-squash"]
        assert all((ROOT / w / "pyproject.toml").is_file() for w in own)
    else:
        module, given = words[2], list(words[3:])
        assert importlib.util.find_spec(module), f"no module {module}"
        accept_module(module, given)


def accept_module(module, given):
    own = all(doc_pages.is_own(w) for w in given)
    if module in ("geomx.run", "geomx.plan"):
        accept_run(given)
    elif module == "geomx.bench":
        cases = bench.cases_of(bench.find(given[0])) if given and given[0] in bench.names() else ()
        assert set(given) <= {*bench.names(), "--quick", "--list", "--case", *cases}
    elif module == "geomx.reference":
        assert given[:1] == ["--write"] or all(map(reference.block, given))
    elif module == "geomx.exec":
        assert not given or doc_pages.is_own(given[0]) or (ROOT / given[0]).is_file()
    elif module in ("geomx.report", "geomx.timeline"):
        assert given and all(doc_pages.is_own(w) or w in ("--no-mlflow", "--out") for w in given)
    elif module == "geomx.plugin":
        assert own or given[0] == "check" or doc_pages.is_own(given[1]) or given[1] in ("-h", *scaffold.languages())
    elif module == "geomx":
        assert set(given) <= {"--cmake-dir", "--include-dir"}
    else:
        assert own, f"what does {module} take?"


def accept_run(given):
    """As a sweep drops jobs that can't run, so one of a command's jobs must be able to."""
    strange = (offered_by("examples/*/pyproject.toml") | NEW) & set(given)
    overrides = [os.path.expandvars(w) for w in given if not (w.startswith("-") or doc_pages.is_own(w) or w in strange)]
    for choice in strange:
        overrides = [w for w in overrides if not w.startswith(choice.partition("=")[0] + ".")]
    if "--cfg" in given:
        overrides.remove("job")
    points = sweep.grid(overrides) if {"-m", "--multirun"} & set(given) else [overrides]
    refused = []
    for point in points:
        try:
            app.typed(compose("config", point))
            return
        except Forbidden as e:
            refused.append(e)
    raise refused[0]


@functools.cache
def composes_with_some_choice(word):
    """`transport.k=0.5` is an option of one of the transports; `k=0.5` is left to its reader."""
    group, *names = word.partition("=")[0].split(".")
    if group not in fields_of(Config):
        return True
    choices = [[]] if not names or group == "network" else []
    if names and group in MANY:
        choices.append([f"{group}={names[0]}"])
    elif names:
        choices += [
            [f"{g}={n}"] for g, n in plugins.offers() if g == group and names[0] in fields_of(plugins.load(g, n))
        ]
    try:
        for choice in choices or [[]]:
            for point in sweep.grid([*choice, word]):
                compose("config", point)
            return True
    except Exception:
        return False
