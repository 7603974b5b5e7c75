"""The catalogue of bad inputs: every case by name, and the tests that hold the rows a file cannot show."""

from __future__ import annotations

from bad_case import Case
from bad_documents import DOCUMENTS
from bad_files import EXTERNAL, FILES
from bad_found import FOUND
from bad_models import BOMBS, COMPILED, GRAPH, HEADER, NAMES, SHAPES, WEIGHTS
from bad_rules import LAWS

ROWS = range(1, 122)
CASES: dict[str, Case] = {
    **FILES,
    **HEADER,
    **GRAPH,
    **NAMES,
    **SHAPES,
    **BOMBS,
    **WEIGHTS,
    **EXTERNAL,
    **COMPILED,
    **LAWS,
    **FOUND,
    **DOCUMENTS,
}

# row → the test that holds it
ELSEWHERE = {
    16: "tests/frontend/test_bad_files.py::test_a_file_that_changes_while_it_is_read",
    79: "tests/lang/test_formats.py::test_infinities_saturate",
    80: "tests/lang/test_formats.py::test_infinities_saturate",
    93: "tests/cli/test_cli_data.py::test_data_that_do_not_fit",
    94: "tests/data/test_dataset.py::test_hostile_archives_end_in_one_sentence",
    95: "tests/data/test_dataset.py::test_an_archive_larger_than_the_limit_is_not_unpacked",
    96: "tests/cli/test_cli_data.py::test_data_that_do_not_fit",
    97: "tests/data/test_dataset.py::test_values_that_are_not_finite_are_a_warning",
    98: "tests/cli/test_cli_data.py::test_data_that_do_not_fit",
    109: "tests/ila/test_check.py::test_equal_addresses_overlap",
    110: "tests/ila/test_check.py::test_an_update_wider_than_its_state",
    111: "tests/ila/test_trace.py::test_a_wrong_line_is_named",
    112: "tests/ila/test_queues.py::test_missing_token_of_two_queues",
    113: "tests/cli/test_cli_signals.py::test_a_signal_during_saturation",
    114: "tests/cli/test_cli_signals.py::test_a_signal_during_simulation",
    115: "tests/cosim/test_log.py::test_a_killed_command_goes_on_where_it_was",
    116: "tests/cli/test_cli_files.py::test_two_files_are_written_or_none",
    117: "tests/cli/test_cli_files.py::test_a_disk_that_fills_up_while_the_files_are_written",
    118: "tests/fuzz/test_fuzz.py::test_surroundings_change_no_byte",
    119: "tests/cli/test_cli_output.py::test_closed_streams",
    120: "tests/cli/test_cli_plans.py::test_a_file_that_is_no_plan",
}
# row → page and words that state it
STATED = {101: ("SECURITY.md", "**not a sandbox**")}
