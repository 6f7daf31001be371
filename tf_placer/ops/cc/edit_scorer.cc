#include "edit_scorer.h"

#include <algorithm>

namespace tf_placer {
namespace {

constexpr int kHidden = EditScorer::kHidden;

// Returns where the weights of the next layer begin.
template <int kInputs>
const float* Layer(const float* weights, const float* inputs, float* outputs) {
  const float* const bias = weights + kInputs * kHidden;
  std::copy_n(bias, kHidden, outputs);
  for (int i = 0; i < kInputs; ++i) {
    for (int h = 0; h < kHidden; ++h) outputs[h] += inputs[i] * weights[i * kHidden + h];
  }
  for (int h = 0; h < kHidden; ++h) outputs[h] = std::max(outputs[h], 0.0f);
  return bias + kHidden;
}

}  // namespace

float EditScorer::Score(const float* features) const {
  float first[kHidden], second[kHidden];
  const float* last = Layer<EditFeatures::kCount>(weights_, features, first);
  last = Layer<kHidden>(last, first, second);
  float score = last[kHidden];
  for (int h = 0; h < kHidden; ++h) score += last[h] * second[h];
  return score;
}

}  // namespace tf_placer
