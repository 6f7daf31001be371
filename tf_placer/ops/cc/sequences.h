// In which order the devices take their ops: what a chain of local search decides beside devices. std only.

#ifndef TF_PLACER_OPS_CC_SEQUENCES_H_
#define TF_PLACER_OPS_CC_SEQUENCES_H_

#include <cstdint>
#include <vector>

#include "moves.h"
#include "random_bits.h"
#include "simulation_plan.h"
#include "waits.h"
#include "workspace.h"

namespace tf_placer {

// The ops of each device that take time there, the first first. Simulations read them in the workspaces.
class Sequences {
 public:
  // By priority [N]. A device waits for the next of its ops where one of them is below 0, for all of them then. The plan
  // and the workspaces, made for plans with an order, must outlive this.
  Sequences(const SimulationPlan& plan, const int32_t* device_of_unit, const int32_t* priority_of_op,
            std::vector<Workspace>* workspaces);

  // Whether a device waits for its next op, and does not take what is ready instead.
  bool wait() const { return wait_; }

  // Moves the ops of units to where they would begin as they do now, in the step that was read; a single op at random
  // where it might.
  void Move(const std::vector<Step>& steps, const Waits& step, RandomBits* random);

  // Moves an op within its device.
  void Move(const Shift& shift, int32_t device);

  // Takes the last move back.
  void Undo();

  // Priorities [N] that say it all.
  void Write(int32_t* priority_of_op) const;

 private:
  void Keep(int32_t device);
  void Renumber(int32_t device);
  void Insert(int32_t op, int32_t device, const Waits& step, RandomBits* random);

  const SimulationPlan& plan_;
  std::vector<Workspace>& workspaces_;
  bool wait_ = false;
  std::vector<std::vector<int32_t>> ops_, before_;  // [D], and before the last move where that changed them
  std::vector<int32_t> changed_;                    // devices
  std::vector<int32_t> target_;                     // [M] where an op goes, -1 for nowhere
  std::vector<int32_t> moved_;                      // ops
};

}  // namespace tf_placer

#endif  // TF_PLACER_OPS_CC_SEQUENCES_H_
