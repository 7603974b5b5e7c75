"""flexmatch completion: a static completion script for a shell, with verbs, options, accelerators, codes and rule files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import Template

from ...errors import UsageError
from ..error_codes import CODES
from ..options import Parser, described_parser, emit_json, parse_arguments, parser
from ..output import print_unwrapped
from ..schemas import ROWS
from ..verb_table import VERBS
from .init import SKELETONS
from .list import KINDS

SCHEMA = "flexmatch.completion/1"

BASH = Template("""\
# flexmatch completion for bash:  source <(flexmatch completion bash)
_flexmatch() {
    local now=$${COMP_WORDS[COMP_CWORD]} before=$${COMP_WORDS[COMP_CWORD-1]} verb=$${COMP_WORDS[1]} words=
    case $$before in
        --accel) words="$targets" ;;
        --rules) COMPREPLY=($$(compgen -f -X '!*.py' -- "$$now") $$(compgen -d -S / -- "$$now")); return ;;
$values
    esac
    if [ -z "$$words" ]; then
        case $$verb in
$verbs
            *) words="$bare" ;;
        esac
        [ "$$COMP_CWORD" -eq 1 ] && words="$names --help --version"
    fi
    COMPREPLY=($$(compgen -W "$$words" -- "$$now"))
    [[ $$now == -* ]] || COMPREPLY+=($$(compgen -f -- "$$now"))
}
complete -o filenames -F _flexmatch flexmatch
""")

ZSH = Template("""\
#compdef flexmatch
# flexmatch completion for zsh: put this file into a folder of $$fpath as _flexmatch
_flexmatch() {
    case $${words[CURRENT-1]} in
        --accel) compadd $targets; return ;;
        --rules) _files -g '*.py'; return ;;
$values
    esac
    if (( CURRENT == 2 )); then
        compadd $names --help --version
        _files
        return
    fi
    case $${words[2]} in
$verbs
        *) compadd -- $bare ;;
    esac
    _files
}
_flexmatch "$$@"
""")


def run(arguments: Sequence[str]) -> int:
    """Run `flexmatch completion` and return its exit code.

    Raises:
        UsageError: the shell is not one of those there are scripts for (F203).
    """
    verb_parser = parser("completion", "Print a script that completes verbs, options, accelerators and files in a shell.")
    verb_parser.add_argument("shell", metavar="bash|zsh|fish")
    args = parse_arguments(verb_parser, arguments)
    if args.shell not in SCRIPTS:
        raise UsageError("F203", f'the shell must be one of {", ".join(SCRIPTS)}, not "{args.shell}"')
    from ...target import target_names

    flags = {verb: list(_flags(parser_of(verb))) for verb in VERBS}
    script = SCRIPTS[args.shell](flags, target_names()).rstrip()
    emit_json({"schema": SCHEMA, "shell": args.shell, "script": script}, args.json)
    print_unwrapped(args, script)
    return 0


def parser_of(verb: str) -> Parser:
    """Return the parser of a verb, without running it."""
    from ..main import verb_module

    return described_parser(verb_module(verb).run)


def _flags(verb_parser: Parser) -> Sequence[str]:
    return [name for name in verb_parser.option_names() if name.startswith("--")]


def _words(verb: str) -> list[str]:
    """Return what a verb's first argument may be, besides a file."""
    return {"init": list(SKELETONS), "explain": list(CODES), "schema": list(ROWS), "completion": list(SCRIPTS), "list": list(KINDS)}.get(
        verb, []
    )


def _choices() -> Mapping[str, Sequence[str]]:
    """Return the values of options that name them in their help, as in arrays|oracle."""
    choices: dict[str, Sequence[str]] = {}
    for verb in VERBS:
        for action in parser_of(verb).all_options():
            words = action.metavar.split("|") if isinstance(action.metavar, str) else []
            if len(words) > 1 and all(w.islower() and w.isalpha() for w in words):
                choices[action.option_strings[-1]] = words
    return choices


def _bash(flags: Mapping[str, Sequence[str]], targets: Sequence[str]) -> str:
    verbs = "\n".join(f'            {v}) words="{" ".join([*_words(v), *flags[v]])}" ;;' for v in flags)
    values = "\n".join(f'        {option}) words="{" ".join(words)}" ;;' for option, words in _choices().items())
    return BASH.substitute(targets=" ".join(targets), verbs=verbs, values=values, bare=" ".join(flags["compile"]), names=" ".join(flags))


def _zsh(flags: Mapping[str, Sequence[str]], targets: Sequence[str]) -> str:
    verbs = "\n".join(f"        {v}) compadd -- {' '.join([*_words(v), *flags[v]])} ;;" for v in flags)
    values = "\n".join(f"        {option}) compadd {' '.join(words)}; return ;;" for option, words in _choices().items())
    return ZSH.substitute(targets=" ".join(targets), verbs=verbs, values=values, bare=" ".join(flags["compile"]), names=" ".join(flags))


def _fish(flags: Mapping[str, Sequence[str]], targets: Sequence[str]) -> str:
    first = "not __fish_seen_subcommand_from " + " ".join(flags)
    lines = ["# flexmatch completion for fish:  flexmatch completion fish | source"]
    lines += [f"complete -c flexmatch -n '{first}' -a {verb} -d '{_about(verb)}'" for verb in flags]
    choices = {**_choices(), "--accel": targets}
    for verb in flags:
        condition = f"complete -c flexmatch -n '__fish_seen_subcommand_from {verb}'"
        lines += [f"{condition} -a '{' '.join(_words(verb))}'"] if _words(verb) else []
        lines += [f"{condition} -l {name[2:]}{_values(choices.get(name, ()))}" for name in flags[verb]]
    return "\n".join(lines)


def _about(verb: str) -> str:
    """Return what a verb does, inside of fish's single quotes."""
    return VERBS[verb].line.rpartition(": ")[2].replace("\\", "\\\\").replace("'", "\\'")


def _values(words: Sequence[str]) -> str:
    return f" -x -a '{' '.join(words)}'" if words else ""


SCRIPTS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
