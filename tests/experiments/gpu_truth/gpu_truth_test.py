"""The cost model next to published measurements: the kept facts, the fit of its constants, networks as kept."""

import dataclasses

import numpy as np
import pytest

from experiments.gpu_truth import estimates
from experiments.gpu_truth.estimates import Compared, compare, statistics, without_elementwise
from experiments.gpu_truth.networks import Kernels, Network, build_ops, network_of, read_ops, write_ops
from experiments.gpu_truth.rows import MEASURED, TEST_ROWS, read_rows
from tf_placer.cluster.device import device_of_model
from tf_placer.costs import formulas
from tf_placer.costs.formulas import Work, WorkClass


@pytest.fixture(scope="module")
def rows():
    return read_rows()


@pytest.fixture(scope="module")
def tested():
    kept = read_rows(TEST_ROWS)
    compared = compare(kept)
    assert [one.row.id for one in compared] == [row.id for row in kept], "every row has an estimate"
    return compared


def test_estimates_are_near_what_was_measured(tested):
    found = statistics(tested)
    assert found.rows == 123
    assert found.factor <= 1.33
    assert found.within_two >= 0.96
    assert 0.9 < found.median < 1.1
    assert statistics(one for one in tested if one.is_cnn_fp32).factor <= 1.24


@pytest.mark.parametrize(("gpu", "order"), [("Tesla K80 (one of two GPUs)", 0.88), ("Tesla P100", 0.88)])
def test_networks_on_one_gpu_are_in_the_measured_order(tested, gpu, order):
    found = statistics(one for one in tested if one.row.gpu == gpu and one.row.is_network)
    assert found.rows >= 9
    assert found.order >= order


def test_the_constants_are_those_of_the_fit(rows):
    kernels = estimates.kernel_rows(rows)
    fitted, current = estimates.fit_shares(kernels), estimates.current_shares()
    for name in ("compute", "memory", "kind_memory"):
        found, had = getattr(fitted, name), getattr(current, name)
        assert set(found) == set(had)
        wrong = {key.name: (found[key], had[key]) for key in had if abs(found[key] - had[key]) > 0.0051}
        assert wrong == {}, "run experiments.fit_gpu_costs and put what it prints into shares.toml"
    for model, share in estimates.streaming_shares(kernels).items():
        assert formulas.GPU_MODELS[model].streaming == pytest.approx(share, abs=0.0051)
    kepler = np.mean(list(estimates.kepler_compute(rows).values()))
    assert kepler == pytest.approx(formulas.GPU_MODELS["k40"].compute, abs=0.0051)


def test_the_fit_finds_the_shares_that_times_were_made_of(rows):
    kernels = [one for one in estimates.kernel_rows(rows) if one.row.source == "deepbench"]
    made_of = dataclasses.replace(
        estimates.current_shares(),
        compute={**estimates.current_shares().compute, WorkClass.PRODUCT_WIDE: 0.3},
    )
    made = [
        dataclasses.replace(one, row=dataclasses.replace(one.row, measured_s=float(seconds)))
        for one, seconds in zip(kernels, made_of.seconds(kernels), strict=True)
    ]
    assert estimates.fit_shares(made).compute[WorkClass.PRODUCT_WIDE] == pytest.approx(0.3, abs=0.01)


def test_every_row_of_a_network_has_its_ops(rows):
    assert set(read_ops()) == {network_of(row) for row in rows if row.is_network}


@pytest.mark.slow
def test_kept_ops_are_those_of_the_graph():
    network = Network("bert_base", "fwd", 1, 128)
    assert build_ops(network) == read_ops()[network]


def test_kept_ops_add_up_to_the_network(tmp_path):
    network, ops = Network("bert_base", "fwd", 1, 128), read_ops()
    write_ops(ops, tmp_path / "again.json.gz")
    assert read_ops(tmp_path / "again.json.gz") == ops
    # 12 layers of four products of width and two of four widths: 2 x 128 x 12 x 768^2 FLOPs each, and of attention
    # 12 x 2 x 2 x 128^2 x 768; element-wise ops and normalization are less than 1 %.
    products = 12 * (2 * 128 * 768**2 * 12 + 4 * 128**2 * 768)
    kernels = Kernels.of(ops[network])
    assert kernels.flops @ kernels.count == pytest.approx(products, rel=0.01)


def test_a_step_waits_for_the_later_of_gpu_and_host():
    p100 = device_of_model("p100")
    assert estimates.fed_seconds(1.0, 10, dataclasses.replace(p100, dispatch_ns=1_000)) == 1.0
    assert estimates.fed_seconds(0.001, 10, dataclasses.replace(p100, dispatch_ns=1_000_000)) == 0.01


def test_kernels_of_one_sort_add_up_and_xla_leaves_no_elementwise_ones():
    add, product = Work(WorkClass.STREAMING, 1e6, 8e6), Work(WorkClass.PRODUCT_WIDE, 1e10, 4e6, 100)
    device = device_of_model("p100")
    both, one = Kernels.of_works([add, product]), Kernels.of_works([product])
    assert both.seconds_on(device) > one.seconds_on(device) > 0
    assert without_elementwise(both).seconds_on(device) == one.seconds_on(device)


def test_statistics_by_hand(rows):
    row = next(row for row in rows if row.gpu == "Tesla P100")
    # Ratios 1, 2 and 1/4: logarithms 0, ln 2 and -2 ln 2, in absolute terms ln 2 in the mean.
    pairs = ((1.0, 1.0), (4.0, 2.0), (1.0, 4.0))
    found = statistics(Compared(dataclasses.replace(row, measured_s=s), guess_s) for guess_s, s in pairs)
    assert found.factor == pytest.approx(2.0)
    assert (found.rows, found.median, found.order) == (3, 1.0, 0.0)
    assert (found.inside, found.within_two) == (pytest.approx(1 / 3), pytest.approx(2 / 3))


def test_what_was_measured_after_the_fit_is_near_the_estimates():
    rows = read_rows(MEASURED)
    compared = compare(rows)
    assert [one.row.id for one in compared] == [row.id for row in rows], "every row has an estimate"
    assert len({row.id for row in rows}) == len(rows)
    networks = [one for one in compared if one.row.is_network]
    fp32 = statistics(one for one in networks if not one.is_tf32)
    tf32 = statistics(one for one in networks if one.is_tf32)
    assert fp32.rows == tf32.rows == 27
    assert fp32.factor <= 1.15 and fp32.order >= 0.95 and fp32.within_two == 1.0
    assert tf32.factor <= 1.5 and tf32.order >= 0.95
    assert not any(one.row.is_fed_by_framework for one in compared), "no host was waited for"
