// What a move would change, without simulating it. std only.
//
// Letters: M ops that are simulated, U units, D devices.

#ifndef TF_PLACER_OPS_CC_EDIT_FEATURES_H_
#define TF_PLACER_OPS_CC_EDIT_FEATURES_H_

#include <cstdint>
#include <vector>

#include "moves.h"
#include "simulation_plan.h"
#include "waits.h"

namespace tf_placer {

// Numbers about one move after another from where a chain is. All times are shares of the step's, squashed to (-1, 1),
// so that they mean the same for every graph and cluster.
class EditFeatures {
 public:
  static constexpr int kCount = 34;

  // `plan` must outlive this.
  explicit EditFeatures(const SimulationPlan& plan);

  // Where the chain is now, and the schedule of that.
  void Read(const int32_t* device_of_unit, const Waits& waits);

  // Writes [kCount] of a move of one unit or more.
  void Of(const Move& move, float* features);

 private:
  struct OpNow {
    float start_ns, end_ns;
    int32_t unit;
    int16_t device;
    bool on_path;
  };
  // To an op that reads from this one, or that this one reads from.
  struct Edge {
    int32_t op;
    int32_t size;  // begin of a row of the plan's `sizes`
  };
  // Sums over the edges of what moves.
  struct Crossings {
    float removed_ns, added_ns, removed, added;
    float path_removed_ns, path_added_ns;      // on the critical path
    float urgent_removed_ns, urgent_added_ns;  // what their consumers wait for: beyond what time there is between
  };
  // Sums over the ops that move.
  struct Work {
    float source_ns, target_ns, path_ns, path_target_ns, slack_ns, begin_ns, end_ns;
  };

  void AddEdges();
  void AddOp(int32_t op, const Step& step);
  void Count(const OpNow& producer, const OpNow& consumer, int32_t size);
  int DeviceAfter(const OpNow& op) const { return target_of_unit_[op.unit] < 0 ? op.device : target_of_unit_[op.unit]; }
  float LinkNs(int32_t size, int source, int target) const;
  void Scale(int stride);
  float IdleShare(int device) const;

  const SimulationPlan& plan_;
  std::vector<int32_t> feeds_begin_, reads_begin_;  // [M + 1]
  std::vector<Edge> feeds_, reads_;
  std::vector<OpNow> now_;                // [M]
  std::vector<int32_t> target_of_unit_;   // [U] -1 but for the units of a move
  std::vector<float> busy_ns_;            // [D, kBins] of each part of the step
  std::vector<float> work_ns_, more_ns_;  // [D] what each computes, and what a move adds
  float runtime_ns_ = 1;
  Crossings crossings_;
  Work work_;
};

}  // namespace tf_placer

#endif  // TF_PLACER_OPS_CC_EDIT_FEATURES_H_
