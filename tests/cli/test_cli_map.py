"""flexmatch map: texts, documents and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command import flexmatch, refused
from jsonschema import validate

from rewrite_compiler.apps import find_application
from rewrite_compiler.cli.schemas import schema_of

LAYER = "gemm:m=64,n=16,k=32"


@pytest.mark.parametrize("form", ["loops", "union"])
def test_a_mapping_in_every_form(form: str) -> None:
    answer = flexmatch("map", LAYER, "--arch", "edge", "--budget", "2000", "--as", form)
    assert answer.code == 0, answer.err
    assert {"loops": "timeloop   ", "union": "target_cluster: L2"}[form] in answer.out


def test_the_document_keeps_its_schema_and_the_mapping_goes_back_in(tmp_path: Path) -> None:
    first, second, text = tmp_path / "a.json", tmp_path / "b.json", tmp_path / "mapping.yaml"
    for seed in range(2):
        answer = flexmatch("map", LAYER, "--arch", "edge", "--budget", "3000", "--json", (first, second)[seed], "-q")
        assert answer.code == 0, answer.err
    assert first.read_bytes() == second.read_bytes()
    document = json.loads(first.read_text("utf-8"))
    validate(document, schema_of("map"))
    answer = flexmatch("map", LAYER, "--arch", "edge", "--mapping", first, "--json", second, "-q")
    assert answer.code == 0, answer.err
    assert json.loads(second.read_text("utf-8"))["layers"][0]["cost"] == document["layers"][0]["cost"]
    constraints = tmp_path / "constraints.json"
    constraints.write_text(json.dumps({"one_dimension_an_axis": True, "parallel": {"L2": ["m"], "row": ["k"]}}))
    printed = flexmatch(
        "map", LAYER, "--arch", "edge", "--budget", "3000", "--constraints", constraints, "--as", "timeloop", "--json", first
    )
    text.write_text(printed.out)
    assert flexmatch("map", LAYER, "--arch", "edge", "--mapping", text, "--json", second, "-q").code == 0
    costs = [json.loads(path.read_text("utf-8"))["layers"][0]["cost"] for path in (first, second)]
    assert costs[0] == costs[1]


@pytest.mark.parametrize(
    "more", [(), ("--mapper", "exhaustive"), ("--mapper", "genetic"), ("--model", "maestro"), ("--space-only",)], ids=" ".join
)
def test_a_layer_of_one_point(more: tuple[str, ...]) -> None:
    answer = flexmatch("map", "gemm:m=1,n=1,k=1", "--arch", "edge", *more)
    assert (answer.code, answer.err) == (0, "")


def test_layers_of_a_model(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    answer = flexmatch("map", find_application("digits_cnn").model, "--arch", "edge", "--budget", "500", "--json", path)
    assert answer.code == 0, answer.err
    document = json.loads(path.read_text("utf-8"))
    layers, front = document["layers"], document["front"]
    assert len(layers) > 1
    own = [sum(x["repeats"] * x["cost"][key] for x in layers) for key in ("cycles", "energy_fj")]
    for point in front["points"]:
        choices = [x["front"][k] for x, k in zip(layers, point["choices"], strict=True)]
        for key in ("cycles", "energy_fj"):
            assert point[key] == sum(x["repeats"] * choice[key] for x, choice in zip(layers, choices, strict=True))
    least = min(p["cycles"] * p["energy_fj"] for p in front["points"])
    assert least <= own[0] * own[1]
    heads = ("whole model", "each layer's own", "least cycles", "least edp", "least energy")
    table = [line for line in answer.out.splitlines() if line.startswith(heads)]
    assert [line.split("  ")[0] for line in table] == list(heads)
    assert table[3].endswith(" 1")
    named = flexmatch("map", f"{find_application('digits_cnn').model}:{layers[0]['name']}", "--arch", "cloud", "--budget", "500")
    assert named.code == 0, named.err


def test_a_front_of_many_points(tmp_path: Path) -> None:
    page, path = tmp_path / "front.html", tmp_path / "front.json"
    command = ("map", "conv:k=16,c=16,p=14,q=14,r=3,s=3", "--arch", "edge")
    answer = flexmatch(*command, "--budget", "4000", "--front", page, "--json", path, "-q")
    assert answer.code == 0, answer.err
    assert page.read_text("utf-8").count("<circle") >= 1000
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")), indent=8))
    assert path.stat().st_size > 256 * 1024  # what map writes is read back, however many mappings it has
    again = flexmatch(*command, "--mapping", path)
    assert again.code == 0, again.err


def test_a_front_shows_every_layer_of_a_model(tmp_path: Path) -> None:
    page, document = tmp_path / "front.html", tmp_path / "model.json"
    model = find_application("digits_cnn").model
    answer = flexmatch("map", model, "--arch", "edge", "--budget", "400", "--front", page, "--json", document, "-q")
    assert answer.code == 0, answer.err
    names = [layer["name"] for layer in json.loads(document.read_text("utf-8"))["layers"]]
    text = page.read_text("utf-8")
    assert [text.count(f"<h2>{name}</h2>") for name in names] == [1, 1, 1]
    drawings = text.split("<h2>")[1:]
    assert all(drawing.count('class="f"') >= 1 for drawing in drawings)


def test_what_a_model_of_several_layers_has_no_form_for_is_refused(tmp_path: Path) -> None:
    model, mapping = find_application("digits_cnn").model, tmp_path / "m.json"
    said = f"error[F203]: --as is for one layer, and {model} has 3\n  help: name one: {model}:conv_0"
    refused(flexmatch("map", model, "--arch", "edge", "--as", "union"), 2, said)
    refused(flexmatch("map", model, "--arch", "edge", "--mapping", mapping), 2, said.replace("--as", "--mapping"))


def test_a_front_without_energies_is_refused_before_the_search(tmp_path: Path) -> None:
    arch = tmp_path / "bare.json"
    levels = [{"name": "DRAM"}, {"name": "L1", "capacity": 512, "children": 4, "axis": "X"}]
    arch.write_text(json.dumps({"name": "bare", "clock_hertz": 10**9, "levels": levels}))
    words = ("map", LAYER, "--arch", arch, "--objective", "cycles", "--budget", "400")
    said = "error[F233]: --front shows cycles against energy: mac2 has no energy in bare (gemm)"
    refused(flexmatch(*words, "--front", tmp_path / "f.html"), 3, f"{said}\n  help: give the architecture energies, or leave --front out")
    answer = flexmatch(*words)
    assert (answer.code, "no energy" in answer.out) == (0, True)


def test_agreement_is_claimed_of_two_opinions_only(tmp_path: Path) -> None:
    alone = flexmatch("map", "conv:k=8,c=8,p=8,q=8,r=3,s=3,group=8,dilation=2", "--arch", "edge", "--model", "all", "--budget", "300")
    assert alone.out.endswith("there is no second opinion to compare with\n")
    assert "count the same" not in alone.out
    both = flexmatch("map", LAYER, "--arch", "edge", "--model", "all", "--budget", "300")
    assert "no second opinion" not in both.out
    model = flexmatch("map", find_application("digits_cnn").model, "--arch", "edge", "--model", "all", "--budget", "300")
    assert model.out.splitlines()[0].split()[:5] == ["layer", "times", "cycles", "by", "maestro"]


def test_counters_that_timeloop_prints_otherwise_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    words = ("map", "conv:k=8,c=8,p=8,q=8,r=3,s=3,stride=2", "--arch", "edge", "--model", "all", "--budget", "300", "--json", path)
    answer = flexmatch(*words)
    sentence = "Timeloop v2.0 itself may print other reads and fills of x: a step of p is 2 elements, and it counts no set differences"
    assert json.loads(path.read_text("utf-8"))["layers"][0]["notes"] == [sentence]
    assert sentence in " ".join(answer.out.split())


def test_the_bound_says_what_a_better_mapping_could_save(tmp_path: Path) -> None:
    """A gap of g: what the best mapping costs is not below 1 - g of this one's, so g of it may be saved at most."""
    path = tmp_path / "a.json"
    answer = flexmatch("map", LAYER, "--arch", "edge", "--mapper", "random", "--budget", "5", "--json", path)
    (layer,) = json.loads(path.read_text("utf-8"))["layers"]
    assert 0 < layer["gap"] < 1
    assert layer["bound"] == pytest.approx((1 - layer["gap"]) * layer["value"])
    assert f"bound      no mapping saves more than {100 * layer['gap']:.1f}% of this edp" in answer.out
    best = flexmatch("map", LAYER, "--arch", "edge", "--objective", "cycles", "--budget", "4000")
    assert "bound      no mapping costs less" in best.out


