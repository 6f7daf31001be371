#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "local_search.h"
#include "simulate_within.h"
#include "simulator_tensors.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/util/work_sharder.h"

namespace tf_placer {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

// Positions of the op's inputs, as registered in local_search_ops.cc.
enum Input {
  kRounds,
  kDeviceOfUnit,
  kBestDeviceOfUnit,
  kLateNs,
  kCounts,
  kEdges,
  kFirstOfProblem = kEdges,
  kNeighborOffset,
  kNeighbors,
  kWorkBefore,
  kPieceSizes,
  kAllowed,
  kKindOfUnit,
  kPartOfUnit,
  kCopies,
  kTurned,
  kCapacityBytes,
  kScorerWeights,
  kFirstOfSimulator,
  kNumInputs = kFirstOfSimulator + kNumSimulatorInputs
};

// Columns of `counts`.
enum Count { kRuntimeNs, kBestRuntimeNs, kRoundsMade, kRandomState, kNumCounts };

// Above this nobody knows what it is good for, and a round could take for ever.
constexpr int64_t kMostDraws = 1024;

// A plan for each order is kept, so there must not be any number of them.
constexpr int64_t kMostOrders = 64;

absl::Status CheckShapes(OpKernelContext* ctx, int64_t draws) {
  const std::vector<std::tuple<int, const char*, int>> ranks = {{kRounds, "rounds", 1},
                                                                {kDeviceOfUnit, "device_of_unit", 2},
                                                                {kLateNs, "late_ns", 2},
                                                                {kCopies, "copies", 2},
                                                                {kFirstOfSimulator + kPriority, "priority", 2}};
  for (const auto& [input, name, rank] : ranks) {
    if (ctx->input(input).dims() != rank) {
      return tensorflow::errors::InvalidArgument(name, ": expected ", rank, " dimensions, got shape ",
                                                 ctx->input(input).shape().DebugString());
    }
  }
  const int64_t chains = ctx->input(kDeviceOfUnit).dim_size(0);
  const int64_t units = ctx->input(kDeviceOfUnit).dim_size(1);
  const int64_t late = ctx->input(kLateNs).dim_size(1);
  const int64_t orders = ctx->input(kFirstOfSimulator + kPriority).dim_size(0);
  const int64_t devices = ctx->input(kCapacityBytes).NumElements();
  const int64_t parts = ctx->input(kCopies).dim_size(1);
  if (orders < 1 || orders > kMostOrders) {
    return tensorflow::errors::InvalidArgument("priority: expected 1 to ", kMostOrders, " orders, got ", orders);
  }
  if (late < 1 || late >= INT32_MAX) {
    return tensorflow::errors::InvalidArgument("late_ns: expected 1 column or more, got ", late);
  }
  for (const int input : {kEdges, kNeighbors, kPieceSizes}) {
    if (ctx->input(input).NumElements() >= INT32_MAX) {
      return tensorflow::errors::InvalidArgument("expected fewer than 2^31 - 1 edges, neighbors and sizes");
    }
  }
  const std::vector<std::tuple<int, const char*, TensorShape>> expected = {
      {kRounds, "rounds", TensorShape({chains})},
      {kBestDeviceOfUnit, "best_device_of_unit", TensorShape({chains, units})},
      {kLateNs, "late_ns", TensorShape({chains, late})},
      {kCounts, "counts", TensorShape({chains, kNumCounts})},
      {kEdges, "edges", TensorShape({ctx->input(kEdges).NumElements() / 2, 2})},
      {kNeighborOffset, "neighbor_offset", TensorShape({units + 1})},
      {kNeighbors, "neighbors", TensorShape({ctx->input(kNeighbors).NumElements()})},
      {kWorkBefore, "work_before", TensorShape({units + 1})},
      {kPieceSizes, "piece_sizes", TensorShape({ctx->input(kPieceSizes).NumElements()})},
      {kAllowed, "allowed", TensorShape({units, devices})},
      {kKindOfUnit, "kind_of_unit", TensorShape({units})},
      {kPartOfUnit, "part_of_unit", TensorShape({units})},
      {kCopies, "copies", TensorShape({units, parts})},
      {kTurned, "turned", TensorShape({devices, parts})},
      {kCapacityBytes, "capacity_bytes", TensorShape({devices})},
      {kScorerWeights, "scorer_weights", TensorShape({draws > 1 ? EditScorer::kWeights : 0})},
      {kFirstOfSimulator + kStreams, "streams", TensorShape({devices})},
  };
  for (const auto& [input, name, shape] : expected) {
    TF_RETURN_IF_ERROR(CheckShape(ctx, input, name, shape));
  }
  return CheckSimulatorShapes(ctx, kFirstOfSimulator, units, orders);
}

absl::Status CheckState(OpKernelContext* ctx) {
  const auto rounds = ctx->input(kRounds).vec<int64_t>();
  const auto counts = ctx->input(kCounts).matrix<int64_t>();
  for (int64_t chain = 0; chain < counts.dimension(0); ++chain) {
    if (rounds(chain) < 0) return tensorflow::errors::InvalidArgument("rounds[", chain, "] is negative");
    if (counts(chain, kRoundsMade) < 0) {
      return tensorflow::errors::InvalidArgument("counts[", chain, ",", int{kRoundsMade}, "] is negative");
    }
  }
  const int64_t devices = ctx->input(kCapacityBytes).NumElements();
  TF_RETURN_IF_ERROR(CheckDevices("device_of_unit", ctx->input(kDeviceOfUnit), devices));
  return CheckDevices("best_device_of_unit", ctx->input(kBestDeviceOfUnit), devices);
}

class AdvanceLocalSearchOp : public OpKernel {
 public:
  explicit AdvanceLocalSearchOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("crossing_chance", &crossing_chance_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("towards_chance", &towards_chance_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("swap_chance", &swap_chance_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("kind_chance", &kind_chance_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("copies_chance", &copies_chance_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("together_chance", &together_chance_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("path_chance", &path_chance_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("draws", &draws_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("uniform_chance", &uniform_chance_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("keep_edits", &keep_edits_));
    OP_REQUIRES(ctx, draws_ >= 1 && draws_ <= kMostDraws,
                tensorflow::errors::InvalidArgument("draws: expected 1 to ", kMostDraws, ", got ", draws_));
  }

  void Compute(OpKernelContext* ctx) override {
    OP_REQUIRES_OK(ctx, CheckShapes(ctx, draws_));
    OP_REQUIRES_OK(ctx, CheckState(ctx));
    std::shared_ptr<const SearchProblem> problem;
    OP_REQUIRES_OK(ctx, ProblemOf(ctx, &problem));
    Tensor* after[4];
    for (int i = 0; i < 4; ++i) {
      const Tensor& before = ctx->input(kDeviceOfUnit + i);
      OP_REQUIRES_OK(ctx, ctx->allocate_output(i, before.shape(), &after[i]));
      std::copy_n(static_cast<const char*>(before.data()), before.TotalBytes(), static_cast<char*>(after[i]->data()));
    }
    const int64_t* const rounds = ctx->input(kRounds).flat<int64_t>().data();
    const int64_t num_chains = ctx->input(kRounds).NumElements();
    const int64_t kept = keep_edits_ && num_chains > 0 ? *std::max_element(rounds, rounds + num_chains) : 0;
    Tensor* edits;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(4, TensorShape({num_chains, kept, kEditColumns}), &edits));
    edits->flat<float>().setZero();
    const int64_t units = ctx->input(kDeviceOfUnit).dim_size(1);
    const int64_t late_length = ctx->input(kLateNs).dim_size(1);
    const auto advance = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        int64_t* const counts = after[3]->flat<int64_t>().data() + i * kNumCounts;
        Chain chain{after[0]->flat<int32_t>().data() + i * units,
                    after[1]->flat<int32_t>().data() + i * units,
                    after[2]->flat<int64_t>().data() + i * late_length,
                    static_cast<int32_t>(late_length),
                    counts[kRuntimeNs],
                    counts[kBestRuntimeNs],
                    counts[kRoundsMade],
                    static_cast<uint64_t>(counts[kRandomState]),
                    keep_edits_ ? edits->flat<float>().data() + i * kept * kEditColumns : nullptr};
        Advance(*problem, rounds[i], &chain);
        counts[kRuntimeNs] = chain.runtime_ns;
        counts[kBestRuntimeNs] = chain.best_runtime_ns;
        counts[kRoundsMade] = chain.rounds;
        counts[kRandomState] = static_cast<int64_t>(chain.random_state);
      }
    };
    // So dear that each chain is a block of its own.
    constexpr int64_t kCycles = int64_t{1} << 40;
    const auto* workers = ctx->device()->tensorflow_cpu_worker_threads();
    tensorflow::Shard(workers->num_threads, workers->workers, num_chains, kCycles, advance);
  }

 private:
  absl::Status ProblemOf(OpKernelContext* ctx, std::shared_ptr<const SearchProblem>* problem) {
    *problem = kept_.Find(ctx, kFirstOfProblem, kNumInputs);
    if (*problem != nullptr) return absl::OkStatus();
    const auto made = std::make_shared<SearchProblem>();
    made->moves = MovesOf(ctx);
    std::string wrong = CheckMoveArrays(made->moves);
    if (!wrong.empty()) return tensorflow::errors::InvalidArgument(wrong);
    made->capacity_bytes = ctx->input(kCapacityBytes).flat<int64_t>().data();
    made->choice = {static_cast<int32_t>(draws_), uniform_chance_, ctx->input(kScorerWeights).flat<float>().data()};
    const int64_t orders = ctx->input(kFirstOfSimulator + kPriority).dim_size(0);
    for (int64_t order = 0; order < orders; ++order) {
      SimulatorArrays arrays = ArraysOf(ctx, kFirstOfSimulator, order);
      arrays.allowed = made->moves.allowed;
      wrong = CheckArrays(arrays);
      if (!wrong.empty()) return tensorflow::errors::InvalidArgument(wrong);
      made->orders.emplace_back(arrays);
      made->fits_anywhere = FitsAnywhere(arrays, made->capacity_bytes);
    }
    *problem = made;
    kept_.Keep(ctx, kFirstOfProblem, kNumInputs, made);
    return absl::OkStatus();
  }

  MoveArrays MovesOf(OpKernelContext* ctx) const {
    MoveArrays arrays;
    arrays.num_units = ctx->input(kDeviceOfUnit).dim_size(1);
    arrays.num_devices = ctx->input(kCapacityBytes).NumElements();
    arrays.num_edges = ctx->input(kEdges).dim_size(0);
    arrays.num_neighbors = ctx->input(kNeighbors).NumElements();
    arrays.num_sizes = ctx->input(kPieceSizes).NumElements();
    arrays.edges = ctx->input(kEdges).flat<int32_t>().data();
    arrays.neighbor_offset = ctx->input(kNeighborOffset).flat<int32_t>().data();
    arrays.neighbors = ctx->input(kNeighbors).flat<int32_t>().data();
    arrays.work_before = ctx->input(kWorkBefore).flat<int64_t>().data();
    arrays.piece_sizes = ctx->input(kPieceSizes).flat<int32_t>().data();
    arrays.allowed = ctx->input(kAllowed).flat<bool>().data();
    arrays.crossing_chance = crossing_chance_;
    arrays.towards_chance = towards_chance_;
    arrays.swap_chance = swap_chance_;
    arrays.kind_of_unit = ctx->input(kKindOfUnit).flat<int32_t>().data();
    arrays.kind_chance = kind_chance_;
    arrays.num_parts = ctx->input(kCopies).dim_size(1);
    arrays.part_of_unit = ctx->input(kPartOfUnit).flat<int32_t>().data();
    arrays.copies = ctx->input(kCopies).flat<int32_t>().data();
    arrays.turned = ctx->input(kTurned).flat<int32_t>().data();
    arrays.copies_chance = copies_chance_;
    arrays.together_chance = together_chance_;
    arrays.path_chance = path_chance_;
    arrays.reads_waits = draws_ > 1 || keep_edits_;
    return arrays;
  }

  int64_t crossing_chance_ = 0, towards_chance_ = 0, swap_chance_ = 0, kind_chance_ = 0;
  int64_t copies_chance_ = 0, together_chance_ = 0;
  int64_t path_chance_ = 0, draws_ = 1, uniform_chance_ = 0;
  bool keep_edits_ = false;
  KeptFor<SearchProblem> kept_;
};

REGISTER_KERNEL_BUILDER(Name("TfPlacerAdvanceLocalSearch").Device(tensorflow::DEVICE_CPU), AdvanceLocalSearchOp);

}  // namespace
}  // namespace tf_placer
