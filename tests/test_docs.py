"""Every block of the documentation runs and says what the page shows; every link leads somewhere."""

from __future__ import annotations

import re
from codeop import compile_command
from pathlib import Path

import pytest
from pages import ROOT, PageError, Session, blocks, can_run, compare, normal, pages, run_once, shell

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
TEST_COMMAND = "python -m venv .venv && .venv/bin/pip install -e '.[test]' && .venv/bin/python -m pytest"


def run_page(path: Path, folder: Path) -> None:
    session = Session(folder)
    for block in blocks(path):
        session.run(block)


@pytest.mark.parametrize("path", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_block_does_what_its_page_says(path: Path) -> None:
    if not can_run(path):
        pytest.skip(f"gcc or iverilog is not installed: the blocks of {path.name} are not run")
    run_once(path)


@pytest.mark.parametrize("path", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_python_block_can_be_typed_into_an_interactive_python(path: Path) -> None:
    """There, an empty line ends what is indented, and nothing else does."""
    typed = [b for b in blocks(path) if b.language == "python" and not b.file and not b.is_skipped]
    assert not [f"{b.place}: {said}" for b in typed if (said := not_typed(b.text))]


def test_a_page_runs_as_it_is_typed(tmp_path: Path) -> None:
    """A directory holds for the commands that follow, and values that an interactive Python shows are on the page."""
    page = tmp_path / "page.md"
    page.write_text(
        "```console\n$ mkdir a && cd a\n$ basename $PWD; cd ..; false || cd b 2> error.txt; ls\na\na\nerror.txt\npage.md\n```\n"
    )
    run_page(page, tmp_path)
    page.write_text("```python\nfor x in (None, 7):\n    x\n```\n")
    with pytest.raises(PageError, match=r"page\.md:1: an interactive Python shows 7, which the page does not; give it a name"):
        run_page(page, tmp_path)


def test_commands_that_need_no_shell_do_what_a_shell_does(tmp_path: Path) -> None:
    """They run in this process: with their exit code where the page asks for it, and in the folder that they go to first."""
    (tmp_path / "a").mkdir()
    for command in ("flexmatch list --jsn 2>&1", "cd a && flexmatch init rule mine", "flexmatch list --accelerators"):
        _, code, terminal = shell(command, tmp_path)
        told, zero, same = shell(f'{command}; echo "exit code $?"', tmp_path)
        last = "exit code 2" if "init" in command else f"exit code {code}"  # there are files by now
        assert (told.splitlines()[-1], zero, same) == (last, 0, terminal), command
    assert (tmp_path / "a" / "mine").is_dir()
    assert shell("cd a && flexmatch list", tmp_path)[2] == str(tmp_path / "a")
    page = tmp_path / "page.md"
    page.write_text('```console\n$ flexmatch list --jsn > /dev/null 2>&1; echo "exit code $?"\nexit code 2\n```\n')
    run_page(page, tmp_path)
    page.write_text('```console\n$ flexmatch list --quiet --json; echo "exit code $?"\n…\nexit code 3\n```\n')
    with pytest.raises(PageError, match="exit code 3"):
        run_page(page, tmp_path)


def not_typed(text: str) -> str:
    """Return the line at which an interactive Python stops taking a text, or nothing."""
    waiting: list[str] = []
    for line in [*text.splitlines(), ""]:
        waiting.append(line)
        try:
            is_whole = compile_command("\n".join(waiting)) is not None
        except SyntaxError as error:
            return f"{error.msg} at {line!r}"
        if not is_whole and not line:
            return f"an empty line after {waiting[-2]!r}"
        waiting = [] if is_whole else waiting
    return ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("for x in y:\n    f(x)\n\nprint(1)", ""),
        ("for x in y:\n    f(x)\nprint(1)", "invalid syntax at 'print(1)'"),
        ("try:\n\n    f()\nexcept E:\n    g()", "an empty line after 'try:'"),
    ],
)
def test_what_an_interactive_python_does_not_take(text: str, said: str) -> None:
    assert not_typed(text) == said