def test_the_space_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "space.json"
    answer = flexmatch("map", LAYER, "--arch", "edge", "--space-only", "--json", path)
    assert answer.code == 0, answer.err
    document = json.loads(path.read_text("utf-8"))
    validate(document, schema_of("space"))
    assert document["layers"][0]["mappings"] > document["layers"][0]["tilings"]


REFUSED = [
    (("gemm:m=64,n=16", "--arch", "edge"), 3, 'The layer "gemm:m=64,n=16" must give k: gemm:m=512,n=64,k=1024'),
    (("gemm:m=64,n=16,k=0", "--arch", "edge"), 3, 'The size k of the layer "gemm:m=64,n=16,k=0" must be a positive whole number, not "0"'),
    (("gem:m=64", "--arch", "edge"), 2, '"gem:m=64" is no layer'),
    ((LAYER, "--arch", "edgy"), 2, 'there is no architecture called "edgy"'),
    ((LAYER, "--arch", "edge", "--budget", "0"), 2, '--budget must be a whole number from 1 on, not "0"'),
    (("einsum:aab,b->a:4", "--arch", "edge"), 3, "Every index of the layer"),
    (
        ("conv:k=8,c=8,p=8,q=8,r=3,s=3,group=8,dilation=2", "--arch", "edge", "--model", "maestro"), 3,
        "maestro does not price depthwise convolution with dilation; timeloop does",
    ),
    (("gemm:m=4294967296,n=4294967296,k=2", "--arch", "edge"), 3, "The iteration space must have fewer than 2^62 points"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "code", "sentence"), REFUSED, ids=[s for *_, s in REFUSED])
