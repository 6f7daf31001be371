#include "moves.h"

#include <algorithm>
#include <utility>

namespace tf_placer {
namespace {

constexpr int kTries = 8;  // units that are drawn until one fits

}  // namespace

std::string CheckMoveArrays(const MoveArrays& a) {
  for (int64_t i = 0; i < 2 * int64_t{a.num_edges}; ++i) {
    if (a.edges[i] < 0 || a.edges[i] >= a.num_units) return At("edges", i, "is not a unit");
  }
  if (a.neighbor_offset[0] != 0 || a.neighbor_offset[a.num_units] != a.num_neighbors) {
    return "neighbor_offset must begin with 0 and end with the number of neighbors";
  }
  for (int64_t u = 0; u < a.num_units; ++u) {
    if (a.neighbor_offset[u] > a.neighbor_offset[u + 1] || a.neighbor_offset[u + 1] > a.num_neighbors) {
      return At("neighbor_offset", u + 1, "is below the one before it or beyond the neighbors");
    }
    if (a.work_before[u] >= a.work_before[u + 1]) return At("work_before", u + 1, "is not above the one before it");
  }
  if (a.work_before[0] != 0) return "work_before must begin with 0";
  for (int64_t i = 0; i < a.num_neighbors; ++i) {
    if (a.neighbors[i] < 0 || a.neighbors[i] >= a.num_units) return At("neighbors", i, "is not a unit");
  }
  if (a.num_sizes < 1) return "piece_sizes: expected at least one";
  for (int64_t i = 0; i < a.num_sizes; ++i) {
    if (a.piece_sizes[i] < 1) return At("piece_sizes", i, "is below 1");
  }
  for (int64_t i = 0; a.num_parts > 0 && i < a.num_units; ++i) {
    if (a.part_of_unit[i] < -1 || a.part_of_unit[i] >= a.num_parts) return At("part_of_unit", i, "is not a part");
  }
  for (int64_t i = 0; i < int64_t{a.num_units} * a.num_parts; ++i) {
    if (a.copies[i] < -1 || a.copies[i] >= a.num_units) return At("copies", i, "is not a unit");
  }
  for (int64_t i = 0; i < int64_t{a.num_devices} * a.num_parts; ++i) {
    if (a.turned[i] < 0 || a.turned[i] >= a.num_devices) return At("turned", i, "is not a device");
  }
  return "";
}

Moves::Moves(const MoveArrays& arrays, const SimulationPlan& plan)
    : arrays_(arrays), piece_of_unit_(arrays.num_units, 0) {
  if (arrays.path_chance > 0 || arrays.reads_waits) waits_.emplace(plan);
}

void Moves::Forget(Spans* spans) {
  crossing_is_known_ = waits_are_known_ = false;
  spans_are_known_ = waits_.has_value() && !spans->start_ns.empty();
  if (spans_are_known_) waits_->TakeSpans(spans);
}

const Move& Moves::Draw(const int32_t* device_of_unit, RandomBits* random) {
  move_.steps.clear();
  const int32_t devices = arrays_.num_devices;
  if (devices == 1 || arrays_.num_units == 0) return move_;
  const int32_t size = arrays_.piece_sizes[random->Below(arrays_.num_sizes)];
  const Growth growth{size, random->Chance(arrays_.kind_chance)};
  First first = DrawFirst(device_of_unit, random);
  for (int i = 1; i < kTries && Elsewhere(first.unit, device_of_unit[first.unit]) == 0; ++i) {
    first = DrawFirst(device_of_unit, random);
  }
  move_.of_one_kind = growth.of_one_kind;
  move_.from_path = first.is_on_path;
  const int32_t source = device_of_unit[first.unit];
  const int32_t elsewhere = Elsewhere(first.unit, source);
  if (elsewhere == 0) return move_;
  const bool* const allowed = arrays_.allowed + int64_t{first.unit} * devices;
  int32_t target = first.other_device;
  if (target == source || !random->Chance(arrays_.towards_chance) || !allowed[target]) {
    target = source;
    for (int64_t i = static_cast<int64_t>(random->Below(elsewhere)); i >= 0; i -= allowed[target]) {
      target = (target + 1) % devices;
    }
  }
  Shift(device_of_unit, first.unit, growth, target);
  if (arrays_.num_parts > 0 && random->Chance(arrays_.copies_chance)) {
    ShiftCopies(device_of_unit, random->Chance(arrays_.together_chance));
    return move_;
  }
  if (!random->Chance(arrays_.swap_chance)) return move_;
  for (int i = 0; i < kTries; ++i) {
    const int32_t unit = DrawFirst(device_of_unit, random).unit;
    if (device_of_unit[unit] != target) continue;
    Shift(device_of_unit, unit, growth, source);
    break;
  }
  return move_;
}

int32_t Moves::Elsewhere(int32_t unit, int32_t source) const {
  const bool* const allowed = arrays_.allowed + int64_t{unit} * arrays_.num_devices;
  return static_cast<int32_t>(std::count(allowed, allowed + arrays_.num_devices, true)) - allowed[source];
}

Moves::First Moves::DrawFirst(const int32_t* device_of_unit, RandomBits* random) {
  Wait wait;
  if (DrawWait(device_of_unit, random, &wait)) {
    if (wait.producer == wait.consumer) return {wait.producer, device_of_unit[wait.producer], true};
    if (random->Below(2) == 0) std::swap(wait.producer, wait.consumer);
    return {wait.producer, device_of_unit[wait.consumer], true};
  }
  const int32_t* const edges = arrays_.edges;
  if (random->Chance(arrays_.crossing_chance)) {
    if (!crossing_is_known_) {
      crossing_.clear();
      for (int32_t e = 0; e < arrays_.num_edges; ++e) {
        if (device_of_unit[edges[2 * e]] != device_of_unit[edges[2 * e + 1]]) crossing_.push_back(e);
      }
      crossing_is_known_ = true;
    }
    if (!crossing_.empty()) {
      const int32_t edge = crossing_[random->Below(crossing_.size())];
      const int32_t end = static_cast<int32_t>(random->Below(2));
      return {edges[2 * edge + end], device_of_unit[edges[2 * edge + 1 - end]], false};
    }
  }
  const int64_t* const work = arrays_.work_before;
  const int64_t drawn = static_cast<int64_t>(random->Below(work[arrays_.num_units]));
  const int32_t unit =
      static_cast<int32_t>(std::upper_bound(work + 1, work + arrays_.num_units + 1, drawn) - (work + 1));
  return {unit, device_of_unit[unit], false};
}

bool Moves::DrawWait(const int32_t* device_of_unit, RandomBits* random, Wait* wait) {
  if (!waits_.has_value() || !random->Chance(arrays_.path_chance)) return false;
  return WaitsOf(device_of_unit).Draw(random, wait);
}

const Waits& Moves::WaitsOf(const int32_t* device_of_unit) {
  if (!waits_are_known_) waits_->Read(device_of_unit, !spans_are_known_);
  waits_are_known_ = true;
  return *waits_;
}

// As far as the piece may be there. A unit is in one of the two pieces of a move at most: they grow on different devices.
void Moves::Shift(const int32_t* device_of_unit, int32_t first, const Growth& growth, int32_t target) {
  Grow(device_of_unit, first, growth);
  for (const int32_t unit : piece_) {
    if (arrays_.allowed[int64_t{unit} * arrays_.num_devices + target]) {
      move_.steps.push_back({unit, device_of_unit[unit], target});
    }
  }
}

// The copies of what moves, as far as they are in no piece: to the same device, or to one that is as far from it as their
// parts are, so that copies which are spread over devices stay so.
void Moves::ShiftCopies(const int32_t* device_of_unit, bool together) {
  const int32_t parts = arrays_.num_parts;
  const size_t moved = move_.steps.size();
  for (size_t i = 0; i < moved; ++i) {
    const Step step = move_.steps[i];
    const int32_t part = arrays_.part_of_unit[step.unit];
    if (part < 0) continue;
    for (int32_t p = 0; p < parts; ++p) {
      const int32_t copy = arrays_.copies[int64_t{step.unit} * parts + p];
      if (copy < 0 || piece_of_unit_[copy] == num_pieces_) continue;
      const int32_t target =
          together ? step.target : arrays_.turned[int64_t{step.target} * parts + (p - part + parts) % parts];
      const int32_t source = device_of_unit[copy];
      if (target == source || !arrays_.allowed[int64_t{copy} * arrays_.num_devices + target]) continue;
      piece_of_unit_[copy] = num_pieces_;
      move_.steps.push_back({copy, source, target});
    }
  }
}

// Units of one device around one of them, in breadth-first order.
void Moves::Grow(const int32_t* device_of_unit, int32_t first, const Growth& growth) {
  if (++num_pieces_ == INT32_MAX) {
    std::fill(piece_of_unit_.begin(), piece_of_unit_.end(), 0);
    num_pieces_ = 1;
  }
  const int32_t device = device_of_unit[first];
  const int32_t kind = arrays_.kind_of_unit[first];
  piece_.assign(1, first);
  piece_of_unit_[first] = num_pieces_;
  for (size_t i = 0; i < piece_.size(); ++i) {
    const int32_t unit = piece_[i];
    for (int32_t k = arrays_.neighbor_offset[unit]; k < arrays_.neighbor_offset[unit + 1]; ++k) {
      if (static_cast<int32_t>(piece_.size()) >= growth.size) return;
      const int32_t neighbor = arrays_.neighbors[k];
      if (piece_of_unit_[neighbor] == num_pieces_ || device_of_unit[neighbor] != device) continue;
      if (growth.of_one_kind && arrays_.kind_of_unit[neighbor] != kind) continue;
      piece_of_unit_[neighbor] = num_pieces_;
      piece_.push_back(neighbor);
    }
  }
}

}  // namespace tf_placer
