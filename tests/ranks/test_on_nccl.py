"""Tests written for ranks over gloo, run on ranks whose groups have NCCL's manners: one cluster for all of them."""

from __future__ import annotations

import pytest

from kit.run.live import LiveRunner
from tests.ranks import test_faults, test_foreign_code, test_link, test_memory, test_record, test_step
from tests.topics.data_parallel.ranks import test_torch_reducer

pytestmark = pytest.mark.timeout(120)

CHOSEN = (
    test_record.test_results_and_operations,
    test_record.test_the_ring_sends_what_theory_says,
    test_record.test_futures_and_asynchronous_operations_end,
    test_record.test_a_world_smaller_than_the_cluster_and_back,
    test_step.test_issuing_does_not_block_so_legal_code_stays_legal,
    test_step.test_a_receive_from_any_source_takes_what_comes,
    test_faults.test_stepped,
    test_faults.test_recorded,
    test_faults.test_an_endless_loop_is_seen_and_can_be_stopped_in_its_tracks,
    test_link.test_a_built_in_collective_takes_its_formula_and_keeps_its_values,
    test_link.test_a_chain_takes_as_long_as_its_messages_together,
    test_link.test_questions_and_futures_are_answered_when_it_has_come,
    test_link.test_a_late_partner_holds_up_nobody_else,
    test_link.test_ddp_trains_the_same_on_slow_links,
    test_foreign_code.test_training_loops_step_to_their_end_and_equal_serial_training,
    test_foreign_code.test_a_pipeline_by_send_and_receive,
    test_memory.test_an_account_changes_no_result,
    test_torch_reducer.test_a_rank_that_waits_in_backward_can_be_left,
    test_torch_reducer.test_a_mismatch_in_backward_is_said,
)
globals().update({function.__name__: function for function in CHOSEN})
slow = test_link.slow


@pytest.fixture
def three(three_on_nccl: LiveRunner) -> LiveRunner:
    return three_on_nccl


@pytest.fixture
def ranks(three_on_nccl: LiveRunner) -> LiveRunner:
    return three_on_nccl