def test_what_cannot_be_mapped_is_refused(arguments: tuple[str, ...], code: int, sentence: str) -> None:
    answer = flexmatch("map", *arguments)
    assert answer.code == code
    assert sentence in answer.err


def test_a_bad_mapping_is_refused_with_its_rule(tmp_path: Path) -> None:
    path = tmp_path / "mapping.json"
    ones, sizes = {"m": 1, "n": 1, "k": 1}, {"m": 64, "n": 16, "k": 32}
    levels = [{"cluster": c, "order": [], "temporal": sizes, "spatial": sizes} for c in ("DRAM", "L2", "row")]
    path.write_text(json.dumps([*levels, {"cluster": "L1", "order": ["m", "n", "k"], "temporal": ones, "spatial": ones}]))
    answer = flexmatch("map", LAYER, "--arch", "edge", "--mapping", path)
    assert answer.code == 3
    assert "Tiles at L1 take 3,584 elements, the memory holds 512: cut m, n or k there (rule 3)" in answer.err


def test_a_parameter_of_the_architecture_is_varied(tmp_path: Path) -> None:
    path = tmp_path / "over.json"
    command = ("map", "gemm:m=512,n=64,k=1024", "--arch", "edge", "--budget", "1500", "--over")
    answer = flexmatch(*command, "L2.width=1,8,32", "--json", path)
    assert answer.code == 0, answer.err
    document = json.loads(path.read_text("utf-8"))
    assert (document["schema"], document["parameter"]) == ("flexmatch.variation/1", "L2.width")
    points = document["points"]
    assert [p["at"] for p in points] == ["1", "8", "32"]
    assert points[0]["cycles"] > points[1]["cycles"] == 512 * 64 * 1024 // 256  # one element a cycle from outside is too few
    alone = flexmatch("map", "gemm:m=512,n=64,k=1024", "--arch", "edge", "--budget", "1500", "--json", path, "-q")
    assert alone.code == 0
    (layer,) = json.loads(path.read_text("utf-8"))["layers"]
    (widest,) = points[2]["layers"]
    different = {"limits": None, "clusters": None}
    assert {**widest, **different} == {**layer, **different}  # 32 a cycle is as good as no limit here
    assert [[level.get("width") for level in x["clusters"]["levels"]] for x in (widest, layer)] == [
        [None, 32, 32, None],
        [None, None, 32, None],
    ]
    assert [limit["part"] for limit in widest["limits"]] == ["units", "link below DRAM", "link below L2"]
    assert layer["limits"] == [limit for limit in widest["limits"] if limit["part"] != "link below DRAM"]
    rows = flexmatch(*command, "shape=1x256,2x2").out.splitlines()
    assert rows[0].split() == ["shape", "cycles", "energy", "edp", "/", "least", "units", "at", "most", "saved"]
    assert [row.split()[0] for row in rows[2:]] == ["1x256", "2x2"]
    model = find_application("digits_cnn").model
    assert flexmatch("map", model, "--arch", "edge", "--budget", "300", "--over", "L1.capacity=64,512", "--json", path, "-q").code == 0
    assert all(len(p["layers"]) == 3 and p["energy_fj"] for p in json.loads(path.read_text("utf-8"))["points"])


