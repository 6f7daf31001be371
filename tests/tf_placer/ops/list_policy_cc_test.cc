// Tests of rules of list scheduling without TensorFlow: exits with 1 and says why when one fails.

#include "list_policy.h"

#include <string>
#include <vector>

#include "expect.h"

namespace {

using tf_placer::CheckListArrays;
using tf_placer::ListArrays;
using tf_placer::ListPolicy;

// A chain of four nodes on two devices, each of half a device's work and of its memory.
struct Chain {
  ListArrays Arrays() const {
    ListArrays arrays;
    arrays.num_nodes = 4;
    arrays.num_devices = 2;
    arrays.num_bins = 1;
    arrays.num_ends = neighbor.size();
    arrays.legal = reinterpret_cast<const bool*>(legal.data());
    arrays.work = arrays.memory = arrays.duration = halves.data();
    arrays.kind = kind.data();
    arrays.slowness = zeros.data();
    arrays.window = zeros.data();
    arrays.context = context.data();
    arrays.order_features = order.data();
    arrays.neighbor_offset = offset.data();
    arrays.neighbor = neighbor.data();
    arrays.neighbor_bytes = bytes.data();
    arrays.from_neighbor = reinterpret_cast<const bool*>(from.data());
    arrays.link_fixed = zeros.data();
    arrays.link_per_byte = per_byte.data();
    return arrays;
  }

  Chain() {
    for (int v = 0; v < 4; ++v) {
      context[v * ListPolicy::kContext + ListPolicy::kOne] = 1;
      order[v * ListPolicy::kOrder + ListPolicy::kPlace] = v;
    }
  }

  std::vector<char> legal = std::vector<char>(8, 1);
  std::vector<double> halves = std::vector<double>(8, 0.5), zeros = std::vector<double>(8, 0.0);
  std::vector<double> context = std::vector<double>(4 * ListPolicy::kContext, 0.0);
  std::vector<double> order = std::vector<double>(4 * ListPolicy::kOrder, 0.0);
  std::vector<double> per_byte = {0, 0.01, 0.01, 0};
  std::vector<int32_t> offset = {0, 1, 3, 5, 6}, neighbor = {1, 0, 2, 1, 3, 2};
  std::vector<double> bytes = std::vector<double>(6, 1.0);
  std::vector<char> from = {0, 1, 0, 1, 0, 1};  // each reads the node before
  std::vector<int32_t> kind = {0, 1, 2, 3};
};

std::vector<int32_t> Placed(const Chain& chain, ListPolicy::Feature feature, double coefficient, int passes,
                            const std::vector<int32_t>& kept = std::vector<int32_t>(4, ListPolicy::kNowhere)) {
  const ListArrays arrays = chain.Arrays();
  Expect(CheckListArrays(arrays).empty(), CheckListArrays(arrays));
  std::vector<double> coefficients(ListPolicy::kCoefficients, 0.0);
  coefficients[feature * ListPolicy::kContext + ListPolicy::kOne] = coefficient;
  ListPolicy policy(arrays);
  std::vector<int32_t> once(4), again(4);
  policy.Place(coefficients.data(), passes, kept.data(), once.data());
  policy.Place(coefficients.data(), passes, kept.data(), again.data());
  Expect(once == again, "one rule leaves nothing behind for the next");
  return once;
}

void TestRules() {
  const Chain chain;
  Expect(Placed(chain, ListPolicy::kLoad, -1, 1) == std::vector<int32_t>({0, 1, 0, 1}), "work is shared");
  Expect(Placed(chain, ListPolicy::kTransfer, -1, 1) == std::vector<int32_t>({0, 0, 0, 0}), "nothing crosses");
  Expect(Placed(chain, ListPolicy::kOverfull, -1, 1) == std::vector<int32_t>({0, 0, 1, 1}), "a device has its share");
  Expect(Placed(chain, ListPolicy::kFull, -1, 2) == std::vector<int32_t>({0, 1, 0, 1}), "memory is kept");
  Expect(Placed(chain, ListPolicy::kFinish, -1, 1) == std::vector<int32_t>({0, 0, 0, 0}), "a chain ends sooner on one");
}

// What is kept is there before the first decision, and stays.
void TestKept() {
  const Chain chain;
  const int32_t nowhere = ListPolicy::kNowhere;
  Expect(Placed(chain, ListPolicy::kLoad, -1, 1, {nowhere, nowhere, nowhere, 1}) == std::vector<int32_t>({0, 0, 1, 1}),
         "work is shared with what is kept");
}

void TestWrongArrays() {
  Chain chain;
  chain.neighbor[2] = 4;
  Expect(CheckListArrays(chain.Arrays()) == "neighbor: 4 at 2 is no node", "a neighbor that is not there");
  chain = Chain();
  chain.offset[1] = 7;
  Expect(!CheckListArrays(chain.Arrays()).empty(), "offsets go down");
  chain = Chain();
  chain.kind[3] = 4;
  Expect(CheckListArrays(chain.Arrays()) == "kind: 4 at 3 is no number of a node", "a kind that is not there");
  chain = Chain();
  chain.legal[2] = chain.legal[3] = 0;
  Expect(CheckListArrays(chain.Arrays()) == "legal: node 1 has no device", "nowhere to go");
}

}  // namespace

int main() {
  TestRules();
  TestKept();
  TestWrongArrays();
}
