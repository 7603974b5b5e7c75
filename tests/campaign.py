"""What the short run leaves to `python -m pytest --campaign`: seconds each, many of a kind of which it keeps every n-th, and examples."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hypothesis import is_hypothesis_test, settings

SHARE, FEWEST = 3, 10  # of a property the short run takes one example in three, at least ten; each run draws others

# part of a test's id → of the tests that have it, the short run keeps every n-th; 0: none; of several parts the longest counts
KEPT = {
    "acceptance/test_acceptance.py::test_acceptance[01": 0,  # .ci/run and tests/test_wheel.py install
    "acceptance/test_acceptance.py::test_acceptance[03": 0,  # tests/test_docs.py runs the README
    "acceptance/test_acceptance.py::test_acceptance[12": 0,  # tests/report/test_page_browser.py
    "acceptance/test_acceptance.py::test_acceptance[15": 0,  # tests/cli/test_cli_rules.py
    "acceptance/test_acceptance.py::test_acceptance[17": 0,  # tests/test_docs.py runs the page
    "acceptance/test_acceptance.py::test_acceptance[18": 0,  # tests/study/test_attribution.py sweeps over the widths
    "acceptance/test_acceptance.py::test_acceptance[19": 0,  # tests/cosim/test_log.py
    "acceptance/test_acceptance.py::test_acceptance[22": 0,  # tests/cli/test_cli_output.py
    "acceptance/test_acceptance.py::test_acceptance[23": 0,  # tests/test_types.py and tests/test_notebooks.py
    "acceptance/test_acceptance.py::test_acceptance[24": 0,  # tests/test_docs.py and tests/test_site.py
    "acceptance/test_acceptance.py::test_acceptance[25": 0,  # tests/test_wheel.py
    "acceptance/test_experience.py::test_experience[31": 0,  # tests/cli/test_cli_findings.py watches a co-simulation
    "acceptance/test_experience.py::test_experience[32": 0,  # tests/test_docs.py runs the README
    "acceptance/test_experience.py::test_experience[40": 0,  # tests/cli/test_cli_output.py
    "acceptance/test_installation.py::test_the_first_command_works_word_for_word_in_a_fresh_clone": 0,
    "apps/test_codec.py::test_what_an_accelerator_takes_and_loses": 2,
    "apps/test_gallery.py::test_the_linear_layers_of_an_architecture": 3,
    "apps/test_gallery.py::test_what_is_found_in_an_architecture": 8,
    "apps/test_keccak.py::test_operators_on_the_bits_of_words_stay": 3,
    "benchmarks/test_false_variants.py::test_no_variant_is_proved_that_a_wide_draw_refutes": 4,
    "benchmarks/test_hvx_layers.py::test_packets_compute_what_single_instructions_do": 0,  # 5 CPU-seconds
    "benchmarks/test_why_not.py::test_an_operator_that_no_operation_has": 0,  # 6 CPU-seconds
    "cli/test_cli_data.py::test_data_that_do_not_fit": 4,
    "cli/test_cli_documents.py::test_demo_compiles_and_simulates_each_application": 2,  # 2 CPU-seconds each
    "cli/test_cli_explain.py::test_a_name_of_one_node_explains_it": 2,
    "cli/test_cli_explain.py::test_a_name_of_several_nodes_lists_them": 2,
    "cli/test_cli_init.py::test_every_next_command_answers_yes": 0,  # docs/how-to/start-from-a-skeleton.md runs them
    "cli/test_cli_init.py::test_its_own_test_passes_by_itself[accelerator": 0,  # docs/how-to/start-from-a-skeleton.md runs it
    "cli/test_cli_live.py::test_quiet_runs_and_documents_have_no_live_lines": 2,  # 2 CPU-seconds each
    "cli/test_cli_output.py::test_lines_are_at_most_100_columns": 3,
    "cli/test_cli_output.py::test_quiet_prints_nothing_and_json_alone": 3,
    "cli/test_cli_schemas.py::test_a_schema_is_one": 4,
    "cli/test_cli_show.py::test_a_document_that_is_no_report_of_the_plan": 6,
    "cli/test_cli_signals.py::test_a_signal_during_saturation": 2,  # the other signal ends a simulation
    "cli/test_cli_signals.py::test_a_signal_during_simulation[SIGINT": 0,  # it ends a saturation
    "compile/test_coded.py::test_sums_and_limits_are_one_pass_with_the_bits_of_numpy": 4,
    "compile/test_compile.py::test_outputs_keep_their_names": 3,
    "compile/test_compile.py::test_spellings_are_matched_and_counted": 8,
    "compile/test_counterfactual.py::test_what_would_offload_a_node_is_compiled_and_measured": 0,  # the next test has `explain` say it
    "compile/test_exact_references.py::test_a_quantised_model_gets_a_plan_where_products_saturate": 2,
    "compile/test_exported.py::test_a_person_counts_the_same": 8,  # each target once
    "compile/test_fixed_batch.py::test_a_plan_for_another_number_of_samples_equals_its_model": 2,
    "compile/test_misfits.py::test_resources_that_make_no_sense": 4,
    "compile/test_moving_weights.py::test_both_products_of_attention_go_to_the_device_if_asked": 4,  # each accelerator and each form once
    "compile/test_moving_weights.py::test_moving_weights_are_simulated_bit_by_bit": 4,
    "compile/test_one_path.py::test_both_paths_give_the_same_plan": 7,  # each accelerator once, of five applications
    "compile/test_operating.py::test_what_is_out_of_range_is_rescaled_by_a_proved_law": 2,  # 3 CPU-seconds each; a law up and one down
    "compile/test_real_models.py::test_exporters_models": 12,
    "compile/test_real_models.py::test_trained_models": 8,
    "compile/test_unlowered.py::test_formats_of_large_models": 2,  # 3 CPU-seconds each
    "compile/test_validation.py::test_an_edit_of_the_order_is_found": 2,  # 3 CPU-seconds each
    "compile/test_windows.py::test_products_of_windows_give_the_bits_of_copies": 4,
    "compile/test_written_out.py::test_a_target_of_products_takes_its_steps": 4,
    "cosim/test_audit.py::test_engines_give_the_same_bits": 3,  # 3 CPU-seconds each
    "cosim/test_audit.py::test_machine_code_gives_the_bits_of_plain_arrays": 4,  # 3 CPU-seconds each
    "cosim/test_audit.py::test_the_last_batch_runs_the_machine_code_of_the_others": 2,  # 2 CPU-seconds each
    "cosim/test_audit.py::test_what_agreed_in_an_earlier_process_is_not_simulated_again": 4,  # 3 CPU-seconds each
    "cosim/test_cluster.py::test_a_sweep_over_sets_of_accelerators_on_workers_has_the_same_rows": 0,
    "cosim/test_cosimulate.py::test_batch_and_threads_change_nothing": 6,
    "cosim/test_log.py::test_a_killed_command_goes_on_where_it_was": 2,
    "cosim/test_log.py::test_lines_that_no_run_wrote_are_refused": 3,
    "cosim/test_map_metrics.py::test_batches_and_records_give_the_whole": 3,
    "cosim/test_metrics.py::test_the_recorded_accuracy_of_classifiers": 2,
    "cosim/test_resident.py::test_a_result_stays_where_hlscnn_reads_it": 2,  # each revision is judged: 15 CPU-seconds
    "cosim/test_resident.py::test_a_shared_image_stays_on_hlscnn": 4,
    "cosim/test_resident.py::test_weights_stay_in_the_buffer_of_vta": 2,
    "cosim/test_resume_key.py::test_a_run_that_differs_in_one_field_does_not_go_on": 3,
    "cosim/test_variants.py::test_numerics_give_what_a_simulator_gives": 2,
    "cosim/test_variants.py::test_variants_give_what_runs_alone_give": 3,  # each accelerator once
    "egraph/test_encode.py::test_every_operator_has_one_row_and_comes_back": 4,
    "egraph/test_regions.py::test_regions_lose_nothing_against_the_whole": 3,
    "egraph/test_rule_text.py::test_guards_decide_by_shape": 2,
    "emit/test_cut_points.py::test_clocks_of_flexasr_that_multiply_are_proved": 0,  # 15 CPU-seconds; `flexmatch emit check`
    "emit/test_emit_c.py::test_the_program_on_the_device": 6,
    "emit/test_emit_clocks.py::test_a_fault_planted": 4,
    "emit/test_emit_clocks.py::test_zero_padding_of_flexasr_in_icarus": 0,  # 12 CPU-seconds of Icarus
    "emit/test_emit_device.py::test_flexasr_trace": 8,
    "emit/test_emit_device.py::test_hlscnn_trace": 6,
    "emit/test_emit_device.py::test_vta_program": 6,
    "emit/test_emit_host.py::test_a_program_of_host_operators": 4,
    "emit/test_emit_synthesis.py::test_no_latch_and_no_word_with_two_drivers[tutorial]": 0,  # 6 CPU-seconds of Yosys
    "emit/test_emit_trace.py::test_a_constant_part_with_moving_parts": 2,
    "emit/test_emit_trace.py::test_a_trace_replays_on_the_oracle": 2,
    "emit/test_emit_trace.py::test_constant_parts_are_the_same": 2,
    "emit/test_emit_verilog.py::test_a_fault_planted": 4,
    "emit/test_emit_verilog.py::test_a_golden_trace_of_flexasr": 0,  # 12 CPU-seconds: Icarus fills tables of 2^20 words
    "emit/test_emit_verilog.py::test_every_part_of_the_text_is_proved[flexasr]": 0,  # `flexmatch emit check`
    "emit/test_emit_verilog.py::test_every_part_of_the_text_is_proved[vta]": 0,  # `flexmatch emit check`
    "emit/test_emit_verilog.py::test_golden_convolutions_in_icarus": 24,
    "emit/test_emit_verilog.py::test_processing_elements_started_alone": 0,  # 20 CPU-seconds of Icarus
    "emit/test_emit_verilog.py::test_triggers_of_flexasr": 0,  # 70 CPU-seconds of Icarus
    "fit/test_capacities.py": 4,
    "fit/test_mappers.py::test_every_mapper_comes_near_the_optimum_with_a_tenth_of_the_evaluations": 2,
    "fit/test_mappers.py::test_every_mapper_drives_every_model_on_every_kind_of_problem": 4,
    "fit/test_mapping_laws.py::test_no_mapping_goes_below_the_bound_of_its_split": 2,
    "fit/test_mapping_laws.py::test_the_bound_of_a_space_lies_below_its_best_mapping": 3,
    "fit/test_search.py::test_no_tiling_is_cheaper": 3,
    "frontend/test_emit.py::test_real_models_compute_the_same_when_written_again": 4,
    "frontend/test_onnx_cases.py": 0,  # onnx's own node tests: 20 CPU-seconds
    "frontend/test_shared_models.py::test_a_real_model_is_imported": 8,
    "ila/test_agreement.py::test_readings_agree": 4,
    "ila/test_native_models.py::test_flexasr_trace": 6,
    "ila/test_summaries.py::test_a_wrong_polynomial_is_noticed": 2,
    "ila/test_summaries.py::test_every_instruction_is_summarised_or_says_why_not[vta hls]": 0,  # 10 CPU-seconds
    "ila/test_summaries.py::test_every_instruction_is_summarised_or_says_why_not[vta]": 0,  # 6 CPU-seconds
    "ila/test_unwritten.py::test_a_gemm_of_what_was_never_loaded": 3,
    "ila/test_unwritten.py::test_a_store_of_an_unwritten_vector": 3,
    "ila/test_words.py::test_words_are_what_the_oracle_runs": 4,
    "ila_models/test_flexasr.py::test_published_ila": 6,
    "ila_models/test_flexasr.py::test_trace": 6,
    "ila_models/test_flexasr_strict.py::test_an_engine_that_reads_what_nothing_has_written_is_named": 3,
    "ila_models/test_flexasr_strict.py::test_what_is_wrong_is_named_and_otherwise_done": 3,
    "ila_models/test_four_readings.py::test_genesys": 2,  # 6 CPU-seconds each
    "ila_models/test_genesys.py::test_function": 7,  # 2 CPU-seconds each; drawn programs have the others
    "ila_models/test_genesys.py::test_layer": 8,
    "ila_models/test_genesys.py::test_published_add[native": 0,  # 6 CPU-seconds of LLVM; the convolution's program has it
    "ila_models/test_genesys_programs.py::test_a_drawn_program_does_what_the_specification_says": 6,  # 7 CPU-seconds each
    "ila_models/test_given_vectors.py::test_flexasr_trace[flexasr/recorded/repo_lstm_kmeans_4ts": 0,  # 10 CPU-seconds
    "ila_models/test_given_vectors.py::test_flexasr_trace": 4,  # a second each
    "ila_models/test_given_vectors.py::test_vta_program_on_virtual_drams": 6,
    "ila_models/test_hlscnn.py::test_device_order_leaves_what_whole_arrays_leave": 3,  # 2 CPU-seconds each
    "ila_models/test_hlscnn.py::test_strict_simulation_refuses": 3,
    "ila_models/test_hlscnn.py::test_trace": 6,
    "ila_models/test_hlscnn_convolution.py::test_edge": 4,
    "ila_models/test_hlscnn_convolution.py::test_outputs_on_activations": 2,
    "ila_models/test_hlscnn_convolution.py::test_random_convolutions": 4,
    "ila_models/test_vta.py::test_functional_simulator": 4,
    "ila_models/test_vta.py::test_hls_design": 4,
    "ila_models/test_vta.py::test_random_programs": 6,
    "ila_models/test_vta.py::test_strict_simulation_accepts_what_the_functional_simulator_ran": 3,
    "ir/test_rebatch.py::test_any_operator_with_samples_anywhere": 16,
    "lang/test_five_programs.py::test_all_readings_agree": 2,
    "lang/test_formats.py::test_decode_then_encode_is_proved_to_be_the_identity_on_codes": 3,
    "lang/test_formats.py::test_encoding_is_monotone": 3,
    "lang/test_formats.py::test_rounding_a_real": 2,
    "lang/test_intervals.py::test_an_interval_grows_with_its_operands": 3,
    "lang/test_intervals.py::test_every_value_is_inside": 4,
    "lang/test_parallel.py::test_random_nests": 4,
    "lang/test_parse_step.py::test_instructions_of_shipped_models_are_read_back": 2,
    "lang/test_residual.py::test_random_programs[": 6,
    "lowering/test_identities.py::test_long_sums_are_sums_of_blocks": 3,
    "lowering/test_identities.py::test_roundings_of_split_sums_are_those_of_the_whole": 3,
    "lowering/test_identities.py::test_truncated_products_of_all_ranges": 16,
    "lowering/test_identities.py::test_wide_sums_and_accumulators_of_all_ranges": 3,
    "lowering/test_printed_kernels.py::test_lanes_and_instructions": 2,
    "lowering/test_printed_kernels.py::test_shipped_numerics": 6,
    "lowering/test_printed_kernels.py::test_widths_and_roundings": 2,
    "prove/test_attacks.py::test_a_law_that_is_false_somewhere_is_not_proved": 3,
    "prove/test_block_proof.py::test_a_fault_in_a_call_of_a_quantised_model_is_no_proof": 4,
    "prove/test_block_proof.py::test_a_fault_is_no_proof": 3,
    "prove/test_block_proof.py::test_calls_are_proved[conv2d_bias-sizes3": 0,  # 8 CPU-seconds
    "prove/test_block_proof.py::test_calls_are_proved": 3,
    "prove/test_branch_coverage.py::test_every_way_of_a_driver_is_taken_by_a_trial_or_marked[flexasr]": 0,
    "prove/test_branch_coverage.py::test_every_way_of_a_driver_is_taken_by_a_trial_or_marked[genesys]": 0,
    "prove/test_branch_coverage.py::test_every_way_of_a_driver_is_taken_by_a_trial_or_marked[hlscnn]": 0,
    "prove/test_branch_coverage.py::test_every_way_of_a_driver_is_taken_by_a_trial_or_marked[hvx]": 0,  # 50 CPU-seconds
    "prove/test_branch_coverage.py::test_every_way_of_a_driver_is_taken_by_a_trial_or_marked[vta]": 0,  # 60 CPU-seconds
    "prove/test_certificates.py::test_all_of_them_are_what_a_run_without_a_cache_says": 0,  # a share of them is judged
    "prove/test_code_draws.py::test_few_results_saturate": 5,
    "prove/test_driver_classes.py::test_a_fault_beyond_all_drawn_sizes": 3,  # 5 CPU-seconds each
    "prove/test_driver_classes.py::test_a_fault_is_refuted_or_refused[every image of a batch": 0,  # 7 CPU-seconds; two others stay
    "prove/test_driver_classes.py::test_a_fault_is_refuted_or_refused[weights of later bands": 0,  # 12 CPU-seconds; two others stay
    "prove/test_driver_classes.py::test_a_fault_is_refuted_or_refused": 40,  # 8 CPU-minutes
    "prove/test_floating.py::test_other_bits_are_shown_with_operands": 2,
    "prove/test_floating.py::test_the_same_bits_are_shown": 2,
    "prove/test_grades_rounding.py::test_a_law_that_claims_nothing_of_rounding_is_proved": 3,
    "prove/test_grades_rounding.py::test_a_law_that_claims_too_much_of_rounding_is_refused_with_a_sample": 2,
    "prove/test_images.py::test_every_shipped_rule_is_proved_at_all_shapes": 0,  # 30 CPU-seconds; test_certificates.py has each
    "prove/test_integer_laws.py::test_a_law_that_is_false_of_integers_is_refuted_with_them": 3,
    "prove/test_integer_laws.py::test_a_law_that_is_true_of_integers_is_proved": 3,
    "prove/test_keys.py::test_a_module_beside_a_users_target_is_in_its_statement": 2,  # 2 CPU-seconds each
    "prove/test_keys.py::test_an_edit_makes_stale_what_depends_on_it_and_nothing_else": 3,  # 2 CPU-seconds each
    "prove/test_keys.py::test_the_key_of_a_call_holds_every_file_that_judging_it_runs": 0,  # 3 CPU-seconds
    "prove/test_keys.py::test_the_statement_of_an_operation_holds_every_file_of_content_that_runs[genesys": 0,  # 19 CPU-seconds
    "prove/test_keys.py::test_what_a_target_imports_of_another_is_in_its_statement": 3,  # 2 CPU-seconds each
    "prove/test_known_wrong.py::test_a_false_rule_is_refuted[windows-without-dilation": 0,  # 6 CPU-seconds; other false rules stay
    "prove/test_known_wrong.py::test_a_false_rule_is_refuted": 6,
    "prove/test_known_wrong.py::test_a_true_rule_that_claims_too_much_is_refuted": 3,
    "prove/test_laws_beyond.py::test_a_false_law_is_refuted_with_an_instance": 12,  # 25 CPU-seconds
    "prove/test_laws_beyond.py::test_a_true_law_is_proved": 12,  # 25 CPU-seconds
    "prove/test_mappings.py::test_a_wrong_driver_is_refuted_with_codes": 3,
    "prove/test_mappings.py::test_fused_activations_are_proved": 3,
    "prove/test_mutants.py::test_changed_right_sides_are_refuted": 40,
    "prove/test_mutants.py::test_every_guard_is_needed": 20,
    "prove/test_refuter.py::test_a_law_that_holds_of_small_instances_only_is_refuted": 3,
    "prove/test_refuter.py::test_a_true_rule_is_not_refuted": 3,
    "prove/test_refuter.py::test_its_guard_mends_it": 4,
    "prove/test_wrong_devices.py::test_a_wrong_device_is_refuted_by_the_stored_codes": 4,
    "report/test_hostile_names.py::test_no_home_a_narrow_terminal_and_a_locale_without_unicode": 4,
    "rewrite/test_float_guards.py::test_the_e_graph_matches_where_the_guard_holds": 2,
    "rewrite/test_text_form.py::test_every_shipped_rule_is_read_back": 4,
    "rules/test_contraction.py::test_the_laws_are_proved": 5,  # test_certificates.py has each
    "rules/test_emergence.py": 0,  # 45 CPU-seconds
    "rules/test_factors.py::test_an_objective_that_weighs_lowerings_uses_them": 3,
    "rules/test_factors.py::test_what_a_device_takes_is_found_behind_factors_and_heads": 3,
    "rules/test_norms.py::test_a_norm_from_its_parts_is_one_layer_norm": 2,
    "rules/test_recurrences.py::test_a_sequence_may_run_backwards": 2,
    "rules/test_recurrences.py::test_a_spelling_is_one_offload": 6,
    "rules/test_recurrences.py::test_both_ways_are_an_offload_each": 2,
    "rules/test_recurrences.py::test_equal_steps_are_saturated_once": 6,
    "rules/test_recurrences.py::test_steps_may_be_spelt_differently": 2,  # 2 CPU-seconds each
    "rules/test_recurrent_steps.py::test_a_product_of_the_whole_sequence_is_one_of_every_step": 3,
    "rules/test_recurrent_steps.py::test_states_may_keep_the_axis_of_steps": 4,
    "rules/test_shipped.py::test_every_rule_is_proved": 20,  # test_certificates.py has each
    "rules/test_styles.py::test_every_spelling_of_a_linear_layer_is_offloaded": 6,
    "rules/test_styles.py::test_every_spelling_of_a_residual_network_gives_the_same_offloads": 3,
    "sched/test_drivers.py::test_a_mutated_model_is_noticed_or_driven_rightly[outer-acc[i, j] + (bias": 0,  # 50 CPU-seconds
    "sched/test_drivers.py::test_a_mutated_model_is_noticed_or_driven_rightly[outer-select": 0,  # 5 CPU-seconds; scales has one
    "sched/test_drivers.py::test_a_mutated_model_is_noticed_or_driven_rightly[stages-max": 0,  # 4 CPU-seconds; its other limit stays
    "sched/test_drivers.py::test_a_mutated_model_is_noticed_or_driven_rightly": 2,  # of a model one change
    "sched/test_drivers.py::test_generated_drivers_have_certificates[scales": 0,  # 15 CPU-seconds
    "sched/test_drivers.py::test_generated_drivers_have_certificates[stages-dense_bias_relu": 0,  # 8 CPU-seconds
    "sched/test_drivers.py::test_generated_drivers_have_certificates": 3,  # 2 CPU-seconds each
    "sched/test_drivers.py::test_units_of_dense_layers_do_convolutions[systolic": 0,  # 19 CPU-seconds; another accelerator stays
    "sched/test_inner_tiles.py::test_no_other_loops_in_a_command_are_cheaper[stages": 0,  # 5 CPU-seconds; five others stay
    "study/test_attribution.py::test_a_planted_flaw_is_named_first": 3,  # 5 CPU-seconds each
    "study/test_attribution.py::test_of_two_formats_that_do_not_fit_the_one_that_was_moved_is_named": 2,  # 10 CPU-seconds each
    "study/test_attribution.py::test_the_flaw_of_the_8_bit_design_is_found_and_repaired": 0,  # docs/how-to/find-and-fix-a-number-format.md
    "study/test_check_verb.py::test_a_mistake_in_the_target_of_the_tutorial": 3,
    "study/test_check_verb.py::test_the_document_of_a_shipped_target": 0,  # 38 CPU-seconds
    "study/test_check_verb.py::test_what_is_wrong_only_where_a_memory_is_full_is_found": 2,  # 3 CPU-seconds each
    "study/test_check_verb.py::test_what_is_wrong_with_a_target_is_found": 2,
    "study/test_lift.py::test_numerics_are_those_that_were_written_by_hand[systolic-dense]": 0,  # 30 CPU-seconds
    "study/test_lift.py::test_operations_of_a_shipped_accelerator_are_those_that_were_written_by_hand[conv2d": 0,  # 25 CPU-seconds each
    "study/test_lift.py::test_operations_of_a_shipped_accelerator_are_those_that_were_written_by_hand[dense_bias_relu": 0,
    "study/test_lift_configured.py::test_convolutions_are_those_that_were_written_by_hand": 4,  # 4 CPU-seconds each
    "study/test_planted_terms.py::test_a_narrow_accumulator_is_named": 0,  # 5 CPU-seconds
    "study/test_planted_terms.py::test_formats_of_other_samples_are_told_from_flaws": 2,  # 2 CPU-seconds each; the largest and none
    "study/test_planted_terms.py::test_the_line_of_a_planted_flaw_is_named_first": 3,  # `benchmarks/planted_terms.py` has all
    "study/test_style_sets.py::test_a_spelling_changes_no_offload": 10,
    "target/test_user_functions.py::test_a_function_that_is_wrong_is_told_with_its_line": 90,  # each kind's test has one
    "target/test_user_functions.py::test_a_record_with_an_odd_field_is_no_bug": 300,  # 2 CPU-seconds each
    "target/test_user_functions.py::test_an_object_that_fails_when_it_is_asked_is_told_with_its_line": 140,  # 2 CPU-seconds each
    "targets/test_costs.py::test_flexasr_moves_the_words_that_its_cost_counts": 4,
    "targets/test_costs.py::test_hlscnn_moves_the_words_that_its_cost_counts": 4,
    "targets/test_costs.py::test_vta_moves_the_bytes_that_its_cost_counts": 4,
    "targets/test_flexasr_operations.py::test_batches_and_readings_change_nothing": 3,
    "targets/test_flexasr_operations.py::test_error_against_the_meaning": 4,
    "targets/test_flexasr_operations.py::test_every_operation_is_proved[layer_norm]": 0,  # `flexmatch prove --accel flexasr`
    "targets/test_flexasr_operations.py::test_every_operation_is_proved[rnn]": 0,  # `flexmatch prove --accel flexasr`
    "targets/test_flexasr_operations.py::test_model_from_end_to_end": 6,
    "targets/test_genesys_generated.py::test_systolic_operations_have_generated_drivers_with_certificates[conv2d-": 0,  # 7 CPU-seconds
    "targets/test_genesys_generated.py::test_systolic_operations_have_generated_drivers_with_certificates[conv2d_bias_relu": 0,  # 127
    "targets/test_genesys_target.py::test_pools": 2,  # 4 CPU-seconds each; the other has the same tiles
    "targets/test_hlscnn_proof.py::test_driver_is_the_numerics": 6,
    "targets/test_hlscnn_target.py::test_channels_take_as_many_passes_as_fit": 3,
    "targets/test_hlscnn_target.py::test_golden_result": 6,
    "targets/test_hlscnn_target.py::test_largest_number_of_filters_that_fits_runs": 3,
    "targets/test_hlscnn_target.py::test_mapping_gives_its_numerics": 4,
    "targets/test_hlscnn_target.py::test_stream_gives_the_numerics": 6,
    "targets/test_machines.py::test_a_network_stays_as_accurate_on_hvx": 0,  # 8 CPU-seconds
    "targets/test_machines.py::test_a_residual_block_runs_on_hvx": 0,  # 4 CPU-seconds
    "targets/test_machines.py::test_driver_gives_the_numerics": 3,
    "targets/test_machines.py::test_sums_of_codes_are_those_of_integers_on_hvx": 3,  # 2 CPU-seconds each; each type and each form once
    "targets/test_machines.py::test_sums_of_convolutions_of_codes_are_those_of_integers_on_hvx": 3,  # 3 CPU-seconds each
    "targets/test_vta_alu.py::test_every_design_gives_the_numerics": 2,
    "targets/test_vta_alu.py::test_operations_are_proved": 3,
    "targets/test_vta_conv2d.py::test_stream_gives_the_numerics": 3,
    "targets/test_vta_quantised.py::test_a_depthwise_network_with_sums_and_pools_is_on_the_device": 3,
    "targets/test_vta_quantised.py::test_a_quantised_model_gives_the_codes_of_the_host_on_the_device": 2,
    "targets/test_vta_quantised.py::test_the_driver_gives_the_numerics": 3,
    "targets/test_vta_small.py::test_an_operation_is_refused_or_right": 6,
    "targets/test_vta_target.py::test_every_design_is_proved": 3,
    "targets/test_vta_target.py::test_published_counts": 12,
    "targets/test_vta_target.py::test_resnet_on_images": 0,
    "test_container.py::test_the_image_is_built_and_runs": 0,  # downloads the locked packages
    "test_docs.py::test_every_block_does_what_its_page_says[docs/how-to/check-a-target.md]": 0,  # tests/study/test_check_verb.py
    "test_docs.py::test_every_block_does_what_its_page_says[docs/how-to/compare-designs.md]": 0,  # each verb has tests
    "test_docs.py::test_every_block_does_what_its_page_says[docs/how-to/run-on-a-cluster.md]": 0,  # tests/cosim/test_cluster.py
    "test_docs.py::test_every_block_does_what_its_page_says[docs/how-to/verilog.md]": 0,  # tests/emit has smaller texts
}


def in_short_run(ids: list[str]) -> list[bool]:
    """Tell of every test whether the short run has it."""
    seen: dict[str, int] = {}
    found = []
    for name in ids:
        part = max((p for p in KEPT if p in name), key=len, default=None)
        number = 0 if part is None else seen.get(part, 0)
        if part is not None:
            seen[part] = number + 1
        found.append(part is None or (bool(KEPT[part]) and number % KEPT[part] == 0))
    return found


def shorten_properties(tests: Iterable[Any]) -> None:
    """Let each property among test functions have the short run's examples."""
    for test in {t for t in tests if is_hypothesis_test(t)}:
        given = test._hypothesis_internal_use_settings or settings.default
        fewer = min(given.max_examples, max(FEWEST, -(-given.max_examples // SHARE)))
        test._hypothesis_internal_use_settings = settings(given, max_examples=fewer)
