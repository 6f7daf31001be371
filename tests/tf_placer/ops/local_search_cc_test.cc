// Tests of local search and of simulations with a limit, without TensorFlow: exits with 1 and says why when one fails.

#include "local_search.h"

#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "expect.h"
#include "placed.h"
#include "simulate_within.h"
#include "simulator.h"
#include "waits.h"

namespace {

using tf_placer::Chain;
using tf_placer::EditFeatures;
using tf_placer::EditScorer;
using tf_placer::kEditColumns;
using tf_placer::kOver;
using tf_placer::MoveArrays;
using tf_placer::Placed;
using tf_placer::RandomBits;
using tf_placer::SimulationPlan;
using tf_placer::SimulatorArrays;
using tf_placer::Wait;
using tf_placer::Waits;
using tf_placer::Workspace;

// A random graph of N ops, one a unit, on D devices, and what moves on it are drawn from.
struct Graph {
  Graph(uint64_t seed, int32_t num_ops, int32_t num_devices) : ops(num_ops), devices(num_devices) {
    RandomBits random(seed);
    const bool uniform = random.Chance(int64_t{1} << 31);
    const bool sends = random.Chance(int64_t{1} << 31);
    offset.push_back(0);
    neighbor_offset.push_back(0);
    work_before.push_back(0);
    for (int32_t n = 0; n < ops; ++n) {
      unit_of_op.push_back(n);
      priority.push_back(uniform ? 0 : random.Below(3));
      resident.push_back(random.Below(9));
      work_before.push_back(work_before.back() + 1 + random.Below(5));
      for (int32_t d = 0; d < devices; ++d) compute_ns.push_back(random.Below(4) * random.Below(50));
      producer.push_back(n);
      bytes.push_back(random.Below(60));
      for (int32_t consumer = n + 1; consumer < ops; ++consumer) {
        if (random.Below(4) > 0) continue;
        consumers.push_back(consumer);
        edges.insert(edges.end(), {n, consumer});
      }
      offset.push_back(consumers.size());
      for (size_t i = 0; i < edges.size(); i += 2) {
        if (edges[i + 1] == n) neighbors.push_back(edges[i]);
      }
      neighbor_offset.push_back(neighbors.size());
    }
    allowed = std::vector<char>(ops * devices, 1);
    for (int32_t n = 0; n < ops; ++n) {  // two ops after each other are copies, some without a part
      part_of_unit.push_back(random.Below(4) > 0 ? n % 2 : -1);
      const int32_t other = n % 2 == 0 ? n + 1 : n - 1;
      copies.insert(copies.end(), {-1, -1});
      copies[2 * n + (n + 1) % 2] = other < ops ? other : -1;
    }
    for (int32_t d = 0; d < devices; ++d) turned.insert(turned.end(), {d, (d + 1) % devices});
    join_ns.assign(devices, 0);
    join_ns[0] = random.Below(20);
    dispatch_ns.assign(devices, 0);
    dispatch_ns[devices - 1] = random.Below(3) * random.Below(60);
    streams.assign(devices, 1);
    streams[0] = 2;
    newest_first.assign(devices, uniform);
    for (int32_t i = 0; i < devices * devices; ++i) {
      channel.push_back(i / devices == i % devices ? -1 : i / devices);  // all that a device sends
      latency_ns.push_back(random.Below(20));
      bytes_per_s.push_back(1000000000);
      send_ns.push_back(sends ? random.Below(9) : 0);
      tensor_ns.push_back(uniform ? random.Below(30) : 0);
      none.push_back(0);
    }
  }

  SimulatorArrays Arrays() const {
    SimulatorArrays a;
    a.num_ops = a.num_units = a.num_tensors = ops;
    a.num_consumers = consumers.size();
    a.num_devices = devices;
    a.unit_of_op = unit_of_op.data();
    a.compute_ns = compute_ns.data();
    a.priority = priority.data();
    a.tensor_producer = producer.data();
    a.tensor_bytes = bytes.data();
    a.consumer_offset = offset.data();
    a.consumer_op = consumers.data();
    a.resident_bytes = resident.data();
    a.streams = streams.data();
    a.newest_first = reinterpret_cast<const bool*>(newest_first.data());
    a.join_ns = join_ns.data();
    a.dispatch_ns = dispatch_ns.data();
    a.link_latency_ns = latency_ns.data();
    a.link_bytes_per_s = bytes_per_s.data();
    a.channel_of_link = channel.data();
    a.link_tensor_ns = tensor_ns.data();
    a.link_send_ns = a.link_receive_ps_per_byte = send_ns.data();
    a.link_send_ps_per_byte = a.link_receive_ns = none.data();
    return a;
  }

