// Fingerprints of graphs, and plans that are applied to graphs of the same fingerprint.

#ifndef TF_PLACER_REWRITE_CC_PLAN_PASS_H_
#define TF_PLACER_REWRITE_CC_PLAN_PASS_H_

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/graph/graph.h"

namespace tf_placer {

// The ops of a graph in an order that does not depend on names, and the digest of all of them.
struct Canonical {
  uint64_t fingerprint = 0;
  std::vector<tensorflow::Node*> nodes;  // without source and sink
};

// Op types, attributes and edges count; names, requested devices and attributes with a leading underscore do not.
// Shapes of arguments, and of the variables behind handles, are such attributes and count all the same.
Canonical Canonize(const tensorflow::Graph& graph, const tensorflow::FunctionLibraryDefinition* library);

// A plan by the names of a traced function's ops.
struct NamedPlan {
  struct Op {
    std::string type, device;
    int cluster = -1;
  };
  std::unordered_map<std::string, Op> ops;
  std::vector<std::pair<std::string, std::string>> order;  // before, after
};

// A plan by positions in `Canonical::nodes`.
struct PositionPlan {
  std::vector<std::string> devices;  // empty: the Placer decides
  std::map<int, std::vector<std::string>> parts;  // of an IdentityN that the plan has as one Identity for each tensor
  std::vector<int> clusters;         // -1: none
  std::vector<std::pair<int, int>> order;
};

// Looks the ops of a graph up by name: whole, or without the names of the calls around them. What is inside of a loop
// or branch that was lowered has the device of the op that it was. Of an IdentityN `x` a plan may have parts `x/i`.
PositionPlan Positions(const NamedPlan& plan, const Canonical& canonical);

// Writes a plan into a graph: requested devices, control edges that close no cycle, and marks for XLA. Ops that touch
// a resource are left to the Placer, which puts them where the resource is. Returns how many devices were written.
int Apply(const PositionPlan& plan, const Canonical& canonical, tensorflow::Graph* graph);

}  // namespace tf_placer

#endif  // TF_PLACER_REWRITE_CC_PLAN_PASS_H_
