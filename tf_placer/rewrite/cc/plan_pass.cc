#include "plan_pass.h"

#include <algorithm>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "tensorflow/core/framework/attr_value.pb.h"
#include "tensorflow/core/framework/function.pb.h"
#include "tensorflow/core/framework/node_def.pb.h"

namespace tf_placer {
namespace {

using tensorflow::AttrValue;
using tensorflow::Edge;
using tensorflow::FunctionDef;
using tensorflow::FunctionLibraryDefinition;
using tensorflow::Graph;
using tensorflow::Node;

constexpr int kMostRounds = 32;
constexpr int kMostFollowed = 3;  // Identity behind Identity

uint64_t Mix(uint64_t seed, uint64_t value) {
  // The finalizer of splitmix64 (Steele, Lea and Flood, 2014), over both.
  uint64_t z = seed * 0x9e3779b97f4a7c15ull + value + 0x2545f4914f6cdd1dull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

uint64_t Digest(const std::string& text) {
  uint64_t digest = 0xcbf29ce484222325ull;  // FNV-1a
  for (unsigned char c : text) digest = (digest ^ c) * 0x100000001b3ull;
  return Mix(digest, text.size());
}

// Digests of labels; functions that are called count by content, not by name.
class Labels {
 public:
  explicit Labels(const FunctionLibraryDefinition* library) : library_(library) {}

  uint64_t OfNode(const Node& node) {
    uint64_t label = OfOp(node.type_string());
    return Mix(label, OfAttributes(node.def().attr(), node.IsArg()));
  }

 private:
  static bool IsCounted(const std::string& name, bool is_argument) {
    if (name == "shared_name" || name == "container" || name == "debug_name") return false;
    if (!name.empty() && name[0] != '_') return true;
    return is_argument && (name == "_handle_shapes" || name == "_handle_dtypes" || name == "_output_shapes");
  }

  template <typename Attributes>
  uint64_t OfAttributes(const Attributes& attributes, bool is_argument) {
    std::map<std::string, uint64_t> values;
    for (const auto& [name, value] : attributes) {
      if (IsCounted(name, is_argument)) values[name] = OfValue(value);
    }
    uint64_t digest = values.size();
    for (const auto& [name, value] : values) digest = Mix(Mix(digest, Digest(name)), value);
    return digest;
  }

  uint64_t OfValue(const AttrValue& value) {
    if (value.has_func()) return Mix(OfOp(value.func().name()), OfAttributes(value.func().attr(), false));
    if (value.has_list() && value.list().func_size() > 0) {
      uint64_t digest = value.list().func_size();
      for (const auto& one : value.list().func()) digest = Mix(digest, OfOp(one.name()));
      return digest;
    }
    return Digest(value.SerializeAsString());
  }

  uint64_t OfOp(const std::string& name) {
    const FunctionDef* body = library_ == nullptr ? nullptr : library_->Find(name);
    if (body == nullptr) return Digest(name);
    auto [found, is_new] = functions_.emplace(name, 0);  // 0: what a function sees that calls itself
    if (!is_new) return found->second;
    return functions_[name] = OfBody(*body);
  }

  uint64_t OfBody(const FunctionDef& body) {
    std::unordered_map<std::string, uint64_t> position;
    for (const auto& argument : body.signature().input_arg()) position.emplace(argument.name(), position.size());
    for (const auto& node : body.node_def()) position.emplace(node.name(), position.size());
    auto of_tensor = [&](const std::string& text) {
      const size_t start = text[0] == '^', colon = text.find(':');
      const auto found = position.find(text.substr(start, colon == std::string::npos ? colon : colon - start));
      const uint64_t rest = Digest(colon == std::string::npos ? "" : text.substr(colon));
      return Mix(Mix(start, found == position.end() ? ~0ull : found->second), rest);
    };
    uint64_t digest = position.size();
    for (const auto& argument : body.signature().input_arg()) digest = Mix(digest, argument.type());
    for (const auto& node : body.node_def()) {
      digest = Mix(Mix(digest, OfOp(node.op())), OfAttributes(node.attr(), false));
      for (const auto& input : node.input()) digest = Mix(digest, of_tensor(input));
    }
    for (const auto& result : body.signature().output_arg()) {
      const auto found = body.ret().find(result.name());
      if (found != body.ret().end()) digest = Mix(digest, of_tensor(found->second));
    }
    return digest;
  }

  const FunctionLibraryDefinition* library_;
  std::unordered_map<std::string, uint64_t> functions_;
};

bool IsLowered(const std::string& type) {
  static const auto* types = new std::set<std::string>{"While",         "StatelessWhile",  "If",
                                                       "StatelessIf",   "Case",            "StatelessCase",
                                                       "PartitionedCall", "StatefulPartitionedCall"};
  return types->count(type) > 0;
}

// The op of a plan with a node's name, whole or without the calls around it, from the outermost on.
const NamedPlan::Op* FindNamed(const NamedPlan& plan, std::string name, const std::string& type,
                               std::string* found_name) {
  for (;;) {
    const auto found = plan.ops.find(name);
    if (found != plan.ops.end() && found->second.type == type) {
      *found_name = name;
      return &found->second;
    }
    const size_t slash = name.find('/');
    if (slash == std::string::npos) return nullptr;
    name = name.substr(slash + 1);
  }
}

std::vector<std::string> FindParts(const NamedPlan& plan, const Node& node) {
  std::vector<std::string> devices;
  if (node.type_string() != "IdentityN") return devices;
  for (int i = 0; i < node.num_outputs(); ++i) {
    std::string unused;
    const auto* part = FindNamed(plan, node.name() + "/" + std::to_string(i), "Identity", &unused);
    devices.push_back(part == nullptr ? "" : part->device);
  }
  const bool has_any = std::any_of(devices.begin(), devices.end(), [](const auto& one) { return !one.empty(); });
  return has_any ? devices : std::vector<std::string>();
}

const NamedPlan::Op* Find(const NamedPlan& plan, const Node& node, bool has_lowered, std::string* found_name) {
  if (const auto* op = FindNamed(plan, node.name(), node.type_string(), found_name)) return op;
  if (!has_lowered) return nullptr;
  std::string name = node.name();
  for (;;) {  // inside of what was a loop or a branch
    const size_t last = name.rfind('/');
    if (last == std::string::npos) return nullptr;
    name = name.substr(0, last);
    for (std::string outer = name;;) {
      const auto found = plan.ops.find(outer);
      if (found != plan.ops.end() && IsLowered(found->second.type)) return &found->second;
      const size_t slash = outer.find('/');
      if (slash == std::string::npos) break;
      outer = outer.substr(slash + 1);
    }
  }
}

bool TouchesResource(const Node& node) {
  const auto is_resource = [](tensorflow::DataType type) { return type == tensorflow::DT_RESOURCE; };
  return std::any_of(node.input_types().begin(), node.input_types().end(), is_resource) ||
         std::any_of(node.output_types().begin(), node.output_types().end(), is_resource);
}

// Puts an Identity for each tensor in place of an IdentityN, which would tie all of them to one device.
void Split(const std::vector<std::string>& devices, Node* node, Graph* graph) {
  std::vector<Node*> parts;
  for (int i = 0; i < node->num_outputs(); ++i) {
    tensorflow::NodeDef part;
    part.set_name(graph->NewName(node->name() + "/tf_placer_part"));
    part.set_op("Identity");
    part.set_device(devices[i]);
    (*part.mutable_attr())["T"].set_type(node->output_type(i));
    absl::Status status;
    parts.push_back(graph->AddNode(part, &status));
    if (!status.ok()) {
      for (Node* one : parts) {
        if (one != nullptr) graph->RemoveNode(one);
      }
      return;
    }
  }
  const std::vector<const Edge*> in(node->in_edges().begin(), node->in_edges().end());
  const std::vector<const Edge*> out(node->out_edges().begin(), node->out_edges().end());
  for (const Edge* edge : in) {
    if (edge->IsControlEdge()) {
      for (Node* part : parts) graph->AddControlEdge(edge->src(), part);
    } else {
      graph->AddEdge(edge->src(), edge->src_output(), parts[edge->dst_input()], 0);
    }
  }
  for (const Edge* edge : out) {
    Node* reader = edge->dst();
    if (edge->IsControlEdge()) {
      for (Node* part : parts) graph->AddControlEdge(part, reader);
    } else {
      const int output = edge->src_output(), input = edge->dst_input();
      graph->RemoveEdge(edge);
      graph->AddEdge(parts[output], 0, reader, input);
    }
  }
  graph->RemoveNode(node);
}

bool HasPath(const Node* from, const Node* to) {
  std::vector<const Node*> stack{from};
  std::unordered_set<const Node*> seen{from};
  while (!stack.empty()) {
    const Node* node = stack.back();
    stack.pop_back();
    if (node == to) return true;
    for (const Edge* edge : node->out_edges()) {
      if (seen.insert(edge->dst()).second) stack.push_back(edge->dst());
    }
  }
  return false;
}

// An Identity that a plan does not know is where its value comes from, a Const where it is read: cleaning removed them
// from the plan's program, and the Placer would put them on the first device of this process.
void FollowNeighbours(const Canonical& canonical, std::vector<std::string>* devices) {
  std::unordered_map<const Node*, int> position;
  for (size_t i = 0; i < canonical.nodes.size(); ++i) position[canonical.nodes[i]] = i;
  for (int round = 0; round < kMostFollowed; ++round) {
    for (size_t i = 0; i < canonical.nodes.size(); ++i) {
      const Node* node = canonical.nodes[i];
      if (!(*devices)[i].empty() || TouchesResource(*node)) continue;
      const bool is_identity = node->IsIdentity();
      if (!is_identity && !node->IsConstant()) continue;
      for (const Edge* edge : is_identity ? node->in_edges() : node->out_edges()) {
        const auto other = position.find(is_identity ? edge->src() : edge->dst());
        if (edge->IsControlEdge() || other == position.end() || (*devices)[other->second].empty()) continue;
        (*devices)[i] = (*devices)[other->second];
        break;
      }
    }
  }
}

}  // namespace

Canonical Canonize(const Graph& graph, const FunctionLibraryDefinition* library) {
  Labels labels(library);
  std::vector<uint64_t> color(graph.num_node_ids(), 0);
  Canonical canonical;
  for (Node* node : graph.op_nodes()) {
    color[node->id()] = labels.OfNode(*node);
    canonical.nodes.push_back(node);
  }
  // Each round an op learns of what is one edge farther away, until no two ops are told apart any more.
  size_t classes = 0;
  for (int round = 0; round < kMostRounds; ++round) {
    std::vector<uint64_t> next(color.size(), 0);
    for (const Node* node : canonical.nodes) {
      std::vector<uint64_t> around;
      for (const Edge* edge : node->in_edges()) {
        const uint64_t ends = Mix(uint32_t(edge->dst_input()), uint32_t(edge->src_output()));
        around.push_back(Mix(Mix(1, color[edge->src()->id()]), ends));
      }
      for (const Edge* edge : node->out_edges()) {
        const uint64_t ends = Mix(uint32_t(edge->dst_input()), uint32_t(edge->src_output()));
        around.push_back(Mix(Mix(2, color[edge->dst()->id()]), ends));
      }
      std::sort(around.begin(), around.end());
      uint64_t mixed = color[node->id()];
      for (uint64_t one : around) mixed = Mix(mixed, one);
      next[node->id()] = mixed;
    }
    color.swap(next);
    std::unordered_set<uint64_t> distinct;
    for (const Node* node : canonical.nodes) distinct.insert(color[node->id()]);
    if (distinct.size() <= classes) break;
    classes = distinct.size();
  }
  // Ops of one color stand for each other; the order in which the graph was built decides between them.
  std::sort(canonical.nodes.begin(), canonical.nodes.end(), [&](const Node* a, const Node* b) {
    return std::make_pair(color[a->id()], a->id()) < std::make_pair(color[b->id()], b->id());
  });
  canonical.fingerprint = canonical.nodes.size();
  for (const Node* node : canonical.nodes) {
    canonical.fingerprint = Mix(canonical.fingerprint, color[node->id()]);
  }
  return canonical;
}

PositionPlan Positions(const NamedPlan& plan, const Canonical& canonical) {
  PositionPlan result;
  const bool has_lowered = std::any_of(plan.ops.begin(), plan.ops.end(),
                                       [](const auto& op) { return IsLowered(op.second.type); });
  std::unordered_map<std::string, std::vector<int>> positions;
  for (size_t i = 0; i < canonical.nodes.size(); ++i) {
    std::string name;
    const NamedPlan::Op* op = Find(plan, *canonical.nodes[i], has_lowered, &name);
    result.devices.push_back(op == nullptr ? "" : op->device);
    result.clusters.push_back(op == nullptr || name.empty() ? -1 : op->cluster);
    if (!name.empty()) positions[name].push_back(i);
    auto parts = FindParts(plan, *canonical.nodes[i]);
    if (!parts.empty()) result.parts[i] = std::move(parts);
  }
  FollowNeighbours(canonical, &result.devices);
  for (const auto& [before, after] : plan.order) {
    const auto first = positions.find(before), second = positions.find(after);
    if (first == positions.end() || second == positions.end()) continue;
    // Copies of one function are each in order.
    if (first->second.size() != second->second.size()) continue;
    for (size_t i = 0; i < first->second.size(); ++i) {
      result.order.emplace_back(first->second[i], second->second[i]);
    }
  }
  return result;
}

int Apply(const PositionPlan& plan, const Canonical& canonical, Graph* graph) {
  int written = 0;
  for (size_t i = 0; i < canonical.nodes.size(); ++i) {
    Node* node = canonical.nodes[i];
    if (!plan.devices[i].empty() && !TouchesResource(*node) && !node->IsArg() && !node->IsRetval()) {
      node->set_requested_device(plan.devices[i]);
      ++written;
    }
    if (plan.clusters[i] >= 0) {
      node->AddAttr("_XlaCompile", true);
      node->AddAttr("_XlaScope", "tf_placer_" + std::to_string(plan.clusters[i]));
    }
  }
  for (const auto& [before, after] : plan.order) {
    Node *first = canonical.nodes[before], *second = canonical.nodes[after];
    if (!HasPath(second, first)) graph->AddControlEdge(first, second);
  }
  for (const auto& [position, devices] : plan.parts) Split(devices, canonical.nodes[position], graph);
  return written;
}

}  // namespace tf_placer