  MoveArrays Moves() const {
    MoveArrays m;
    m.num_units = ops;
    m.num_devices = devices;
    m.num_edges = edges.size() / 2;
    m.num_neighbors = neighbors.size();
    m.num_sizes = sizes.size();
    m.edges = edges.data();
    m.neighbor_offset = neighbor_offset.data();
    m.neighbors = neighbors.data();
    m.work_before = work_before.data();
    m.piece_sizes = sizes.data();
    m.allowed = reinterpret_cast<const bool*>(allowed.data());
    m.kind_of_unit = priority.data();
    m.num_parts = 2;
    m.part_of_unit = part_of_unit.data();
    m.copies = copies.data();
    m.turned = turned.data();
    m.copies_chance = m.together_chance = int64_t{1} << 31;
    m.crossing_chance = m.towards_chance = m.swap_chance = m.kind_chance = int64_t{1} << 31;
    return m;
  }

  const int32_t ops, devices;
  std::vector<int32_t> unit_of_op, priority, producer, offset, consumers, streams, channel, edges, neighbor_offset,
      neighbors, sizes{1, 1, 2, 5}, part_of_unit, copies, turned;
  std::vector<int64_t> compute_ns, bytes, resident, join_ns, dispatch_ns, latency_ns, bytes_per_s, send_ns, tensor_ns,
      none, work_before;
  std::vector<char> newest_first, allowed;
};

// With every limit around what the step takes, and every capacity around what a device holds.
void TestALimitOnlyRejects() {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const int32_t devices = 2 + seed % 4;  // 2, 3 and 5 have functions of their own
    const Graph graph(seed, 3 + seed % 20, devices);
    SimulatorArrays arrays = graph.Arrays();
    arrays.allowed = reinterpret_cast<const bool*>(graph.allowed.data());
    ExpectEqual(CheckArrays(arrays).size(), 0, "wrong arrays");
    const SimulationPlan plan(arrays);
    Workspace workspace(plan);
    Placed placed(plan);
    RandomBits random(seed);
    std::vector<int32_t> device_of_unit(graph.ops, 0);
    for (int i = 0; i < 4; ++i) {
      for (int32_t u = 0; u < graph.ops; ++u) {
        const int32_t target = random.Below(devices);
        placed.Move(plan, u, device_of_unit[u], target);
        device_of_unit[u] = target;
      }
      int64_t runtime_ns;
      std::vector<int64_t> peak_bytes(devices), start_ns(graph.ops), end_ns(graph.ops);
      Simulate(plan, device_of_unit.data(), nullptr, &workspace, &runtime_ns, peak_bytes.data(), start_ns.data(),
               end_ns.data());
      const std::string what = "seed " + std::to_string(seed);
      std::vector<int64_t> capacity = peak_bytes;
      for (const bool fits_anywhere : {false, true}) {
        for (int64_t limit_ns : {runtime_ns, runtime_ns + 1, 2 * runtime_ns + 5, kOver}) {
          ExpectEqual(SimulateWithin(plan, placed, limit_ns, capacity.data(), fits_anywhere, false, &workspace), runtime_ns,
                      what + " within the limit");
        }
        for (int64_t limit_ns : {runtime_ns - 1, runtime_ns / 2, runtime_ns / 8}) {
          if (limit_ns >= runtime_ns) continue;
          ExpectEqual(SimulateWithin(plan, placed, limit_ns, capacity.data(), fits_anywhere, false, &workspace), kOver,
                      what + " over the limit");
        }
      }
      for (int32_t d = 0; d < devices; ++d) {
        if (peak_bytes[d] == 0) continue;
        --capacity[d];
        ExpectEqual(SimulateWithin(plan, placed, kOver, capacity.data(), false, false, &workspace), kOver, what + " memory");
        ++capacity[d];
      }
    }
  }
}

