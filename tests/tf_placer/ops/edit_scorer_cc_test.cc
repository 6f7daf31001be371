// Tests of what a move's features are and of the network that reads them, without TensorFlow: exits with 1 and says why
// when one fails.

#include "edit_scorer.h"

#include <cmath>
#include <string>
#include <vector>

#include "edit_features.h"
#include "expect.h"
#include "moves.h"
#include "simulation_plan.h"
#include "waits.h"

namespace {

using tf_placer::EditFeatures;
using tf_placer::EditScorer;
using tf_placer::Move;
using tf_placer::SimulationPlan;
using tf_placer::SimulatorArrays;
using tf_placer::Waits;

void ExpectNear(double got, double expected, const std::string& what) {
  Expect(std::abs(got - expected) < 1e-5, what + ": got " + std::to_string(got) + ", expected " + std::to_string(expected));
}

// Ops on two devices, each a unit, of which some read the output of another; links take 20 ns and 1 ns a byte.
struct Graph {
  Graph(std::vector<int64_t> compute, std::vector<int32_t> producers, std::vector<int32_t> readers, int64_t bytes_each)
      : ops(compute.size() / 2), compute_ns(compute), producer(producers), consumer(readers),
        bytes(producers.size(), bytes_each), zeros(ops + 4, 0), priority(ops, 0), newest_first(2, 0) {
    for (int32_t n = 0; n < ops; ++n) unit_of_op.push_back(n);
    for (size_t t = 0; t <= producer.size(); ++t) offset.push_back(t);
  }

  SimulationPlan Plan() const {
    SimulatorArrays a;
    a.num_ops = a.num_units = ops;
    a.num_tensors = a.num_consumers = producer.size();
    a.num_devices = 2;
    a.unit_of_op = unit_of_op.data();
    a.compute_ns = compute_ns.data();
    a.priority = priority.data();
    a.tensor_producer = producer.data();
    a.tensor_bytes = bytes.data();
    a.consumer_offset = offset.data();
    a.consumer_op = consumer.data();
    a.resident_bytes = zeros.data();
    a.streams = streams.data();
    a.newest_first = reinterpret_cast<const bool*>(newest_first.data());
    a.join_ns = a.dispatch_ns = a.link_tensor_ns = zeros.data();
    a.link_latency_ns = latency_ns.data();
    a.link_bytes_per_s = bytes_per_s.data();
    a.channel_of_link = channel.data();
    a.link_send_ns = a.link_send_ps_per_byte = a.link_receive_ns = a.link_receive_ps_per_byte = zeros.data();
    const std::string wrong = CheckArrays(a);
    Expect(wrong.empty(), wrong);
    return SimulationPlan(a);
  }

