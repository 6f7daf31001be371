// The most promising of some moves from where a chain is. std only.

#ifndef TF_PLACER_OPS_CC_EDIT_CHOOSER_H_
#define TF_PLACER_OPS_CC_EDIT_CHOOSER_H_

#include <array>
#include <cstdint>
#include <vector>

#include "edit_features.h"
#include "edit_scorer.h"
#include "moves.h"
#include "random_bits.h"
#include "simulation_plan.h"

namespace tf_placer {

// How many moves are looked at for each that is tried.
struct Choice {
  int32_t draws = 1;                // moves that are drawn for each that is tried
  int64_t uniform_chance = 0;       // of 2^32, that one alone is drawn all the same
  const float* weights = nullptr;   // [EditScorer::kWeights], read where more than one is drawn
};

// Draws moves and says which to try. What it says follows from the placement and the random numbers.
class EditChooser {
 public:
  // `plan` must outlive this, and so must the weights. `keeps_features` has them made where one is drawn alone, too.
  EditChooser(const SimulationPlan& plan, const Choice& choice, bool keeps_features);

  // The placement has changed.
  void Forget() { is_read_ = false; }

  // Steps of the move that scores highest, the first of them where several do; none when nothing may move. Until the
  // next call. `moves` must read waits (MoveArrays::reads_waits).
  const std::vector<Step>& Choose(const int32_t* device_of_unit, Moves* moves, RandomBits* random);

  // [EditFeatures::kCount] of the last choice, zeros of none; where features are kept.
  const std::array<float, EditFeatures::kCount>& features() const { return features_of_chosen_; }

 private:
  const Choice choice_;
  const bool keeps_features_;
  EditFeatures features_;
  EditScorer scorer_;
  bool is_read_ = false;
  std::vector<Step> chosen_;
  std::array<float, EditFeatures::kCount> features_of_move_, features_of_chosen_;
};

}  // namespace tf_placer

#endif  // TF_PLACER_OPS_CC_EDIT_CHOOSER_H_
