// When tensors are on their way, for who wants to see it. std only.

#ifndef TF_PLACER_OPS_CC_LEGS_H_
#define TF_PLACER_OPS_CC_LEGS_H_

#include <cstdint>

namespace tf_placer {

// What a transfer is made of, in this order: the first and the last only where its link takes time of that device.
enum Leg { kSend, kCross, kReceive, kNumLegs };

// When each leg of each tensor to each device starts and ends: [kNumLegs, T, D], or both nullptr.
struct Legs {
  int64_t* start_ns = nullptr;
  int64_t* end_ns = nullptr;
};

}  // namespace tf_placer

#endif  // TF_PLACER_OPS_CC_LEGS_H_
