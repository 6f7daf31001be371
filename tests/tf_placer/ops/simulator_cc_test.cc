// Tests of the simulator without TensorFlow: exits with 1 and says why when one fails.

#include "simulator.h"

#include <vector>

#include "expect.h"

namespace {

using tf_placer::SimulationPlan;
using tf_placer::SimulatorArrays;

// Op 0 (100 ns, 5 bytes) feeds ops 1 and 2 (50 ns each); two devices, 10 ns and 1 ns a byte between them.
struct Fork {
  std::vector<int32_t> unit_of_op{0, 1, 2}, priority{0, 0, 0}, producer{0}, offset{0, 2}, consumer{1, 2};
  std::vector<int64_t> compute_ns{100, 100, 50, 50, 50, 50}, bytes{5}, resident{1, 2, 4};
  std::vector<int32_t> streams{1, 1}, channel{-1, 0, 1, -1};
  bool newest_first[2] = {false, false};
  std::vector<int64_t> latency_ns{0, 10, 10, 0}, bytes_per_s{0, 1000000000, 1000000000, 0}, none{0, 0, 0, 0};

  SimulatorArrays Arrays() const {
    SimulatorArrays a;
    a.num_ops = a.num_units = 3;
    a.num_tensors = 1;
    a.num_consumers = a.num_devices = 2;
    a.unit_of_op = unit_of_op.data();
    a.compute_ns = compute_ns.data();
    a.priority = priority.data();
    a.tensor_producer = producer.data();
    a.tensor_bytes = bytes.data();
    a.consumer_offset = offset.data();
    a.consumer_op = consumer.data();
    a.resident_bytes = resident.data();
    a.streams = streams.data();
    a.newest_first = newest_first;
    a.join_ns = a.dispatch_ns = a.link_tensor_ns = none.data();
    a.link_latency_ns = latency_ns.data();
    a.link_bytes_per_s = bytes_per_s.data();
    a.channel_of_link = channel.data();
    a.link_send_ns = a.link_send_ps_per_byte = a.link_receive_ns = a.link_receive_ps_per_byte = none.data();
    return a;
  }
};

void TestPlacementsOfAFork() {
  const Fork fork;
  Expect(CheckArrays(fork.Arrays()).empty(), "a correct graph passes the check");
  const SimulationPlan plan(fork.Arrays());
  tf_placer::Workspace workspace(plan);
  const struct {
    std::vector<int32_t> device_of_unit;
    int64_t runtime_ns, peak_0, peak_1;
  } cases[] = {
      {{0, 0, 0}, 200, 12, 0},  // 100 + 50 + 50; 1 + 2 + 4 resident and the 5
      {{0, 1, 1}, 215, 6, 11},  // 100 + (10 + 5) + 50 + 50; 1 + 5 and 2 + 4 + 5
      {{0, 0, 1}, 165, 8, 9},   // op 2 ends at 100 + 15 + 50; 1 + 2 + 5 and 4 + 5
      {{0, 0, 0}, 200, 12, 0},  // again: the workspace remembers nothing
  };
  for (const auto& c : cases) {
    int64_t runtime_ns = -1, peak_bytes[2] = {-1, -1}, start_ns[3], end_ns[3];
    Simulate(plan, c.device_of_unit.data(), nullptr, &workspace, &runtime_ns, peak_bytes, nullptr, nullptr);
    ExpectEqual(runtime_ns, c.runtime_ns, "runtime");
    ExpectEqual(peak_bytes[0], c.peak_0, "peak of device 0");
    ExpectEqual(peak_bytes[1], c.peak_1, "peak of device 1");
    Simulate(plan, c.device_of_unit.data(), nullptr, &workspace, &runtime_ns, peak_bytes, start_ns, end_ns);
    ExpectEqual(runtime_ns, c.runtime_ns, "runtime with schedule");
    ExpectEqual(end_ns[2], c.runtime_ns, "end of op 2, always the last");
    ExpectEqual(start_ns[2], c.runtime_ns - 50, "start of op 2");
  }
}

void TestPlanSharesRows() {
  const SimulationPlan plan((Fork().Arrays()));
  ExpectEqual(plan.num_channels, 2, "channels");
  ExpectEqual(plan.shared.size(), 1, "tensors with several consumers");
  ExpectEqual(plan.max_transfers, 1, "a tensor crosses once to the other device");
  ExpectEqual(plan.ops[1].cost, plan.ops[2].cost, "equal ops share a row of costs");
}

// Op 0 is free; op 1, in its unit, reads its 5 bytes and so does op 2: elsewhere, or in the unit too.
void TestSettledOpsAreLeftOut() {
  Fork fork;
  fork.compute_ns = {0, 0, 50, 50, 50, 50};
  fork.unit_of_op = {0, 0, 1};
  ExpectEqual(SimulationPlan(fork.Arrays()).num_ops, 3, "a tensor leaves the unit");
  fork.unit_of_op = {0, 0, 0};
  ExpectEqual(SimulationPlan(fork.Arrays()).num_ops, 3, "two ops keep the tensor in memory");
  fork.bytes = {0};
  ExpectEqual(SimulationPlan(fork.Arrays()).num_ops, 2, "a tensor without bytes is in nobody's memory");
  fork.bytes = {5};
  fork.compute_ns = {0, 0, 0, 0, 50, 50};
  const SimulationPlan plan(fork.Arrays());
  ExpectEqual(plan.num_ops, 1, "op 1 ends at 0 too, so op 2 alone keeps the tensor");
  tf_placer::Workspace workspace(plan);
  const std::vector<int32_t> device_of_unit{1, 0, 0};
  int64_t runtime_ns = -1, peak_bytes[2] = {-1, -1}, start_ns[3] = {-1, -1, -1}, end_ns[3] = {-1, -1, -1};
  Simulate(plan, device_of_unit.data(), nullptr, &workspace, &runtime_ns, peak_bytes, start_ns, end_ns);
  ExpectEqual(runtime_ns, 50, "runtime of op 2");
  ExpectEqual(peak_bytes[0], 6, "2 + 4 resident of the units without ops");
  ExpectEqual(peak_bytes[1], 6, "1 resident and the 5 until op 2 ends");
  ExpectEqual(end_ns[0], 0, "end of an op that is left out");
  ExpectEqual(end_ns[1], 0, "end of another");
  ExpectEqual(end_ns[2], 50, "end of the op that is left");
}

}  // namespace

int main() {
  TestPlacementsOfAFork();
  TestPlanSharesRows();
  TestSettledOpsAreLeftOut();
  return 0;
}
