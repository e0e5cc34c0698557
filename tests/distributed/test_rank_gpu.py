"""Ranks whose models are on a GPU: equal ranks, the results of CPUs, and frames over NCCL."""

import pytest
import torch

from helpers.gpu_ranks import HOOK, OUTER, check_nccl, check_two_ranks, run_script

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
with_both_scripts = pytest.mark.parametrize("script", [OUTER, HOOK], ids=["outer", "hook"])


@needs_gpu
@with_both_scripts
def test_ranks_on_a_gpu_are_equal_and_agree_with_a_cpu(script):
    check_two_ranks(script)


@needs_gpu
@with_both_scripts
def test_frames_travel_over_nccl_or_beside_it(script):
    check_nccl(script)


@with_both_scripts
def test_scripts_run_on_a_cpu(script):
    (alone,) = run_script(script, "gloo", "cpu", ranks=1, frames="another group")
    assert {result[2] for result in alone.values()} == {"cpu"}
