// What local search tries next: one connected piece of units on another device, alone or with the copies of its units
// for other parts of the batch, or two pieces that change places. std only.
//
// Letters: U units, D devices, E edges, K pairs of neighbors, S sizes, P parts of the batch.

#ifndef TF_PLACER_OPS_CC_MOVES_H_
#define TF_PLACER_OPS_CC_MOVES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "random_bits.h"
#include "simulation_plan.h"
#include "waits.h"

namespace tf_placer {

// What moves are drawn from; the arrays belong to the caller and have passed CheckMoveArrays. Chances are of 2^32.
struct MoveArrays {
  int32_t num_units = 0;
  int32_t num_devices = 0;
  int32_t num_edges = 0;
  int32_t num_neighbors = 0;
  int32_t num_sizes = 0;
  int32_t num_parts = 0;                     // 0 where the batch is whole
  const int32_t* edges = nullptr;            // [E, 2]
  const int32_t* neighbor_offset = nullptr;  // [U + 1]
  const int32_t* neighbors = nullptr;        // [K]
  const int64_t* work_before = nullptr;      // [U + 1] ascending from 0: the work of the units before each
  const int32_t* piece_sizes = nullptr;      // [S] drawn from, each at least 1
  const bool* allowed = nullptr;             // [U, D]
  const int32_t* kind_of_unit = nullptr;     // [U]
  const int32_t* part_of_unit = nullptr;     // [U] -1 for no copy
  const int32_t* copies = nullptr;           // [U, P] the unit's copy for each other part, -1 for none
  const int32_t* turned = nullptr;           // [D, P] the device so many places after each among those of its type
  int64_t crossing_chance = 0;               // that a piece grows from an end of an edge that crosses
  int64_t towards_chance = 0;                // that it goes to the device of the other end
  int64_t swap_chance = 0;                   // that a piece of the target comes back for it
  int64_t kind_chance = 0;                   // that a piece is of units of one kind
  int64_t copies_chance = 0;                 // that the copies of a piece go along, and nothing comes back
  int64_t together_chance = 0;               // that they go to its device, and not as many places on as parts
  int64_t path_chance = 0;                   // that a piece grows from the critical path instead
  bool reads_waits = false;                  // whether WaitsOf is asked for all the same
};

// One line that says what is wrong with the arrays, or "" when nothing is.
std::string CheckMoveArrays(const MoveArrays& arrays);

struct Step {
  int32_t unit;
  int32_t source;
  int32_t target;
};

// Units that change their device, distinct, and how they were drawn.
struct Move {
  std::vector<Step> steps;
  bool of_one_kind;
  bool from_path;  // the first piece grew from the critical path
};

// Draws moves from one placement after another. It remembers which edges cross, which follows from the placement, so
// two that are given the same placement and the same random numbers draw the same.
class Moves {
 public:
  // `arrays` and what it points to must outlive this, and so must the plan of the same units.
  Moves(const MoveArrays& arrays, const SimulationPlan& plan);

  // The placement has changed to one whose ops start then [M], or when is not known where there are none. Gives back as
  // many numbers.
  void Forget(Spans* spans);

  // Whether it has any use for when ops start.
  bool ReadsSpans() const { return waits_.has_value(); }

  // One without steps when nothing may move. Until the next call.
  const Move& Draw(const int32_t* device_of_unit, RandomBits* random);

  // What the step at the placement is made of, known once for each; only where moves are drawn from it.
  const Waits& WaitsOf(const int32_t* device_of_unit);

 private:
  // A unit that a piece grows from, and the device of the other end of the edge it was found at, or its own.
  struct First {
    int32_t unit;
    int32_t other_device;
    bool is_on_path;
  };

  // How many other devices a unit may be on.
  int32_t Elsewhere(int32_t unit, int32_t source) const;
  First DrawFirst(const int32_t* device_of_unit, RandomBits* random);
  bool DrawWait(const int32_t* device_of_unit, RandomBits* random, Wait* wait);
  // How a piece grows: up to so many units, all of one kind or not.
  struct Growth {
    int32_t size;
    bool of_one_kind;
  };

  void Shift(const int32_t* device_of_unit, int32_t first, const Growth& growth, int32_t target);
  void ShiftCopies(const int32_t* device_of_unit, bool together);
  void Grow(const int32_t* device_of_unit, int32_t first, const Growth& growth);

  const MoveArrays& arrays_;
  std::vector<int32_t> crossing_;  // rows of edges, ascending
  bool crossing_is_known_ = false;
  std::optional<Waits> waits_;  // where moves are drawn from waits
  bool waits_are_known_ = false, spans_are_known_ = false;
  std::vector<int32_t> piece_;
  std::vector<int32_t> piece_of_unit_;  // [U] the last piece it was in
  int32_t num_pieces_ = 0;
  Move move_;
};

}  // namespace tf_placer

#endif  // TF_PLACER_OPS_CC_MOVES_H_
