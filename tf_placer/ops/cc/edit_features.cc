#include "edit_features.h"

#include <algorithm>
#include <cmath>

namespace tf_placer {
namespace {

constexpr int kBins = 64;
constexpr int kMostOps = 128;
constexpr float kCoarse = 0.05f, kFine = 0.002f;  // shares of the step that are squashed to a half

float Squashed(float share, float half) { return share / (std::fabs(share) + half); }

float Logarithm(float count) { return 0.1f * std::log1p(count); }

}  // namespace

EditFeatures::EditFeatures(const SimulationPlan& plan)
    : plan_(plan),
      feeds_begin_(plan.num_ops + 1, 0),
      reads_begin_(plan.num_ops + 1, 0),
      now_(plan.num_ops),
      target_of_unit_(plan.unit_op_begin.size() - 1, -1),
      busy_ns_(plan.num_devices * kBins),
      work_ns_(plan.num_devices),
      more_ns_(plan.num_devices) {
  AddEdges();
}

void EditFeatures::AddEdges() {
  plan_.EachEdge([this](int32_t producer, int32_t consumer, int32_t) {
    ++feeds_begin_[producer + 1];
    ++reads_begin_[consumer + 1];
  });
  for (int32_t op = 0; op < plan_.num_ops; ++op) {
    feeds_begin_[op + 1] += feeds_begin_[op];
    reads_begin_[op + 1] += reads_begin_[op];
  }
  feeds_.resize(feeds_begin_.back());
  reads_.resize(reads_begin_.back());
  std::vector<int32_t> next_fed(feeds_begin_), next_read(reads_begin_);
  plan_.EachEdge([&](int32_t producer, int32_t consumer, int32_t size) {
    feeds_[next_fed[producer]++] = {consumer, size};
    reads_[next_read[consumer]++] = {producer, size};
  });
}

void EditFeatures::Read(const int32_t* device_of_unit, const Waits& waits) {
  runtime_ns_ = 1;
  for (int32_t op = 0; op < plan_.num_ops; ++op) {
    const int32_t unit = plan_.inits[op].unit;
    now_[op] = {static_cast<float>(waits.StartOf(op)), static_cast<float>(waits.EndOf(op)), unit,
                static_cast<int16_t>(device_of_unit[unit]), false};
    runtime_ns_ = std::max(runtime_ns_, now_[op].end_ns);
  }
  for (const int32_t op : waits.path()) now_[op].on_path = true;
  std::fill(busy_ns_.begin(), busy_ns_.end(), 0.0f);
  std::fill(work_ns_.begin(), work_ns_.end(), 0.0f);
  const float bin_ns = runtime_ns_ / kBins;
  for (const OpNow& op : now_) {
    if (op.end_ns <= op.start_ns) continue;
    work_ns_[op.device] += op.end_ns - op.start_ns;
    const int last = std::min(kBins - 1, static_cast<int>(op.end_ns / bin_ns));
    for (int bin = std::min(kBins - 1, static_cast<int>(op.start_ns / bin_ns)); bin <= last; ++bin) {
      const float within_ns = std::min(op.end_ns, (bin + 1) * bin_ns) - std::max(op.start_ns, bin * bin_ns);
      busy_ns_[op.device * kBins + bin] += std::max(within_ns, 0.0f);
    }
  }
}

inline float EditFeatures::LinkNs(int32_t size, int source, int target) const {
  if (source == target) return 0;
  return static_cast<float>(plan_.sizes[size + plan_.link_class[source * plan_.num_devices + target]]);
}

inline void EditFeatures::Count(const OpNow& producer, const OpNow& consumer, int32_t size) {
  const int source = DeviceAfter(producer), target = DeviceAfter(consumer);
  if (producer.device == consumer.device && source == target) return;
  const float was_ns = LinkNs(size, producer.device, consumer.device), is_ns = LinkNs(size, source, target);
  if (was_ns == is_ns) return;
  const float between_ns = std::max(consumer.start_ns - producer.end_ns, 0.0f);
  crossings_.removed_ns += was_ns;
  crossings_.added_ns += is_ns;
  crossings_.removed += was_ns > 0;
  crossings_.added += is_ns > 0;
  if (producer.on_path && consumer.on_path) {
    crossings_.path_removed_ns += was_ns;
    crossings_.path_added_ns += is_ns;
  }
  crossings_.urgent_added_ns += std::max(is_ns - between_ns, 0.0f);
  if (between_ns <= 1.05f * was_ns) crossings_.urgent_removed_ns += was_ns;
}

void EditFeatures::AddOp(int32_t op, const Step& step) {
  const OpNow& now = now_[op];
  const int64_t* const compute_ns = &plan_.costs[plan_.ops[op].cost + 1];
  const float source_ns = static_cast<float>(compute_ns[step.source]);
  const float target_ns = static_cast<float>(compute_ns[step.target]);
  float slack_ns = runtime_ns_ - now.end_ns;
  for (int32_t i = feeds_begin_[op]; i < feeds_begin_[op + 1]; ++i) {
    const OpNow& consumer = now_[feeds_[i].op];
    slack_ns = std::min(slack_ns, consumer.start_ns - now.end_ns);
    Count(now, consumer, feeds_[i].size);
  }
  for (int32_t i = reads_begin_[op]; i < reads_begin_[op + 1]; ++i) {
    const OpNow& producer = now_[reads_[i].op];
    // Where both move the edge is counted with the producer.
    if (target_of_unit_[producer.unit] < 0) Count(producer, now, reads_[i].size);
  }
  if (source_ns == 0 && target_ns == 0) return;
  work_.source_ns += source_ns;
  work_.target_ns += target_ns;
  more_ns_[step.source] -= source_ns;
  more_ns_[step.target] += target_ns;
  work_.slack_ns += slack_ns * source_ns;
  work_.begin_ns = std::min(work_.begin_ns, now.start_ns);
  work_.end_ns = std::max(work_.end_ns, now.end_ns);
  if (now.on_path) {
    work_.path_ns += source_ns;
    work_.path_target_ns += target_ns;
  }
}

// Sums over some of the ops become those of all.
void EditFeatures::Scale(int stride) {
  const float all = static_cast<float>(stride);
  for (float* sum : {&crossings_.removed_ns, &crossings_.added_ns, &crossings_.removed, &crossings_.added,
                     &crossings_.path_removed_ns, &crossings_.path_added_ns, &crossings_.urgent_removed_ns,
                     &crossings_.urgent_added_ns, &work_.source_ns, &work_.target_ns, &work_.path_ns,
                     &work_.path_target_ns, &work_.slack_ns}) {
    *sum *= all;
  }
  for (float& more_ns : more_ns_) more_ns *= all;
}

// Of the part of the step in which what moves is computed now.
float EditFeatures::IdleShare(int device) const {
  if (work_.end_ns <= work_.begin_ns) return 1;
  const float bin_ns = runtime_ns_ / kBins;
  const int first = std::min(kBins - 1, static_cast<int>(work_.begin_ns / bin_ns));
  const int last = std::min(kBins - 1, static_cast<int>(work_.end_ns / bin_ns));
  float busy_ns = 0;
  for (int bin = first; bin <= last; ++bin) busy_ns += busy_ns_[device * kBins + bin];
  return 1 - busy_ns / (bin_ns * (last - first + 1));
}

void EditFeatures::Of(const Move& move, float* features) {
  const std::vector<Step>& steps = move.steps;
  crossings_ = {};
  work_ = {0, 0, 0, 0, 0, runtime_ns_, 0};
  std::fill(more_ns_.begin(), more_ns_.end(), 0.0f);
  for (const Step& step : steps) target_of_unit_[step.unit] = step.target;
  int back = 0, ops = 0;
  for (const Step& step : steps) {
    back += step.source != steps[0].source;
    ops += plan_.unit_op_begin[step.unit + 1] - plan_.unit_op_begin[step.unit];
  }
  // Of a large piece some ops stand for all: a look at each would take as long as a simulation.
  const int stride = (ops + kMostOps - 1) / kMostOps;
  int next = 0;
  for (const Step& step : steps) {
    const int count = plan_.unit_op_begin[step.unit + 1] - plan_.unit_op_begin[step.unit];
    for (; next < count; next += stride) AddOp(plan_.unit_ops[plan_.unit_op_begin[step.unit] + next], step);
    next -= count;
  }
  for (const Step& step : steps) target_of_unit_[step.unit] = -1;
  Scale(stride);

  const int source = steps[0].source, target = steps[0].target;
  const Crossings& c = crossings_;
  const Work& w = work_;
  float most_ns = 0, most_after_ns = 0;
  for (int d = 0; d < plan_.num_devices; ++d) {
    most_ns = std::max(most_ns, work_ns_[d]);
    most_after_ns = std::max(most_after_ns, work_ns_[d] + more_ns_[d]);
  }
  const float idle = IdleShare(target);
  const float idle_ns = idle * std::max(w.end_ns - w.begin_ns, 0.0f);
  const float longer_ns = w.target_ns - w.source_ns;
  const float crossing_ns = c.added_ns - c.removed_ns;
  const float urgent_ns = c.urgent_added_ns - c.urgent_removed_ns;
  const float path_ns = w.path_target_ns - w.path_ns + c.path_added_ns - c.path_removed_ns;
  const float balance_ns = most_after_ns - most_ns;

  float* f = features;
  *f++ = Logarithm(steps.size());
  *f++ = Logarithm(back);
  *f++ = Logarithm(ops);
  *f++ = Logarithm(c.removed);
  *f++ = Logarithm(c.added);
  *f++ = move.of_one_kind;
  *f++ = move.from_path;
  *f++ = w.source_ns > 0 ? w.slack_ns / w.source_ns / runtime_ns_ : 1;
  *f++ = idle;
  *f++ = IdleShare(source);
  *f++ = work_ns_[source] / runtime_ns_;
  *f++ = work_ns_[target] / runtime_ns_;
  *f++ = most_ns / runtime_ns_;
  *f++ = Squashed(w.target_ns, idle_ns + kFine * runtime_ns_);
  for (const float ns : {w.source_ns, w.target_ns, longer_ns, w.path_ns, w.path_target_ns, c.removed_ns, c.added_ns,
                         crossing_ns, c.path_removed_ns, c.path_added_ns, path_ns, c.urgent_removed_ns,
                         c.urgent_added_ns, urgent_ns, balance_ns}) {
    *f++ = Squashed(ns / runtime_ns_, kCoarse);
  }
  for (const float ns : {longer_ns, crossing_ns, path_ns, urgent_ns, balance_ns}) {
    *f++ = Squashed(ns / runtime_ns_, kFine);
  }
}

}  // namespace tf_placer
