"""Sentences on how far simulated GPUs are from real ones."""

import json

from tf_placer.base.quantities import percentage
from tf_placer.cluster.cluster import Cluster
from tf_placer.report.sentences import FIGURES, fidelity_sentence, fidelity_sentences


def test_a_gpu_with_measurements_says_its_factor():
    factor = json.loads(FIGURES.read_text())["p100"]["factor"]
    assert f"typically within {percentage(factor - 1)} of published ones" in fidelity_sentence("p100")
    assert 1.0 < factor < 1.5


def test_a_gpu_that_we_measured_says_so():
    figures = json.loads(FIGURES.read_text())["h100_fp32"]
    assert 0 < figures["own"] < figures["rows"]
    said = fidelity_sentence("h100_fp32")
    assert f"of measured ones ({figures['rows']} steps, {figures['own']} measured by us" in said


def test_a_gpu_without_says_so():
    assert "No published step times of networks on k40" in fidelity_sentence("k40")


def test_one_sentence_for_each_model_and_none_for_live_devices():
    assert len(fidelity_sentences(Cluster.preset("p100x4"))) == 1
    assert fidelity_sentences(Cluster.logical(2)) == []
