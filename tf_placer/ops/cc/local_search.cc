#include "local_search.h"

#include <algorithm>
#include <optional>

#include "placed.h"
#include "sequences.h"
#include "simulate_within.h"
#include "workspace.h"

namespace tf_placer {
namespace {

// One call's work on one chain.
class Climber {
 public:
  Climber(const SearchProblem& problem, Chain* chain)
      : problem_(problem),
        chain_(*chain),
        moves_(problem.moves, problem.orders[0]),
        random_(chain->random_state) {
    const bool by_plan = chain->priority_of_op != nullptr;
    for (const SimulationPlan& order : problem.orders) {
      workspaces_.emplace_back(order, by_plan);
      placed_.emplace_back(order);
    }
    if (by_plan) {
      sequences_.emplace(problem.orders[0], chain->device_of_unit, chain->priority_of_op, &workspaces_);
    }
    if (moves_.ReadsSpans()) {
      workspaces_[0].spans.start_ns.resize(problem.orders[0].num_ops);
      workspaces_[0].spans.end_ns.resize(problem.orders[0].num_ops);
    }
    const bool keeps_edits = chain->edits != nullptr;
    if (problem.choice.draws > 1 || keeps_edits) chooser_.emplace(problem.orders[0], problem.choice, keeps_edits);
    for (int32_t u = 0; u < problem.moves.num_units; ++u) {
      Move({u, 0, chain_.device_of_unit[u]});
    }
    if (by_plan && chain->rounds > 0) {
      RuntimeWithin(kOver);
      moves_.Forget(&workspaces_[0].spans);
    }
  }

  void Run(int64_t rounds) {
    for (int64_t i = 0; i < rounds; ++i) {
      if (chain_.rounds == 0) {
        Begin();
      } else {
        Round();
      }
      ++chain_.rounds;
    }
    chain_.random_state = random_.state();
    if (sequences_.has_value()) sequences_->Write(chain_.priority_of_op);
  }

 private:
  void Begin() {
    chain_.runtime_ns = RuntimeWithin(kOver);
    std::fill_n(chain_.late_ns, chain_.late_length, chain_.runtime_ns);
    KeepBest();
    if (sequences_.has_value()) moves_.Forget(&workspaces_[0].spans);
    if (chain_.edits != nullptr) chain_.edits = std::fill_n(chain_.edits, kEditColumns, 0.0f);
  }

  void Round() {
    int64_t& late_ns = chain_.late_ns[chain_.rounds % chain_.late_length];
    const int64_t limit_ns = std::max(chain_.runtime_ns, late_ns);
    const int64_t before_ns = chain_.runtime_ns;
    if (!TryShift(limit_ns)) {
      const std::vector<Step>& steps = Draw();
      if (!steps.empty()) Try(steps, limit_ns);
    }
    if (chain_.edits != nullptr) KeepEdit(before_ns);
    late_ns = std::min(late_ns, chain_.runtime_ns);
  }

  const std::vector<Step>& Draw() {
    if (chooser_.has_value()) return chooser_->Choose(chain_.device_of_unit, &moves_, &random_);
    return moves_.Draw(chain_.device_of_unit, &random_).steps;
  }

  void KeepEdit(int64_t before_ns) {
    const auto& features = chooser_->features();
    chain_.edits = std::copy(features.begin(), features.end(), chain_.edits);
    const bool gained = before_ns < kOver && chain_.runtime_ns < before_ns;
    *chain_.edits++ = gained ? static_cast<float>(1 - static_cast<double>(chain_.runtime_ns) / before_ns) : 0.0f;
  }

  // False where the round is not of the order.
  bool TryShift(int64_t limit_ns) {
    if (!sequences_.has_value() || !random_.Chance(problem_.order_chance)) return false;
    Shift shift;
    if (!moves_.WaitsOf(chain_.device_of_unit).DrawShift(&random_, sequences_->wait(), &shift)) return false;
    sequences_->Move(shift, chain_.device_of_unit[problem_.orders[0].inits[shift.op].unit]);
    const int64_t runtime_ns = RuntimeWithin(limit_ns);
    if (runtime_ns > limit_ns) {
      sequences_->Undo();
    } else {
      Accept(runtime_ns);
    }
    return true;
  }

  void Try(const std::vector<Step>& steps, int64_t limit_ns) {
    for (const Step& step : steps) Move(step);
    if (sequences_.has_value()) sequences_->Move(steps, moves_.WaitsOf(chain_.device_of_unit), &random_);
    const int64_t runtime_ns = RuntimeWithin(limit_ns);
    if (runtime_ns > limit_ns) {
      for (const Step& step : steps) Move({step.unit, step.target, step.source});
      if (sequences_.has_value()) sequences_->Undo();
      return;
    }
    for (const Step& step : steps) chain_.device_of_unit[step.unit] = step.target;
    Accept(runtime_ns);
  }

  void Accept(int64_t runtime_ns) {
    chain_.runtime_ns = runtime_ns;
    moves_.Forget(&workspaces_[0].spans);
    if (chooser_.has_value()) chooser_->Forget();
    if (runtime_ns < chain_.best_runtime_ns) KeepBest();
  }

  void Move(const Step& step) {
    for (size_t o = 0; o < placed_.size(); ++o) {
      placed_[o].Move(problem_.orders[o], step.unit, step.source, step.target);
    }
  }

  void KeepBest() {
    chain_.best_runtime_ns = chain_.runtime_ns;
    std::copy_n(chain_.device_of_unit, problem_.moves.num_units, chain_.best_device_of_unit);
    if (sequences_.has_value()) sequences_->Write(chain_.best_priority_of_op);
  }

  // Summed over the orders, kOver above the limit. What the orders before took is not left for the next.
  int64_t RuntimeWithin(int64_t limit_ns) {
    int64_t runtime_ns = 0;
    for (size_t o = 0; o < problem_.orders.size(); ++o) {
      const int64_t left_ns = limit_ns == kOver ? kOver : limit_ns - runtime_ns;
      const int64_t taken_ns = SimulateWithin(problem_.orders[o], placed_[o], left_ns, problem_.capacity_bytes,
                                              problem_.fits_anywhere, sequences_.has_value(), &workspaces_[o]);
      if (taken_ns == kOver) return kOver;
      runtime_ns += taken_ns;
    }
    return runtime_ns;
  }

  const SearchProblem& problem_;
  Chain& chain_;
  Moves moves_;
  RandomBits random_;
  std::optional<EditChooser> chooser_;  // where moves are chosen, or kept
  std::vector<Workspace> workspaces_;  // for each order
  std::optional<Sequences> sequences_;  // where an order is searched
  std::vector<Placed> placed_;         // alike
};

}  // namespace

void Advance(const SearchProblem& problem, int64_t rounds, Chain* chain) {
  if (rounds > 0) Climber(problem, chain).Run(rounds);
}

}  // namespace tf_placer