void TestWhatFitsAnywhere() {
  Graph graph(1, 3, 2);
  graph.bytes = {1, 2, 3};
  graph.resident = {10, 20, 30};
  const std::vector<int64_t> enough{66, 66}, little{66, 65};
  Expect(FitsAnywhere(graph.Arrays(), enough.data()), "1 + 2 + 3 + 10 + 20 + 30 bytes");
  Expect(!FitsAnywhere(graph.Arrays(), little.data()), "one byte less on one device");
}

struct ChainState {
  ChainState(const Graph& graph, uint64_t random)
      : device_of_unit(graph.ops, 0), best(graph.ops, 0), late_ns(7), chain{} {
    chain.random_state = random;
  }
  void Advance(const tf_placer::SearchProblem& problem, int64_t rounds) {
    chain.device_of_unit = device_of_unit.data();
    chain.best_device_of_unit = best.data();
    chain.late_ns = late_ns.data();
    chain.late_length = late_ns.size();
    tf_placer::Advance(problem, rounds, &chain);
  }
  std::vector<int32_t> device_of_unit, best;
  std::vector<int64_t> late_ns;
  Chain chain;
};

// Of a network whose score is minus the feature that grows with the units of a move.
std::vector<float> PrefersSmallPieces() {
  constexpr int kFeatures = EditFeatures::kCount, kHidden = EditScorer::kHidden;
  std::vector<float> weights(EditScorer::kWeights, 0.0f);
  weights[0] = weights[(kFeatures + 1) * kHidden] = 1;
  weights[(kFeatures + 1) * kHidden + (kHidden + 1) * kHidden] = -1;
  return weights;
}

// Chains on threads of their own, in one call, against the same chains one after the other, in many.
void TestChainsInThreadsAndInBursts(int64_t path_chance, int32_t draws) {
  const Graph graph(5, 40, 3);
  const std::vector<int64_t> capacity(3, int64_t{1} << 40);
  tf_placer::SearchProblem problem;
  problem.orders.emplace_back(graph.Arrays());
  problem.moves = graph.Moves();
  problem.moves.path_chance = path_chance;
  const std::vector<float> weights = PrefersSmallPieces();
  problem.choice = {draws, int64_t{1} << 30, weights.data()};
  problem.moves.reads_waits = draws > 1;
  problem.capacity_bytes = capacity.data();
  problem.fits_anywhere = true;
  ExpectEqual(CheckMoveArrays(problem.moves).size(), 0, "wrong arrays of moves");
  std::vector<ChainState> whole, parts;
  for (uint64_t random : {1, 2, 3, 4}) {
    whole.emplace_back(graph, random);
    parts.emplace_back(graph, random);
  }
  std::vector<std::thread> threads;
  for (ChainState& chain : whole) threads.emplace_back([&] { chain.Advance(problem, 400); });
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < whole.size(); ++i) {
    for (int burst = 0; burst < 16; ++burst) parts[i].Advance(problem, 25);
    Expect(whole[i].best == parts[i].best && whole[i].device_of_unit == parts[i].device_of_unit, "placements differ");
    Expect(whole[i].late_ns == parts[i].late_ns, "what was before differs");
    ExpectEqual(parts[i].chain.rounds, 400, "rounds");
    ExpectEqual(parts[i].chain.random_state, whole[i].chain.random_state, "random numbers");
    ExpectEqual(parts[i].chain.best_runtime_ns, whole[i].chain.best_runtime_ns, "time of the fastest");
    Expect(whole[i].chain.best_runtime_ns <= whole[i].chain.runtime_ns, "the fastest is no slower than the last");
  }
}