  const int32_t ops;
  const std::vector<int64_t> compute_ns;
  const std::vector<int32_t> producer, consumer;
  const std::vector<int64_t> bytes, zeros, latency_ns{0, 20, 20, 0}, bytes_per_s{0, 1000000000, 1000000000, 0};
  const std::vector<int32_t> priority, streams{1, 1}, channel{-1, 0, 1, -1};
  const std::vector<char> newest_first;
  std::vector<int32_t> unit_of_op, offset;
};

std::vector<float> FeaturesOf(const Graph& graph, const std::vector<int32_t>& device_of_unit, const Move& move) {
  const SimulationPlan plan = graph.Plan();
  Waits waits(plan);
  waits.Read(device_of_unit.data(), true);
  EditFeatures features(plan);
  features.Read(device_of_unit.data(), waits);
  std::vector<float> found(EditFeatures::kCount), again(EditFeatures::kCount);
  features.Of(move, found.data());
  features.Of(move, again.data());
  Expect(found == again, "one move leaves nothing behind for the next");
  return found;
}

double Squashed(double share, double half) { return share / (std::abs(share) + half); }

// Ops 0 and 1 are read by op 2. Together on device 0 op 0 runs from 0 to 10, op 1 from 10 to 40 and op 2 from 40 to 80:
// all are on the path. Op 1 goes to device 1, where it takes 7 ns; its 50 bytes then take 70, for which op 2 waits.
void TestOneOpLeaves() {
  const Graph graph({10, 10, 30, 7, 40, 40}, {0, 1}, {2, 2}, 50);
  const std::vector<float> found = FeaturesOf(graph, {0, 0, 0}, {{{1, 0, 1}}, true, false});
  std::vector<double> expected = {
      0.1 * std::log(2.0), 0, 0.1 * std::log(2.0),  // units, those that come back, ops
      0, 0.1 * std::log(2.0),                       // messages that are no more, and new ones
      1, 0,                                         // of one kind, not from the path
      0, 1, 0,                                      // op 2 follows at once; device 1 is idle from 10 to 40, 0 is not
      1, 0, 1,                                      // work of source and target and of the busiest: 80, 0, 80 of 80
      7 / (7 + 30 + 0.002 * 80),                    // into 30 ns of idle time
  };
  // Computed there and here, more; of the path there and here; messages no more, new, more; those of the path, and all
  // that the path gets longer: -30 + 7 + 70; what is waited for; the busiest has 50 instead of 80.
  for (const double ns : {30, 7, -23, 30, 7, 0, 70, 70, 0, 70, 47, 0, 70, 70, -30}) {
    expected.push_back(Squashed(ns / 80, 0.05));
  }
  for (const double ns : {-23, 70, 47, 70, -30}) expected.push_back(Squashed(ns / 80, 0.002));
  Expect(expected.size() == found.size(), "as many");
  for (size_t i = 0; i < found.size(); ++i) ExpectNear(found[i], expected[i], "feature " + std::to_string(i));
}

// Op 1 of device 1 and op 0 of device 0 change places. From 0 to 10 op 0 runs and from 0 to 7 op 1, whose bytes arrive at
// 77; op 2 runs to 117. After it the bytes of op 0 cross, which have 67 ns between them and op 2: 3 ns more are waited for.
void TestAnExchange() {
  const Graph graph({10, 10, 30, 7, 40, 40}, {0, 1}, {2, 2}, 50);
  const std::vector<float> found = FeaturesOf(graph, {0, 1, 0}, {{{0, 0, 1}, {1, 1, 0}}, false, true});
  ExpectNear(found[0], 0.1 * std::log(3.0), "two units");
  ExpectNear(found[1], 0.1 * std::log(2.0), "one comes back");
  ExpectNear(found[5], 0, "of any kind");
  ExpectNear(found[6], 1, "from the path");
  // Op 0 has 67 ns before op 2, op 1 has 70: of the step of 117, by what they take.
  ExpectNear(found[7], (67.0 * 10 + 70 * 7) / 17 / 117, "slack");
  ExpectNear(found[19], Squashed(70.0 / 117, 0.05), "no more");
  ExpectNear(found[20], Squashed(70.0 / 117, 0.05), "new");
  ExpectNear(found[21], 0, "as much crosses");
  ExpectNear(found[24], Squashed((30 - 7 - 70) / 117.0, 0.05), "the path: op 1 takes 23 more, its 70 are no more");
  ExpectNear(found[25], Squashed(70.0 / 117, 0.05), "was waited for");
  ExpectNear(found[26], Squashed(3.0 / 117, 0.05), "is waited for");
}

// 300 ops of 1 ns, of which a third is looked at and stands for all.
void TestALargePiece() {
  const Graph graph(std::vector<int64_t>(600, 1), {}, {}, 0);
  Move move{{}, false, false};
  for (int32_t unit = 0; unit < 300; ++unit) move.steps.push_back({unit, 0, 1});
  const std::vector<float> found = FeaturesOf(graph, std::vector<int32_t>(300, 0), move);
  ExpectNear(found[2], 0.1 * std::log(301.0), "ops");
  ExpectNear(found[14], Squashed(1, 0.05), "all of the step");
  ExpectNear(found[28], 0, "the other device is as busy then");
}

// h = relu(2 f0 + 1), g = relu(3 h - 1), score = 0.5 - 2 g.
void TestTheNetwork() {
  constexpr int kFeatures = EditFeatures::kCount, kHidden = EditScorer::kHidden;
  std::vector<float> weights(EditScorer::kWeights, 0.0f);
  weights[0] = 2;
  weights[kFeatures * kHidden] = 1;
  const int second = (kFeatures + 1) * kHidden;
  weights[second] = 3;
  weights[second + kHidden * kHidden] = -1;
  const int last = second + (kHidden + 1) * kHidden;
  weights[last] = -2;
  weights[last + kHidden] = 0.5;
  Expect(last + kHidden + 1 == EditScorer::kWeights, "all weights");
  const EditScorer scorer(weights.data());
  std::vector<float> features(kFeatures, 7.0f);
  features[0] = 0.25;  // h = 1.5, g = 3.5
  ExpectNear(scorer.Score(features.data()), -6.5, "score");
  features[0] = -1;  // h = 0, g = 0
  ExpectNear(scorer.Score(features.data()), 0.5, "score of rectified units");
}

}  // namespace

int main() {
  TestOneOpLeaves();
  TestAnExchange();
  TestALargePiece();
  TestTheNetwork();
}