PARAMETERS = "shape, DRAM.capacity, L2.capacity, L2.children, L2.width, row.children, row.width, L1.capacity, L1.width"
OVER_REFUSED = [
    ("colour", '--over is NAME=VALUE,…, not "colour"', "shape=1x256,16x16 or LEVEL.capacity=1024,2048"),
    ("L3.width=1", 'edge has no parameter "L3.width" for --over', f'did you mean "L1.width"? it has {PARAMETERS}'),
    ("DRAM.width=1", 'edge has no parameter "DRAM.width" for --over', f"it has {PARAMETERS}"),
    ("L2.width=0", 'L2.width is a number of elements a cycle of at most 15 digits from 1 on, not "0"', "as in L2.width=32"),
    ("shape=16", 'A shape is rows x columns of at most 15 digits, as 16x16, not "16"', "rows lie along axis Y, columns along axis X"),
    ("shape=0x4", 'A shape is rows x columns of at most 15 digits, as 16x16, not "0x4"', "rows lie along axis Y, columns along axis X"),
]


@pytest.mark.parametrize(("text", "sentence", "remedy"), OVER_REFUSED, ids=[text for text, *_ in OVER_REFUSED])
def test_what_cannot_be_varied_is_refused(text: str, sentence: str, remedy: str) -> None:
    refused(flexmatch("map", LAYER, "--arch", "edge", "--over", text), 2, f"error[F203]: {sentence}\n  help: {remedy}")


def test_an_array_of_more_units_than_a_word_counts_is_refused() -> None:
    answer = flexmatch("map", LAYER, "--arch", "edge", "--over", "shape=99999999999x9999999999")
    assert (answer.code, answer.err.splitlines()[0]) == (3, "error[F231]: An architecture must have fewer than 2^62 units")


def test_options_without_an_effect_on_a_variation_are_refused() -> None:
    command = ("map", LAYER, "--arch", "edge", "--over", "L2.width=1")
    assert flexmatch(*command, "--space-only").err.startswith("error[F203]: --over is for a search, not for --space-only")
    assert flexmatch(*command, "--as", "union").err.startswith("error[F203]: --as is for --mapping or a search, not for --over")
    refused(
        flexmatch(*command, "--model", "all"), 2,
        "error[F203]: --over compares architectures by one model, not by all\n  help: --model timeloop, or maestro",
    )  # fmt: skip


def test_loops_that_bring_a_tensor_again_are_named(tmp_path: Path) -> None:
    step = dict.fromkeys("mnk", 1)
    mapping = [{"cluster": name, "order": ["n", "m", "k"], "temporal": step, "spatial": step} for name in ("DRAM", "L2")]
    architecture, path, out = (tmp_path / name for name in ("two.toml", "m.json", "o.json"))
    architecture.write_text('name = "two"\nclock_hertz = 1000000000\n[[levels]]\nname = "DRAM"\n[[levels]]\nname = "L2"\n')
    path.write_text(json.dumps(mapping))
    command = ("map", "gemm:m=8,n=4,k=6", "--arch", architecture, "--objective", "cycles", "--mapping", path)
    said = {}
    for tensor in ("a", "b", "y"):
        answer = flexmatch(*command, "--why", f"L2,{tensor}", "--json", out)
        assert answer.code == 0, answer.err
        why = json.loads(out.read_text("utf-8"))["layers"][0]["why"]
        said[tensor] = [(r["dimension"], r["effect"]) for r in why["loops"]]
        counted = 1
        for r in why["loops"]:
            counted *= 1 if r["effect"] == "the same tile" else r["steps"]
        assert why["fills"] == why["tile"] * counted
    assert said == {
        "a": [("k", "another tile"), ("m", "another tile"), ("n", "again")],
        "b": [("k", "another tile"), ("m", "again"), ("n", "another tile")],
        "y": [("k", "the same tile"), ("m", "another tile"), ("n", "another tile")],
    }
    lines = flexmatch(*command, "--why", "L2,a").out.splitlines()
    assert "  n at DRAM, 4 steps: all that comes inside comes again each" in lines
    assert any(line.startswith("what brings elements again: n at DRAM (4 times)") for line in lines)


WHY_REFUSED = [
    ("x", '--why is LEVEL,TENSOR, not "x"', "as in L1,a"),
    ("L3,a", 'edge fills no memory "L3"', 'did you mean "L1"? memories that something fills: L2, L1'),
    ("DRAM,a", 'edge fills no memory "DRAM"', "memories that something fills: L2, L1"),
    ("L1,z", 'The problem has no tensor "z"', "it has a, b, y"),
]


@pytest.mark.parametrize(("text", "sentence", "remedy"), WHY_REFUSED, ids=[text for text, *_ in WHY_REFUSED])
def test_what_has_no_cause_is_refused(text: str, sentence: str, remedy: str) -> None:
    command = ("map", LAYER, "--arch", "edge", "--budget", "200", "--why", text)
    refused(flexmatch(*command), 2, f"error[F203]: {sentence}\n  help: {remedy}")