// Of 16 moves the smallest is tried: one unit, as half of the pieces are drawn so large and half of the moves exchange
// two pieces (16 moves without a lone unit: 1 of 10,000). And to keep what was tried changes nothing.
void TestTheChosenMoveIsKept() {
  const Graph graph(5, 40, 3);
  const std::vector<int64_t> capacity(3, int64_t{1} << 40);
  const std::vector<float> weights = PrefersSmallPieces();
  constexpr int kRounds = 50;
  for (const int32_t draws : {1, 16}) {
    tf_placer::SearchProblem problem;
    problem.orders.emplace_back(graph.Arrays());
    problem.moves = graph.Moves();
    problem.moves.reads_waits = true;
    problem.choice = {draws, 0, weights.data()};
    problem.capacity_bytes = capacity.data();
    problem.fits_anywhere = true;
    ChainState kept(graph, 1), other(graph, 1);
    std::vector<float> edits(kRounds * kEditColumns, -1.0f);
    kept.chain.edits = edits.data();
    kept.Advance(problem, kRounds);
    other.Advance(problem, kRounds);
    Expect(kept.device_of_unit == other.device_of_unit, "placements differ");
    int alone = 0;
    double gain = 1;
    for (int round = 0; round < kRounds; ++round) {
      const float* const row = &edits[round * kEditColumns];
      alone += std::abs(row[0] - 0.1 * std::log(2.0)) < 1e-6;
      gain *= 1 - row[EditFeatures::kCount];
    }
    Expect(edits[0] == 0 && edits[EditFeatures::kCount] == 0, "the first round tries nothing");
    Expect(draws == 1 ? alone < kRounds - 9 : alone == kRounds - 1, "lone units: " + std::to_string(alone));
    Expect(gain < 1 && gain > 0, "some moves gain");
  }
}

// Ops 0 and 1 are read by op 2. Together on device 0: 0 runs 10 ns, then 1 for 30, then 2 for 40. With op 1 on device 1:
// op 1 ends at 7, its 50 bytes take 20 + 50 ns, so that op 2 begins at 77, and op 0, done at 10, is not on the path.
void TestTheCriticalPath() {
  Graph graph(1, 3, 2);
  graph.compute_ns = {10, 10, 30, 7, 40, 40};
  graph.producer = {0, 1};
  graph.bytes = {8, 50};
  graph.offset = {0, 1, 2};
  graph.consumers = {2, 2};
  graph.priority.assign(3, 0);
  graph.newest_first.assign(2, 0);
  graph.join_ns.assign(2, 0);
  graph.dispatch_ns.assign(2, 0);
  graph.tensor_ns.assign(4, 0);
  graph.streams.assign(2, 1);
  graph.latency_ns.assign(4, 20);
  graph.send_ns.assign(4, 0);
  SimulatorArrays arrays = graph.Arrays();
  arrays.num_tensors = 2;
  ExpectEqual(CheckArrays(arrays).size(), 0, "wrong arrays");
  const SimulationPlan plan(arrays);
  Waits waits(plan);
  const auto shares = [&waits](const std::vector<int32_t>& device_of_unit) {
    waits.Read(device_of_unit.data(), true);
    RandomBits random(3);
    std::vector<int> drawn(9, 0);
    for (int i = 0; i < 10000; ++i) {
      Wait wait;
      Expect(waits.Draw(&random, &wait), "a path");
      ++drawn[3 * wait.producer + wait.consumer];
    }
    return drawn;
  };
  const auto expect = [](const std::vector<int>& drawn, const std::vector<double>& expected) {
    for (int i = 0; i < 9; ++i) {
      const double off = drawn[i] / 10000.0 - expected[i];
      Expect(off > -0.02 && off < 0.02, "share " + std::to_string(i) + ": " + std::to_string(drawn[i]));
      Expect(expected[i] > 0 || drawn[i] == 0, "not on the path: " + std::to_string(i));
    }
  };
  expect(shares({0, 0, 0}), {10 / 80.0, 0, 0, 0, 30 / 80.0, 0, 0, 0, 40 / 80.0});
  expect(shares({0, 1, 0}), {0, 0, 0, 0, 7 / 117.0, 70 / 117.0, 0, 0, 40 / 117.0});
}

void TestMoveChecks() {
  Graph graph(1, 5, 2);
  graph.sizes = {0};
  Expect(CheckMoveArrays(graph.Moves()).rfind("piece_sizes[0]", 0) == 0, "a piece has a unit");
  graph.sizes = {1};
  graph.work_before[3] = graph.work_before[2];
  Expect(CheckMoveArrays(graph.Moves()).rfind("work_before[3]", 0) == 0, "every unit can be drawn");
}

}  // namespace

int main() {
  TestALimitOnlyRejects();
  TestWhatFitsAnywhere();
  TestChainsInThreadsAndInBursts(0, 1);
  TestChainsInThreadsAndInBursts(int64_t{1} << 31, 1);
  TestChainsInThreadsAndInBursts(0, 4);
  TestTheChosenMoveIsKept();
  TestTheCriticalPath();
  TestMoveChecks();
  return 0;
}
