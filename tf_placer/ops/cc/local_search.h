// Local search by late acceptance, one chain at a time: the algorithm alone, no tensors, std only.
//
// It is that of tf_placer/planners/local_search.py, whose decisions it makes exactly, many times as fast: it asks the
// simulator for no more than whether a move is accepted.

#ifndef TF_PLACER_OPS_CC_LOCAL_SEARCH_H_
#define TF_PLACER_OPS_CC_LOCAL_SEARCH_H_

#include <cstdint>
#include <vector>

#include "edit_chooser.h"
#include "moves.h"
#include "simulation_plan.h"

namespace tf_placer {

// What chains search on, read by every thread. The step time of a placement is the sum over the orders, in ns; kOver
// when it does not fit in one of them.
struct SearchProblem {
  std::vector<SimulationPlan> orders;  // at least 1, of one graph; they differ in priorities and in what things take
  MoveArrays moves;
  const int64_t* capacity_bytes = nullptr;  // [D]
  bool fits_anywhere = false;
  Choice choice;
  int64_t order_chance = 0;  // of 2^32, that a round of a chain with an order changes that first, on the critical path
};

// Of a move that was tried: its features, and the share of the step by which it made the step faster, 0 where it did not.
constexpr int kEditColumns = EditFeatures::kCount + 1;

// Where a chain is. It begins with a placement and a state of the random numbers; all else is written by the first
// round, which times that placement.
struct Chain {
  int32_t* device_of_unit;       // [U]
  int32_t* best_device_of_unit;  // [U] the fastest it was at
  int64_t* late_ns;              // [L] where it was in the last L rounds, or better; a ring
  int32_t late_length;           // L
  int64_t runtime_ns;
  int64_t best_runtime_ns;
  int64_t rounds;
  uint64_t random_state;
  int32_t* priority_of_op = nullptr;       // [N] where the chain searches an order, too (Sequences)
  int32_t* best_priority_of_op = nullptr;  // [N] alike
  float* edits = nullptr;  // [rounds, kEditColumns] of this call, written where not null; zeros where nothing moved
};

// Makes `rounds` rounds more. Each draws a move and goes there unless that is slower than now and than L rounds ago
// (Burke & Bykov 2017). So long a call at a time, or all in one: the chain is the same.
void Advance(const SearchProblem& problem, int64_t rounds, Chain* chain);

}  // namespace tf_placer

#endif  // TF_PLACER_OPS_CC_LOCAL_SEARCH_H_
