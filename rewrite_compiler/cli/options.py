"""What verbs share: options, parsing whose errors are sentences, and output."""

from __future__ import annotations

import argparse
import itertools
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ..errors import UsageError, did_you_mean
from .applications import application_of, model_file
from .config import FLAG, read_configuration, resolve_setting
from .files import check_outputs, named_files, write_atomically
from .output import document_bytes, print_error, print_json, print_text

if TYPE_CHECKING:
    from ..compile import Options, Plan
    from ..fit.host import HostTable

# what argparse says → what we say
SENTENCES = (
    (r"argument (-\w/)?(--[\w-]+): expected one argument", r"\2 needs a value"),
    (r"argument (-\w/)?(--[\w-]+): ignored explicit argument '(.*)'", r'\2 takes no value, not "\3"'),
    (r"argument (-\w/)?(--[\w-]+): (.*)", r"\2 \3"),
    (r"the following arguments are required: (\S+)(, .*)?", r"\1 is missing"),
    (r"argument [^:]+: (must be .*)", r"the argument \1"),
    (r"unrecognized arguments: (\S+)( .*)?", r'there is no option "\1"'),
)


MAX_HELP_LINES = 40
# options that the short help leaves out first when it is too long
RARE = (
    "trust_unproved", "tier", "engine", "threads", "log", "calibration_method", "attribute", "audit", "batch", "exact",
    "objective", "rules", "seed", "within",
)  # fmt: skip
STEERING = (
    "accel", "objective", "host_costs", "exact", "only", "without", "on", "rules", "trust_unproved", "shape", "limits",
)  # fmt: skip
DESCRIBE = "\0describe"  # what no command line can hold


class ParserRequest(Exception):
    """Signals that the parser of a verb was asked for, not a run, and carries the parser."""

    def __init__(self, parser: Parser) -> None:
        super().__init__(parser.prog)
        self.parser = parser


