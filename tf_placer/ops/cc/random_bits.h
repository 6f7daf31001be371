// Random numbers that Python draws alike (tests/oracles/local_search.py), so that the two can be compared. std only.

#ifndef TF_PLACER_OPS_CC_RANDOM_BITS_H_
#define TF_PLACER_OPS_CC_RANDOM_BITS_H_

#include <cstdint>

namespace tf_placer {

// splitmix64 (Steele, Lea & Flood 2014, "Fast splittable pseudorandom number generators"): all its state is one number.
class RandomBits {
 public:
  explicit RandomBits(uint64_t state) : state_(state) {}

  uint64_t state() const { return state_; }

  // 64 bits.
  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  // A whole number in [0, count), count > 0, each as probable as the others but for 1 in 2^64 / count.
  uint64_t Below(uint64_t count) {
    __extension__ typedef unsigned __int128 uint128;
    return static_cast<uint64_t>((static_cast<uint128>(Next()) * count) >> 64);
  }

  // True with probability chance / 2^32.
  bool Chance(int64_t chance) { return static_cast<int64_t>(Next() >> 32) < chance; }

 private:
  uint64_t state_;
};

}  // namespace tf_placer

#endif  // TF_PLACER_OPS_CC_RANDOM_BITS_H_
