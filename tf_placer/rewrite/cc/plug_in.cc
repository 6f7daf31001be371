// The plug-in that TensorFlow loads by TF_PLUGGABLE_DEVICE_LIBRARY_PATH: a pass before placement, and a C interface
// through which Python gives it plans.

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <sstream>
#include <unordered_map>

#include "plan_pass.h"
#include "tensorflow/core/common_runtime/device_set.h"
#include "tensorflow/core/common_runtime/optimization_registry.h"

namespace tf_placer {
namespace {

struct Matched {
  int label;
  size_t num_nodes;
  PositionPlan plan;
};

// All plans of this process. A plan begins with the name of a function and the names of its ops; from the first graph
// of that function on it is known by the graph's fingerprint, whatever later functions and their ops are called.
struct Plans {
  std::mutex mutex;
  std::atomic<int> count{0};
  std::unordered_map<std::string, std::pair<int, NamedPlan>> by_function;
  std::unordered_map<uint64_t, Matched> by_fingerprint;
  std::unordered_map<int, int64_t> num_uses;  // label -> graphs
  std::string said;                           // why a plan was left out, a line each
};

Plans& ThePlans() {
  static auto* plans = new Plans;
  return *plans;
}

bool IsDisabled() {
  const char* text = std::getenv("TF_PLACER_DISABLE");
  return text != nullptr && std::strcmp(text, "1") == 0;
}

// Empty, or a device of the plan that this process does not have.
std::string LackingDevice(const PositionPlan& plan, const tensorflow::DeviceSet* devices) {
  std::string checked;
  for (const std::string& device : plan.devices) {
    if (device.empty() || device == checked || devices == nullptr) continue;
    if (devices->FindDeviceByName(device) == nullptr) return device;
    checked = device;
  }
  return "";
}

void Place(const tensorflow::GraphOptimizationPassOptions& options) {
  Plans& plans = ThePlans();
  tensorflow::Graph* graph = options.graph->get();
  std::lock_guard<std::mutex> lock(plans.mutex);
  const auto named = options.function_def == nullptr
                         ? plans.by_function.end()
                         : plans.by_function.find(options.function_def->signature().name());
  const bool is_named = named != plans.by_function.end();
  const size_t num_nodes = graph->num_op_nodes();
  bool may_match = is_named;
  for (const auto& [unused, one] : plans.by_fingerprint) may_match |= one.num_nodes == num_nodes;
  if (!may_match) return;
  const Canonical canonical = Canonize(*graph, options.flib_def);
  if (is_named) {
    plans.by_fingerprint[canonical.fingerprint] = {named->second.first, num_nodes,
                                                   Positions(named->second.second, canonical)};
  }
  const auto found = plans.by_fingerprint.find(canonical.fingerprint);
  if (found == plans.by_fingerprint.end() || found->second.num_nodes != num_nodes) return;
  const std::string lacking = LackingDevice(found->second.plan, options.device_set);
  if (!lacking.empty()) {
    plans.said += "this process has no device " + lacking + "\n";
    return;
  }
  Apply(found->second.plan, canonical, graph);
  ++plans.num_uses[found->second.label];
}

class PlanPass : public tensorflow::GraphOptimizationPass {
 public:
  absl::Status Run(const tensorflow::GraphOptimizationPassOptions& options) override {
    if (options.graph == nullptr || *options.graph == nullptr) return absl::OkStatus();
    if (ThePlans().count.load(std::memory_order_acquire) > 0 && !IsDisabled()) Place(options);
    return absl::OkStatus();
  }
};

// Behind the passes that inline functions and lower loops, which have phases up to 10.
REGISTER_OPTIMIZATION(tensorflow::OptimizationPassRegistry::PRE_PLACEMENT, 1000, PlanPass);

}  // namespace
}  // namespace tf_placer

#define TF_PLACER_TEXT_OF(x) #x
#define TF_PLACER_TEXT(x) TF_PLACER_TEXT_OF(x)

extern "C" {

// What a plug-in is known by that was built for another TensorFlow.
extern const char tf_placer_built_for[];
__attribute__((used)) const char tf_placer_built_for[] =
    "tf_placer plug-in for TensorFlow " TF_PLACER_TEXT(TF_PLACER_TENSORFLOW) ";";

// A legal plug-in has one of the functions that TensorFlow looks for; this one registers nothing by it.
void TF_InitKernel() {}

// Adds the plan of a function. Its lines, with tabs between: "op NAME TYPE DEVICE CLUSTER", "order BEFORE AFTER".
void tf_placer_add_plan(int label, const char* function, const char* lines) {
  tf_placer::NamedPlan plan;
  std::istringstream text(lines);
  for (std::string line; std::getline(text, line);) {
    std::vector<std::string> cells;
    std::istringstream in(line);
    for (std::string cell; std::getline(in, cell, '\t');) cells.push_back(cell);
    if (cells.size() == 5 && cells[0] == "op") {
      plan.ops[cells[1]] = {cells[2], cells[3], std::atoi(cells[4].c_str())};
    } else if (cells.size() == 3 && cells[0] == "order") {
      plan.order.emplace_back(cells[1], cells[2]);
    }
  }
  tf_placer::Plans& plans = tf_placer::ThePlans();
  std::lock_guard<std::mutex> lock(plans.mutex);
  plans.by_function[function] = {label, std::move(plan)};
  plans.count = plans.by_function.size();
}

// Forgets a plan, by name and by fingerprint.
void tf_placer_remove_plan(int label) {
  tf_placer::Plans& plans = tf_placer::ThePlans();
  std::lock_guard<std::mutex> lock(plans.mutex);
  for (auto one = plans.by_function.begin(); one != plans.by_function.end();) {
    one = one->second.first == label ? plans.by_function.erase(one) : std::next(one);
  }
  for (auto one = plans.by_fingerprint.begin(); one != plans.by_fingerprint.end();) {
    one = one->second.label == label ? plans.by_fingerprint.erase(one) : std::next(one);
  }
  plans.count = plans.by_function.size();
}

// Graphs that a plan was written into.
int64_t tf_placer_uses(int label) {
  tf_placer::Plans& plans = tf_placer::ThePlans();
  std::lock_guard<std::mutex> lock(plans.mutex);
  return plans.num_uses[label];
}

// Why plans were left out, a line each; at most `size - 1` bytes are written.
void tf_placer_said(char* text, int64_t size) {
  tf_placer::Plans& plans = tf_placer::ThePlans();
  std::lock_guard<std::mutex> lock(plans.mutex);
  std::strncpy(text, plans.said.c_str(), size - 1);
  text[size - 1] = 0;
}

}  // extern "C"