class Parser(argparse.ArgumentParser):
    """A parser whose errors are ours (one sentence, exit code 2), whose help is short, and whose settings configuration may give."""

    settings: dict[str, argparse.Action]
    extended_actions: list[argparse.Action]
    outputs: dict[str, bool]  # the arguments that say where to write, and whether their value is a file's name as it is
    models: list[str]  # the arguments that may name a shipped application
    data: argparse.Action | None  # the samples that a verb needs, unless the application brings them

    def __init__(self, **options: Any) -> None:
        self.settings, self.extended_actions, self.outputs, self.models, self.data = {}, [], {}, [], None
        super().__init__(**options, add_help=False)
        self.add_argument("-h", "--help", action="help", help="list the options that are used most, and leave")
        self.add_argument("--help-all", action=_AllHelp, nargs=0, help="list every option, and leave")

    def add_setting(self, *names: str, is_extended: bool = False, **options: Any) -> None:
        """Add an option that configuration may set, too, listed by --help or by --help-all only."""
        action = self.add_argument(*names, **options)
        self.settings[action.dest] = action
        if is_extended:
            self.extended_actions.append(action)

    def add_output(self, *names: str, is_file: bool = True, **options: Any) -> None:
        """Add an option that says where to write: a file, or without `is_file` a stem or folder of files."""
        self.outputs[self.add_argument(*names, **options).dest] = is_file

    def add_model(self, name: str, **options: Any) -> None:
        """Add an argument that names a model: its file, or a shipped application."""
        help_text = "its file, or an application of `flexmatch list` by name"
        self.models.append(self.add_argument(name, **{"help": help_text, **options}).dest)

    def add_data(self, **options: Any) -> None:
        """Add the samples that a verb needs; a shipped application brings its own."""
        self.data = self.add_argument("--data", **options)

    def parse_with_settings(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Return the arguments, options without a flag as configuration says; `origins` has where settings are from, `given` what is typed.

        Raises:
            ParserRequest: the parser was asked for, not a run.
            UsageError: an argument is unknown, missing or of a wrong value (F203).
        """
        if list(arguments) == [DESCRIBE]:
            raise ParserRequest(self)
        self._check_names(arguments)
        defaults = {key: action.default for key, action in self.settings.items()}
        for key, action in self.settings.items():
            action.default = [] if isinstance(defaults[key], list) else argparse.SUPPRESS
        values = vars(self.parse_args(arguments))
        flagged = {key: value for key, value in values.items() if key not in defaults or value != []}
        file = read_configuration(Path.cwd())
        if file.warning:
            print_error(file.warning)
        settings = {k: resolve_setting(a, flagged, os.environ, file, defaults[k]) for k, a in self.settings.items()}
        origins = {key: setting.origin for key, setting in settings.items()}
        values |= {key: setting.value for key, setting in settings.items()}
        return argparse.Namespace(**values, origins=origins, given=self._given(arguments))

    def _given(self, arguments: Sequence[str]) -> Mapping[str, str]:
        """Return the options that were typed: the argument's name to the option's."""
        words = [w if w.startswith("--") else w[:2] for w in itertools.takewhile(lambda w: w != "--", arguments) if w.startswith("-")]
        actions = [self._option_string_actions.get(w.partition("=")[0]) for w in words]
        return {a.dest: a.option_strings[-1] for a in actions if a is not None}

    def _check_names(self, arguments: Sequence[str]) -> None:
        """Refuse an option that there is not, before anything that is missing."""
        for word in itertools.takewhile(lambda w: w != "--", arguments):
            name = word.partition("=")[0]
            if name.startswith("--") and name not in self._option_string_actions:
                self.error(f"unrecognized arguments: {name}")

    def error(self, message: str) -> NoReturn:
        """Raise argparse's message as a sentence of ours instead of printing usage.

        Raises:
            UsageError: always (F203).
        """
        for pattern, sentence in SENTENCES:
            match = re.fullmatch(pattern, message, re.DOTALL)
            if match:
                raise UsageError("F203", self._sentence(match.expand(sentence)), help=self._remedy(message))
        raise UsageError("F203", message, help=self._remedy(message))

    def _sentence(self, text: str) -> str:
        name = text.removeprefix('there is no option "')
        return text if name == text or name.startswith("-") else f'"{name[:-1]}" is one argument too many'

    def _remedy(self, message: str) -> str:
        """Return what the argument in question is for; of an unknown option its nearest neighbour; else how the command is written."""
        unknown = re.match(r"unrecognized arguments: (--[^\s=]*)", message)
        if unknown:
            guess = did_you_mean(unknown[1], [*self._option_string_actions, "--version"])
            return guess or f"{self.prog} --help lists the options"
        match = re.match(r"argument (?:-\w/)?(--[\w-]+): |the following arguments are required: ([^\s,]+)", message)
        return (match and self.purpose((match[1] or match[2],))) or f"write {self._usage()}"

    def purpose(self, names: Collection[str]) -> str:
        """Return how the first argument that has one of these names is typed, and what for: `--samples N: use N …`; "" where none has."""
        for action in self._actions:
            if {*action.option_strings, action.metavar or action.dest} & {*names} and action.help not in (None, argparse.SUPPRESS):
                return f"{self._form(action)}: {action.help}".replace("%%", "%")
        return ""

    @staticmethod
    def _form(action: argparse.Action) -> str:
        """Return an argument as it is typed: --samples N."""
        return " ".join(map(str, filter(None, [*action.option_strings[-1:], action.metavar])))

    def _usage(self) -> str:
        """Return the command with the arguments that it needs."""
        needed = [self._form(a) for a in self.all_options() if a.required or a is self.data]
        optional = {"?": "[{}]", "*": "[{} …]", "+": "{} …"}
        words = [(optional.get(str(a.nargs), "{}"), str(a.metavar or a.dest)) for a in self._get_positional_actions()]
        return " ".join([self.prog, *(form.format(word) for form, word in words), *needed, "[OPTION …]"])

    def print_help(self, file: Any = None) -> None:
        """Print the help in what the terminal can show, at most MOST_HELP lines of it where leaving out rare options can do that."""
        rare = [a for dest in RARE for a in self.all_options() if a.dest == dest and a not in self.extended_actions]
        hidden_actions = list(self.extended_actions)
        text = self._help_without(hidden_actions)
        while len(text.splitlines()) > MAX_HELP_LINES - 2 and rare:
            hidden_actions.append(rare.pop(0))
            text = self._help_without(hidden_actions)
        print_text(text + (f"\n\n--help-all lists {len(hidden_actions)} more options" if hidden_actions else ""))

    def _help_without(self, hidden_actions: Sequence[argparse.Action]) -> str:
        words = [action.help for action in hidden_actions]
        for action in hidden_actions:
            action.help = argparse.SUPPRESS
        text = self.full_help()
        for action, text_before in zip(hidden_actions, words, strict=True):
            action.help = text_before
        return text

    def all_options(self) -> list[argparse.Action]:
        """Return the options of a verb."""
        return [action for action in self._actions if action.option_strings]

    def option_names(self) -> list[str]:
        """Return the options of a verb as they are typed."""
        return [name for action in self.all_options() for name in action.option_strings]

    def full_help(self) -> str:
        """Return the help with every option."""
        self.usage = self._usage().replace("%", "%%")
        return self.format_help().rstrip()


class _AllHelp(argparse.Action):
    """Print the help with every option and leave."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        assert isinstance(parser, Parser)
        print_text(parser.full_help())
        parser.exit()


def parser(verb: str, about: str) -> Parser:
    """Return a verb's parser with the options every verb has."""
    verb_parser = Parser(prog=f"flexmatch {verb}", description=about, allow_abbrev=False)
    verb_parser.add_output("--json", metavar="FILE|-", help="write the document there; - is standard output")
    verb_parser.add_setting("-q", "--quiet", action="store_true", help="errors only")
    verb_parser.add_setting("-v", "--verbose", action="store_true", help="more detail")
    verb_parser.add_argument("--debug", action="store_true", help="show a traceback when something fails")
    return verb_parser


def described_parser(run: Callable[[Sequence[str]], int]) -> Parser:
    """Return the parser of a verb, given what runs it, without running it."""
    try:
        run([DESCRIBE])
    except ParserRequest as described:
        return described.parser
    raise AssertionError("a verb reads its arguments without options()")


def parse_arguments(verb_parser: Parser, arguments: Sequence[str]) -> argparse.Namespace:
    """Return the parsed arguments, once every output is known to be writable; `inputs` are the files that the other arguments name.

    Raises:
        UsageError: an argument is refused (F203), an application is none (F101), or an output cannot be written, is an input or
            another output (F100).
    """
    args = verb_parser.parse_with_settings(arguments)
    for name in verb_parser.models:
        value = vars(args)[name]
        vars(args)[name] = [*map(model_file, value)] if isinstance(value, list) else model_file(value)
    if verb_parser.data is not None and args.data is None:
        _take_data(verb_parser, args)
    args.inputs = named_files(value for name, value in vars(args).items() if name not in verb_parser.outputs)
    values = [vars(args)[name] for name, is_file in verb_parser.outputs.items() if is_file]
    args.output_files = [Path(x) for x in values if x not in (None, "-")]
    check_outputs(args.output_files, args.inputs)
    return args


def _take_data(verb_parser: Parser, args: argparse.Namespace) -> None:
    """Take samples, calibration and metric of the shipped application that is run; refuse to run another model without samples."""
    app = application_of(vars(args)[verb_parser.models[0]])
    if app is None:
        verb_parser.error("the following arguments are required: --data")
    args.data, args.metric = str(app.data), args.metric or app.metric
    args.calibrate = args.calibrate or (app.calibration and str(app.calibration))


def check_options_apply(args: argparse.Namespace, subjects: Mapping[str, Collection[str]], subject: str) -> None:
    """Check that every option that was typed has an effect here; options that `subjects` does not list always have one.

    Raises:
        UsageError: an option is for other subjects than this one (F203).
    """
    for name, option in args.given.items():
        if name in subjects and subject not in subjects[name]:
            others = " or ".join(s for s in sorted(subjects[name]) if s != option)
            raise UsageError("F203", f"{option} is for {others}, not for {subject}", help="leave it out: it would change nothing here")


def add_page_option(verb_parser: Parser) -> None:
    """Add the option that asks for a page."""
    verb_parser.add_output("--html", metavar="FILE", help="write the report as one self-contained page, too")


def whole_number(minimum: int) -> Callable[[str], int]:
    """Return an argparse type that reads whole numbers from a minimum on."""

    def read(text: str) -> int:
        if not re.fullmatch(r"-?[0-9]{1,18}", text) or int(text) < minimum:
            raise argparse.ArgumentTypeError(f'must be a whole number from {minimum} on, not "{text}"')
        return int(text)

    return read


def one_of(*choices: str) -> Callable[[str], str]:
    """Return an argparse type that reads one of several words."""

    def read(text: str) -> str:
        if text not in choices:
            raise argparse.ArgumentTypeError(f'must be one of {", ".join(choices)}, not "{text}"')
        return text

    return read


def add_sample_options(verb_parser: Parser) -> None:
    """Add the options of runs on samples: how many, how many at once, and on how many threads."""
    count = whole_number(1)
    batch_help = "samples at once (default: as many as the largest tensor allows, up to 32)"
    verb_parser.add_setting("--samples", type=count, default=0, metavar="N", help="use N evenly spaced samples")
    verb_parser.add_setting("--batch", type=count, default=0, metavar="N", help=batch_help)
    verb_parser.add_setting("--threads", type=count, default=0, metavar="N", help="batches simulated side by side (default: one a core)")


def add_steering_options(verb_parser: Parser) -> None:
    """Add the options that steer compilation: accelerators, objective, rules, pins, shapes, limits."""
    verb_parser.add_setting(
        "--accel", action="append", default=[], metavar="NAME[:key=value,…]", help="accelerator by name or path; repeat for several"
    )
    verb_parser.add_setting(
        "--objective", default="offloads", metavar="NAME", help="what decides: offloads, macs, cycles, bytes, energy or edp"
    )
    verb_parser.add_setting(
        "--host-costs", is_extended=True, default="shipped", metavar="NAME", help="the host's table: shipped, or measured here now"
    )
    verb_parser.add_setting("--exact", action="store_true", help="match the program as written, no rewriting")
    verb_parser.add_setting("--only", is_extended=True, default="", metavar="MAPPING,…", help="use only these operations")
    verb_parser.add_setting("--without", is_extended=True, default="", metavar="MAPPING|RULE,…", help="leave these operations or rules out")
    verb_parser.add_argument(
        "--on", action="append", default=[], metavar="PLACE=NODE,…", help="these nodes must run on this target, or on `host`"
    )
    verb_parser.add_argument(
        "--rules", action="append", default=[], type=Path, metavar="FILE.py", help="use these rules too, once they are proved"
    )
    verb_parser.add_argument(
        "--trust-unproved", action="append", default=[], metavar="NAME", help="use this rule of --rules, or this operation, without a proof"
    )
    verb_parser.add_setting("--shape", action="append", default=[], metavar="NAME=1,3,32,32", help="bind the shape of an input")
    verb_parser.add_setting("--limits", is_extended=True, action="append", default=[], metavar="KEY=VALUE", help="change a limit")


def compile_options(args: argparse.Namespace) -> Options:
    """Return the Options that the steering arguments describe.

    Raises:
        UsageError: a shape (F160), a limit or the host's table (F203) is none.
    """
    from ..compile import Options
    from ..limits import DEFAULT

    return Options(
        exact=args.exact, shapes=shapes_of(args), only=_names(args.only), without=_names(args.without), on=_pins(args.on),
        rules=tuple(args.rules), trusted=tuple(args.trust_unproved),
        limits=DEFAULT.with_overrides(args.limits), objective=args.objective, host=host_table(args.host_costs),
    )  # fmt: skip


def host_table(source: str) -> HostTable:
    """Return the host's cost table: the shipped one, or figures that this machine measures now.

    Raises:
        UsageError: the source is neither `shipped` nor `measured` (F203).
    """
    from ..fit.host import SHIPPED

    if source == "shipped":
        return SHIPPED
    if source != "measured":
        raise UsageError("F203", f'Host costs must be shipped or measured, not "{source}"')
    from ..fit.host_measurement import measured_table

    return measured_table()


def plan_of(args: argparse.Namespace, path: Path) -> Plan:
    """Return the plan in a file, or that of the model in it, compiled as the steering arguments say.

    Raises:
        UsageError: there is no such file (F101), or an option would change a plan that is already made (F203).
    """
    from ..compile import compile_model, is_plan, read_plan
    from ..data import single_samples

    path = Path(model_file(str(path)))
    if not path.exists():
        raise UsageError("F101", "there is no such file", place=str(path), help="give a plan or a model")
    if not is_plan(path):
        plan, plan_options = compile_model(path, accelerators(args), compile_options(args)), compile_options(args)
        shapes = {} if plan_options.shapes else single_samples(plan.source, vars(args).get("data"), plan_options.limits)
        return compile_model(path, accelerators(args), replace(plan_options, shapes=shapes)) if shapes else plan
    for name in ("exact", "only", "without", "shape", "objective", "host_costs"):
        if vars(args)[name] and args.origins[name] == FLAG:
            raise UsageError(
                "F203",
                f"--{name.replace('_', '-')} cannot change a plan that is already made",
                place=str(path),
                help="compile its model again",
            )
    names = accelerators(args) if args.origins["accel"] == FLAG else ()  # configuration cannot change a plan
    return read_plan(path, names, compile_options(args).limits, rules=args.rules)


def accelerators(args: argparse.Namespace) -> list[str]:
    """Return the names in --accel; a comma separates plain names, not those with parameters.

    Raises:
        UsageError: A name between two commas, or before or behind one, is missing.
    """
    names: list[str] = []
    for text in filter(None, args.accel):
        parts = [text] if ":" in text else [part.strip() for part in text.split(",")]
        if not all(parts):
            raise UsageError("F203", f'a name is missing in --accel "{text}"', help=f"write {','.join(filter(None, parts)) or 'one name'}")
        names.extend(parts)
    return names


def python_files(args: argparse.Namespace) -> list[str]:
    """Return the accelerators in --accel that are files."""
    names = (text.partition(":")[0] for text in accelerators(args))
    return [name for name in names if name.endswith(".py")]


def _pins(texts: Sequence[str]) -> tuple[str, ...]:
    """Return one `PLACE=NODE` for each node."""
    pairs = [(place, name) for text in texts for place, _, names in [text.partition("=")] for name in names.split(",")]
    return tuple(f"{place}={name}" for place, name in pairs)


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def shapes_of(args: argparse.Namespace) -> dict[str, tuple[int, ...]]:
    """Return the shapes that --shape binds, by input name.

    Raises:
        UsageError: a text is not NAME=1,3,32,32 with positive sizes (F160).
    """
    return dict(map(_shape, args.shape))


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, _, dims = text.rpartition("=")
    parts = dims.split(",")
    if not name or not all(re.fullmatch(r"0*[1-9][0-9]{0,17}", p, re.ASCII) for p in parts):
        raise UsageError("F160", f'--shape must be NAME=1,3,32,32 with positive sizes, not "{text}"')
    return name, tuple(map(int, parts))


def json_files(document: Any, path: str | None) -> Mapping[Path, bytes]:
    """Return the document as {path: bytes} where --json names a file, else nothing."""
    return {} if path in (None, "-") else {Path(str(path)): document_bytes(document)}


def emit_json(document: Any, path: str | None) -> None:
    """Write a document where --json says: a file, or standard output for `-`."""
    write_atomically(json_files(document, path))
    if path == "-":
        print_json(document)
