// Which of several moves is worth a simulation: a small network. std only.

#ifndef TF_PLACER_OPS_CC_EDIT_SCORER_H_
#define TF_PLACER_OPS_CC_EDIT_SCORER_H_

#include <cstdint>

#include "edit_features.h"

namespace tf_placer {

// Two hidden layers of rectified units. A higher score: more likely to make the step faster.
class EditScorer {
 public:
  static constexpr int kHidden = 16;
  // Of the first layer [kCount, kHidden], its biases, the second [kHidden, kHidden], its biases, the last [kHidden] and
  // its bias, in this order.
  static constexpr int64_t kWeights = (EditFeatures::kCount + 1) * kHidden + (kHidden + 1) * kHidden + kHidden + 1;

  // The weights belong to the caller.
  explicit EditScorer(const float* weights) : weights_(weights) {}

  float Score(const float* features) const;

 private:
  const float* weights_;
};

}  // namespace tf_placer

#endif  // TF_PLACER_OPS_CC_EDIT_SCORER_H_
