#include "edit_chooser.h"

namespace tf_placer {

EditChooser::EditChooser(const SimulationPlan& plan, const Choice& choice, bool keeps_features)
    : choice_(choice), keeps_features_(keeps_features), features_(plan), scorer_(choice.weights) {}

const std::vector<Step>& EditChooser::Choose(const int32_t* device_of_unit, Moves* moves, RandomBits* random) {
  const bool is_uniform = choice_.draws == 1 || random->Chance(choice_.uniform_chance);
  if (is_uniform && !keeps_features_) return moves->Draw(device_of_unit, random).steps;
  if (!is_read_) features_.Read(device_of_unit, moves->WaitsOf(device_of_unit));
  is_read_ = true;
  chosen_.clear();
  features_of_chosen_.fill(0);
  float most = 0;
  for (int32_t i = 0; i < (is_uniform ? 1 : choice_.draws); ++i) {
    const Move& move = moves->Draw(device_of_unit, random);
    if (move.steps.empty()) continue;
    features_.Of(move, features_of_move_.data());
    const float score = is_uniform ? 0 : scorer_.Score(features_of_move_.data());
    if (!chosen_.empty() && score <= most) continue;
    most = score;
    chosen_ = move.steps;
    features_of_chosen_ = features_of_move_;
  }
  return chosen_;
}

}  // namespace tf_placer
