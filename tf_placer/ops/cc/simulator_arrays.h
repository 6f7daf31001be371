// The arrays of one graph and one cluster, and what must hold of them. std only.
//
// Letters: N ops, U units, T tensors, E consumers of tensors, D devices.

#ifndef TF_PLACER_OPS_CC_SIMULATOR_ARRAYS_H_
#define TF_PLACER_OPS_CC_SIMULATOR_ARRAYS_H_

#include <cstdint>
#include <string>

namespace tf_placer {

// A device is a bit of a 64-bit mask.
constexpr int kMaxDevices = 64;

__extension__ typedef __int128 int128;

// Arrays of one graph and one cluster; they belong to the caller. Row-major.
struct SimulatorArrays {
  int32_t num_ops = 0;
  int32_t num_units = 0;
  int32_t num_tensors = 0;
  int32_t num_consumers = 0;
  int32_t num_devices = 0;
  const int32_t* unit_of_op = nullptr;         // [N]
  const int64_t* compute_ns = nullptr;         // [N, D], 0 = free
  const int32_t* priority = nullptr;           // [N], lower first
  const int32_t* tensor_producer = nullptr;    // [T], ascending
  const int64_t* tensor_bytes = nullptr;       // [T]
  const int32_t* alias_of_tensor = nullptr;    // [T] an input of the producer, whose memory it has there; itself, to stay; -1
  const int32_t* consumer_offset = nullptr;    // [T + 1]
  const int32_t* consumer_op = nullptr;        // [E], ascending within a tensor
  const int64_t* resident_bytes = nullptr;     // [U]
  const int32_t* streams = nullptr;            // [D]
  const bool* newest_first = nullptr;          // [D], the op that became ready last runs first
  const int64_t* join_ns = nullptr;            // [D], what the step takes longer when the device computes
  const int64_t* dispatch_ns = nullptr;        // [D], time of the host for each op that takes time there
  const int64_t* link_latency_ns = nullptr;    // [D, D], the diagonal is not read
  const int64_t* link_bytes_per_s = nullptr;   // [D, D], the diagonal is not read
  const int32_t* channel_of_link = nullptr;    // [D, D], in [0, D * D) off the diagonal
  const int64_t* link_tensor_ns = nullptr;     // [D, D], from the end of a transfer until its tensor is there
  const int64_t* link_send_ns = nullptr;              // [D, D], and so on; the diagonal is not read
  const int64_t* link_send_ps_per_byte = nullptr;
  const int64_t* link_receive_ns = nullptr;
  const int64_t* link_receive_ps_per_byte = nullptr;
  const bool* allowed = nullptr;  // [U, D] where a unit may be, or anywhere: makes bounds tighter, no simulation differ
};

// One line about an entry of an array.
std::string At(const char* what, int64_t position, const std::string& problem);

// One line that says what is wrong with the arrays, or "" when nothing is. After "" no simulation can
// read out of bounds, wait for ever or overflow.
std::string CheckArrays(const SimulatorArrays& arrays);

// Time that `bytes` occupy their channel: latency + ceil(bytes / bandwidth), exactly. The arguments must
// have passed CheckArrays.
int64_t TransferNs(int64_t latency_ns, int64_t bytes, int64_t bytes_per_s);

// Time of a device that sending or receiving `bytes` takes: fixed + ceil(bytes * ps_per_byte / 1000).
int64_t ChoreNs(int64_t fixed_ns, int64_t bytes, int64_t ps_per_byte);

}  // namespace tf_placer

#endif  // TF_PLACER_OPS_CC_SIMULATOR_ARRAYS_H_