ONES, SIZES = {"m": 1, "n": 1, "k": 1}, {"m": 64, "n": 16, "k": 32}
BROKEN_LEVELS = [
    ({"order": ["m", "m"]}, "The order at DRAM must have each dimension once, not m twice"),
    ({"bypass": [["a"]]}, "The bypass of DRAM must name tensors (a, b, y), not ['a']"),
    ({"bypass": ["a"]}, "The mapping must have no bypass at DRAM: the outermost memory holds every tensor"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "sentence"), BROKEN_LEVELS, ids=[s for _, s in BROKEN_LEVELS])
def test_a_broken_level_is_refused_with_its_file(change: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    levels = [{"cluster": c, "order": [], "temporal": SIZES, "spatial": SIZES} for c in ("DRAM", "L2", "row")]
    last = {"cluster": "L1", "order": ["m", "n", "k"], "temporal": ONES, "spatial": ONES}
    path.write_text(json.dumps([{**levels[0], **change}, *levels[1:], last]))
    answer = flexmatch("map", LAYER, "--arch", "edge", "--mapping", path)
    assert (answer.code, answer.err.splitlines()[0]) == (3, f"{path}: error[F230]: {sentence}")


BROKEN_FILES = {
    "problem": (
        '{"dimensions": {"m": 4}, "tensors": {"y": [{"k": 1}]}, "output": "y"}', "F230",
        "Tensor y must use a dimension of the problem (m), not 'k'",
    ),
    "constraints": ('{"tiles": {"L9": {"m": 4}}}', "F232", "Constraint tiles names L9: the architecture has DRAM L2 row L1"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BROKEN_FILES)
def test_a_refused_file_is_named(kind: str, tmp_path: Path) -> None:
    text, code, sentence = BROKEN_FILES[kind]
    path = tmp_path / "f.json"
    path.write_text(text)
    words = [path] if kind == "problem" else [LAYER, "--constraints", path]
    answer = flexmatch("map", *words, "--arch", "edge", "--budget", "100")
    assert (answer.code, answer.err.splitlines()[0]) == (3, f"{path}: error[{code}]: {sentence}")


TWICE = {
    "gemm:m=4611686018427387904,n=1,k=1": (
        'The size m of the layer "gemm:m=4611686018427387904,n=1,k=1" must be below 2^62, not 4611686018427387904'
    ),
    "gemm:m=4,m=8,n=1,k=1": 'The layer "gemm:m=4,m=8,n=1,k=1" must give m once, not 4 and 8',
    "einsum:ab,bc->ac:a=4,b=4,c=4,d=5": 'The layer "einsum:ab,bc->ac:a=4,b=4,c=4,d=5" has no index "d": einsum:ab,bc->ac:a=4,b=2,c=8',
    "einsum:ab,bc->ac:a=4,a=5": 'The layer "einsum:ab,bc->ac:a=4,a=5" must give every extent once: einsum:ab,bc->ac:a=4,b=2,c=8',
}


@pytest.mark.parametrize("layer", TWICE)
def test_sizes_are_given_once(layer: str) -> None:
    answer = flexmatch("map", layer, "--arch", "edge")
    assert (answer.code, answer.err.splitlines()[0]) == (3, f"error[F231]: {TWICE[layer]}")


def test_tiles_may_leave_rests(tmp_path: Path) -> None:
    layer = ("map", "gemm:m=13,n=11,k=17", "--arch", "edge", "--budget", "600", "--remainders")
    plain = flexmatch(*layer)
    assert plain.code == 0, plain.err
    assert "Tiles leave rests: reads, fills and updates are of all instances together" in plain.out
    assert "bound      none: what no mapping goes below is known of tiles without rests" in plain.out
    form = flexmatch(*layer, "--as", "union")
    (tmp_path / "rests.txt").write_text(form.out, encoding="utf-8")
    back = flexmatch("map", "gemm:m=13,n=11,k=17", "--arch", "edge", "--mapping", str(tmp_path / "rests.txt"), "--remainders")
    cycles = next(line for line in plain.out.splitlines() if line.startswith("timeloop"))
    assert cycles in back.out.splitlines()
    for option in (("--as", "timeloop"), ("--why", "L2,a"), ("--front", str(tmp_path / "front.html"))):
        refused = flexmatch(*layer, *option)
        assert (refused.code, f"{option[0]} is of tiles without rests" in refused.err) == (2, True), refused.err