@pytest.mark.parametrize("path", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_the_text_above_a_file_says_its_name(path: Path) -> None:
    lines = path.read_text("utf-8").splitlines()
    above = {b.line: next((line for line in reversed(lines[: b.line - 1]) if line), "") for b in blocks(path)}
    assert not [f"{b.place}: {b.file}" for b in blocks(path) if b.file and f"`{b.file}`" not in above[b.line]]


def anchors(path: Path) -> set[str]:
    """Return the anchors of a page's headings as code hosts make them."""
    headings = re.findall(r"^#+ (.*)$", path.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


@pytest.mark.parametrize("path", [*sorted(ROOT.glob("*.md")), *pages()[1:]], ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_inside_the_project_leads_somewhere(path: Path) -> None:
    assert not dead_links(path)


def dead_links(path: Path) -> list[str]:
    """Return the links of a page that lead nowhere inside the project."""
    dead = []
    for link in LINK.findall(re.sub(r"```.*?```", "", path.read_text("utf-8"), flags=re.DOTALL)):
        file, _, anchor = link.partition("#")
        target = path.parent / file if file else path
        if "://" not in link and not (target.exists() and (not anchor or anchor in anchors(target))):
            dead.append(link)
    return dead


def test_both_guides_give_the_command_that_continuous_integration_runs() -> None:
    for file in ("README.md", "CONTRIBUTING.md", ".ci/run"):
        assert TEST_COMMAND in (ROOT / file).read_text("utf-8"), file


GOOD = """\
# A page

```python file=part/greeting.py
print("hello", 1 + 1)
```
```console
$ python part/greeting.py
hello 2
$ echo "took 12.5 s   in all"; echo middle; echo end
took 3 s in all
…
end
$ echo one \\
>   two
```
```python
n = 20
print(n + 1)
```
```output
21
```
```python
assert n == 20
```
<!-- needs a network -->
```console skip
$ pip install something
```
"""

BAD = {
    "wrong output": ("```console\n$ echo a\nb\n```", r"^page\.md:1: \$ echo a\nthe page shows:\nb\nit said:\na\n$"),
    "failing command": ("```console\n$ false\n```", r"^page\.md:1: \$ false\nexit code 1 without an error that the page shows$"),
    "no command": ("```console\nls\n```", r'^page\.md:1: a console block starts with a "\$ " line$'),
    "unknown language": ("```sh\nls\n```", r'^page\.md:1: language must be one of console, .*, text, not "sh"$'),
    "unknown option": ("```text big\nls\n```", r'^page\.md:1: option must be "skip" or "file=NAME", not "big"$'),
    "skip without reason": (
        "<!-- why -->\nText.\n```sh skip\nls\n```",
        r"^page\.md:3: a skipped block needs its reason in an HTML comment just above$",
    ),
    "open block": ("```text\nls", r"^page\.md:1: the block is never closed$"),
    "other print": ("```python\nprint(1)\n```\n```output\n2\n```", r"^page\.md:4\nthe page shows:\n2\nit said:\n1\n$"),
}


def test_a_good_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "page.md").write_text(GOOD, "utf-8")
    run_page(tmp_path / "page.md", tmp_path)


@pytest.mark.parametrize("name", BAD)
def test_a_page_that_does_not_hold_is_refused(name: str, tmp_path: Path) -> None:
    text, sentence = BAD[name]
    (tmp_path / "page.md").write_text(text, "utf-8")
    with pytest.raises(PageError, match=sentence):
        run_page(tmp_path / "page.md", tmp_path)


def test_a_python_error_names_the_line_of_the_page(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("# Title\n\n```python\nx = 1\nx / 0\n```\n", "utf-8")
    with pytest.raises(ZeroDivisionError) as caught:
        run_page(tmp_path / "page.md", tmp_path)
    assert caught.traceback[-1].lineno + 1 == 5


def test_times_and_spacing_do_not_count() -> None:
    assert normal("matching  done   0.3 s\n") == normal("matching done 12 ms")
    assert normal("12 samples") != normal("13 samples")
    compare("", "a\n…\nz", "a\nb\nc\nz\n")
    compare("", "known: a, …", "known: a, b")
    with pytest.raises(PageError):
        compare("", "a\n…\nz", "a\nb\n")
