// Devices for nodes one after the other, by a rule whose coefficients are given. std only.

#ifndef TF_PLACER_OPS_CC_LIST_POLICY_H_
#define TF_PLACER_OPS_CC_LIST_POLICY_H_

#include <cstdint>
#include <string>
#include <vector>

namespace tf_placer {

// A graph of nodes and a cluster, in numbers without units. V nodes, E ends of edges, D devices, T bins of the step.
struct ListArrays {
  int64_t num_nodes = 0, num_devices = 0, num_bins = 0, num_ends = 0;
  const bool* legal = nullptr;               // [V, D]
  const double* work = nullptr;              // [V, D] shares of what a device has in the mean
  const double* slowness = nullptr;          // [V, D] logarithm of the time over the fastest device's
  const double* duration = nullptr;          // [V, D] shares of the step
  const double* memory = nullptr;            // [V, D] shares of what a device holds
  const int32_t* kind = nullptr;             // [V] in [0, V), equal for nodes that do the same
  const double* window = nullptr;            // [V, T] when in the step the work could be done
  const double* context = nullptr;           // [V, kContext]; that of kOpen is not read
  const double* order_features = nullptr;    // [V, kOrder]
  const int32_t* neighbor_offset = nullptr;  // [V + 1]
  const int32_t* neighbor = nullptr;         // [E]
  const double* neighbor_bytes = nullptr;    // [E]
  const bool* from_neighbor = nullptr;       // [E] whether the bytes come from the neighbor
  const double* link_fixed = nullptr;        // [D, D] from row to column, shares of the step; 0 on the diagonal
  const double* link_per_byte = nullptr;     // [D, D]
};

// What is wrong with the arrays, in one line that names the first; empty where nothing is.
std::string CheckListArrays(const ListArrays& arrays);

// The same of where nodes are kept by each of B rules.
std::string CheckKept(const ListArrays& arrays, int64_t rules, const int32_t* kept_bxv);

// Nodes are decided in an order, each on the legal device with the highest score
//
//   score(v, d) = sum_f (sum_c policy[f, c] context_c(v)) feature_f(v, d);
//
// features are of what is decided already: what each device has to do, holds, and would have to be sent, when it would
// be done, and where nodes went that do the same in other layers. After the first pass each node is taken away and
// decided again, with all others in their places. Nodes may also be kept where they are.
class ListPolicy {
 public:
  // Features of a node on a device.
  enum Feature {
    kSlowness,     // how much slower than on its fastest device
    kLoad,         // the device's work so far
    kOverfull,     // by how much it would have more than its share
    kBalance,      // what it would have over what any device would
    kRival,        // its work at the times when the node's could be done
    kTransfer,     // what takes to bring from neighbors, or to bring them
    kAnyTransfer,  // its logarithm
    kAffinity,     // share of the node's bytes that neighbors on the device have
    kAnyAffinity,  // its square root
    kIndirect,     // the same of neighbors that are not decided
    kMemory,       // what it would hold
    kFull,         // more than it should
    kUnused,       // nothing is on it
    kLast,         // the node before went there
    kFinish,       // when it would end there, after the earliest end anywhere
    kAnyFinish,    // its logarithm
    kIdle,         // logarithm of how long the device would wait for what the node reads
    kAlike,        // share of the decided nodes of its kind that are there
    kAlikeLast,    // the last one of its kind went there
    kFeatures,
  };
  // What the coefficients depend on.
  enum Context {
    kOne,
    kSlack,           // of the node
    kWork,            // of the node
    kProblemTraffic,  // bytes over work of the problem
    kParallel,        // how far the step could be split
    kTraffic,         // bytes over work of the node
    kOpen,            // share of the node's bytes of neighbors that are not decided
    kTightness,       // what is to be held over what devices hold
    kContext,
  };
  // What the order depends on, beside the node's place in the step.
  enum Order { kPlace, kOrderWork, kOrderSlack, kOrderBytes, kOrder };

  // Coefficients [kFeatures, kContext], then of the order but kPlace.
  static constexpr int64_t kCoefficients = kFeatures * kContext + kOrder - 1;
  static constexpr int32_t kNowhere = -1;

  // The arrays belong to the caller.
  explicit ListPolicy(const ListArrays& arrays);

  // Writes the device of each node [V]. Where kept_v is not kNowhere a node is there from the beginning.
  void Place(const double* coefficients, int passes, const int32_t* kept_v, int32_t* device_of_node_v);

 private:
  int32_t Decide(const double* coefficients, int64_t node);
  double ReadyOn(int64_t node, int64_t device) const;
  void Put(int64_t node, int32_t device, double sign);

  const ListArrays& arrays_;
  std::vector<double> total_bytes_;                    // [V]
  std::vector<double> load_, memory_, busy_;           // [D], [D], [D, T]
  std::vector<double> near_bytes_, near_count_;        // [V, D] of decided neighbors
  std::vector<int64_t> nodes_on_;                      // [D]
  std::vector<int32_t> alike_, last_alike_;            // [V, D], [V] by kind: nodes there, device of the last one
  std::vector<double> done_, end_, end_of_node_;       // [D], [D], [V] of the pass: devices, the node on each, nodes
  std::vector<double> coefficients_of_node_, scores_;  // [kFeatures], [D]
  std::vector<double> features_;                       // [D, kFeatures]
  std::vector<int64_t> order_;
  std::vector<double> keys_;
  std::vector<int32_t> fixed_;  // [V] devices of nodes that are not decided, else kNowhere
  int32_t* device_of_node_ = nullptr;
  int32_t last_ = kNowhere;
};

}  // namespace tf_placer

#endif  // TF_PLACER_OPS_CC_LIST_POLICY_H_
