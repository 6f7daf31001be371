// All that includes TensorFlow's headers, as one translation unit: reading them takes longer than compiling the ops.

#include "simulator_tensors.inc"

#include "compilations.inc"
#include "list_policy_kernel.inc"
#include "list_policy_ops.inc"
#include "local_search_kernel.inc"
#include "local_search_ops.inc"
#include "resource_kernel.inc"
#include "resource_ops.inc"
#include "simulator_kernel.inc"
#include "simulator_ops.inc"
