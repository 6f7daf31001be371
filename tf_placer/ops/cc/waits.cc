#include "waits.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "simulator.h"

namespace tf_placer {

Waits::Waits(const SimulationPlan& plan)
    : plan_(plan),
      workspace_(plan),
      all_start_ns_(plan.num_all_ops),
      all_end_ns_(plan.num_all_ops),
      spans_{std::vector<int64_t>(plan.num_ops), std::vector<int64_t>(plan.num_ops)},
      peak_bytes_(plan.num_devices),
      input_begin_(plan.num_ops + 1, 0),
      device_of_op_(plan.num_ops) {
  plan.EachEdge([this](int32_t, int32_t consumer, int32_t) { ++input_begin_[consumer + 1]; });
  for (int32_t op = 0; op < plan.num_ops; ++op) input_begin_[op + 1] += input_begin_[op];
  inputs_.resize(input_begin_[plan.num_ops]);
  std::vector<int32_t> next(input_begin_.begin(), input_begin_.end() - 1);
  plan.EachEdge([&](int32_t producer, int32_t consumer, int32_t) { inputs_[next[consumer]++] = producer; });
  size_t size = 2;
  while (size < 2 * static_cast<size_t>(plan.num_ops)) size *= 2;
  ends_.resize(size);
}

void Waits::TakeSpans(Spans* spans) { std::swap(spans_, *spans); }

void Waits::SimulateAll(const int32_t* device_of_unit) {
  int64_t runtime_ns;
  Simulate(plan_, device_of_unit, nullptr, &workspace_, &runtime_ns, peak_bytes_.data(), all_start_ns_.data(),
           all_end_ns_.data());
  for (int32_t op = 0; op < plan_.num_ops; ++op) {
    spans_.start_ns[op] = all_start_ns_[plan_.original_op[op]];
    spans_.end_ns[op] = all_end_ns_[plan_.original_op[op]];
  }
}

void Waits::Read(const int32_t* device_of_unit, bool simulate) {
  if (simulate) SimulateAll(device_of_unit);
  path_.clear();
  blocks_.clear();
  waits_.clear();
  until_ns_.clear();
  KeepEnds(device_of_unit);
  // Every step is to an input or to what ended as something began that takes time: it comes to an end.
  for (int32_t op = EndsLast(); op >= 0;) {
    path_.push_back(op);
    Add(UnitOf(op), UnitOf(op), EndOf(op) - StartOf(op));
    const int32_t input = LastInput(op);
    const bool is_here = input >= 0 && device_of_op_[input] == device_of_op_[op];
    const int32_t busy = is_here ? -1 : EndsAt(device_of_op_[op], StartOf(op));
    if (!is_here && busy < 0 && input >= 0) Add(UnitOf(input), UnitOf(op), StartOf(op) - EndOf(input));
    if (busy >= 0) {
      const int32_t place = static_cast<int32_t>(path_.size()) - 1;
      if (blocks_.empty() || blocks_.back().second != place + 1) blocks_.push_back({place, place + 1});
      ++blocks_.back().second;
    }
    op = busy >= 0 ? busy : input;
  }
}

bool Waits::DrawShift(RandomBits* random, bool wait, Shift* shift) const {
  if (blocks_.empty()) return false;
  const auto [begin, end] = blocks_[random->Below(blocks_.size())];  // the last op first
  const int32_t others = end - begin - 1;
  shift->behind = random->Below(2) == 0;
  const bool all_the_way = random->Below(2) == 0;
  const int32_t drawn = static_cast<int32_t>(random->Below(others));
  const int32_t place = shift->behind ? begin + 1 + drawn : begin + drawn;
  shift->op = path_[place];
  int32_t furthest = place;
  if (shift->behind) {
    const bool has_effect = wait || ReadyOf(path_[place - 1]) <= StartOf(shift->op);
    if (has_effect) furthest = begin;
  } else {
    const int64_t ready_ns = ReadyOf(shift->op);
    while (furthest + 1 < end) {
      const int32_t other = path_[furthest + 1];
      if (wait ? ready_ns >= EndOf(other) : ready_ns > StartOf(other)) break;
      ++furthest;
    }
  }
  if (furthest == place) return false;
  const int32_t most = std::abs(furthest - place);
  const int32_t far = all_the_way ? most : 1;
  shift->other = path_[place + (furthest < place ? -far : far)];
  return true;
}

int64_t Waits::ReadyOf(int32_t op) const {
  int64_t ready_ns = 0;
  for (int32_t i = input_begin_[op]; i < input_begin_[op + 1]; ++i) ready_ns = std::max(ready_ns, EndOf(inputs_[i]));
  return ready_ns;
}

size_t Waits::PlaceOf(int32_t device, int64_t end_ns) const {
  const uint64_t mixed = (static_cast<uint64_t>(end_ns) * kMaxDevices + device) * 0x9e3779b97f4a7c15;
  return (mixed >> 20) & (ends_.size() - 1);
}

void Waits::KeepEnds(const int32_t* device_of_unit) {
  std::fill(ends_.begin(), ends_.end(), -1);
  for (int32_t op = 0; op < plan_.num_ops; ++op) {
    device_of_op_[op] = device_of_unit[UnitOf(op)];
    if (EndOf(op) == StartOf(op)) continue;
    size_t place = PlaceOf(device_of_op_[op], EndOf(op));
    while (ends_[place] >= 0) place = (place + 1) & (ends_.size() - 1);
    ends_[place] = op;
  }
}

int32_t Waits::EndsAt(int32_t device, int64_t end_ns) const {
  for (size_t place = PlaceOf(device, end_ns); ends_[place] >= 0; place = (place + 1) & (ends_.size() - 1)) {
    const int32_t op = ends_[place];
    if (EndOf(op) == end_ns && device_of_op_[op] == device) return op;
  }
  return -1;
}

int32_t Waits::LastInput(int32_t op) const {
  int32_t last = -1;
  for (int32_t i = input_begin_[op]; i < input_begin_[op + 1]; ++i) {
    const int32_t producer = inputs_[i];
    const bool here = device_of_op_[producer] == device_of_op_[op];
    if (here && EndOf(producer) == StartOf(op)) return producer;
    if (!here && (last < 0 || EndOf(producer) > EndOf(last))) last = producer;
  }
  return last;
}

int32_t Waits::EndsLast() const {
  int32_t last = -1;
  for (int32_t op = 0; op < plan_.num_ops; ++op) {
    if (last < 0 || EndOf(op) > EndOf(last)) last = op;
  }
  return last;
}

void Waits::Add(int32_t producer, int32_t consumer, int64_t length_ns) {
  if (length_ns <= 0) return;
  until_ns_.push_back(length_ns + (until_ns_.empty() ? 0 : until_ns_.back()));
  waits_.push_back({producer, consumer});
}

bool Waits::Draw(RandomBits* random, Wait* wait) const {
  if (waits_.empty()) return false;
  const int64_t drawn = static_cast<int64_t>(random->Below(until_ns_.back()));
  *wait = waits_[std::upper_bound(until_ns_.begin(), until_ns_.end(), drawn) - until_ns_.begin()];
  return true;
}

}  // namespace tf_placer
