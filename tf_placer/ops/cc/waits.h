// What a step's time is made of: for what each op of its critical path waited. std only.

#ifndef TF_PLACER_OPS_CC_WAITS_H_
#define TF_PLACER_OPS_CC_WAITS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "random_bits.h"
#include "simulation_plan.h"
#include "workspace.h"

namespace tf_placer {

// Two units: of the ends of a transfer or of what waits for one, or the same one twice while it computes.
struct Wait {
  int32_t producer;
  int32_t consumer;
};

// An op that comes ahead of another of its device, or behind it.
struct Shift {
  int32_t op;
  int32_t other;
  bool behind;
};

// The critical path of one placement after another: from the op that ends last back to the start, over what each op
// began right after, which is the latest of its inputs or the op that kept its device busy.
class Waits {
 public:
  // `plan` must outlive this.
  explicit Waits(const SimulationPlan& plan);

  // Takes when each op of a placement runs, which saves the next Read of it a simulation, and gives back as many
  // numbers.
  void TakeSpans(Spans* spans);

  // Follows the path of the placement [U], whose spans it was given last; with `simulate` it was given none.
  void Read(const int32_t* device_of_unit, bool simulate);

  // One of the path's, in proportion to how long it takes. False where nothing takes time.
  bool Draw(RandomBits* random, Wait* wait) const;

  // A change of order on the path, within ops that follow one another on a device without a pause: one of them goes to
  // where the first begins or the last ends, or part of the way there (the neighborhood N6: Balas & Vazacopoulos 1998).
  // `wait`: devices wait for their next op; else only what is ready can come first. False where it finds none.
  bool DrawShift(RandomBits* random, bool wait, Shift* shift) const;

  // When the last of an op's inputs ends.
  int64_t ReadyOf(int32_t op) const;

  // Of an op of the plan, in the step that was read.
  int64_t StartOf(int32_t op) const { return spans_.start_ns[op]; }
  int64_t EndOf(int32_t op) const { return spans_.end_ns[op]; }

  // Ops of the plan, the last first.
  const std::vector<int32_t>& path() const { return path_; }

 private:
  void SimulateAll(const int32_t* device_of_unit);
  void KeepEnds(const int32_t* device_of_unit);
  // An op that takes time and ends then, or -1.
  int32_t EndsAt(int32_t device, int64_t end_ns) const;
  // The input that came last, one from the op's own device if that ended as the op began; -1 where there is none.
  int32_t LastInput(int32_t op) const;
  int32_t EndsLast() const;
  void Add(int32_t producer, int32_t consumer, int64_t length_ns);
  size_t PlaceOf(int32_t device, int64_t end_ns) const;
  int32_t UnitOf(int32_t op) const { return plan_.inits[op].unit; }

  const SimulationPlan& plan_;
  Workspace workspace_;
  std::vector<int64_t> all_start_ns_, all_end_ns_;  // [N]
  Spans spans_;
  std::vector<int64_t> peak_bytes_;            // [D]
  std::vector<int32_t> input_begin_, inputs_;  // [M + 1], and the ops whose outputs each reads
  std::vector<int32_t> device_of_op_;          // [M]
  std::vector<int32_t> ends_;                  // a hash table of the ops that take time, by device and end
  std::vector<int32_t> path_;
  std::vector<std::pair<int32_t, int32_t>> blocks_;  // of the path, each op began as the next in it ended: [begin, end)
  std::vector<Wait> waits_;
  std::vector<int64_t> until_ns_;  // their lengths, summed up
};

}  // namespace tf_placer

#endif  // TF_PLACER_OPS_CC_WAITS_H_
