// Has TensorFlow keep what XLA compiles in a folder, in a process whose flags were read already.

#include <dlfcn.h>

#include "tensorflow/compiler/jit/flags.h"

// Returns 0 if it is kept there, or where the flags said before; 1 if this TensorFlow lacks XLA's flags.
// XLA reads the folder when it first compiles in the process.
extern "C" int TfPlacerKeepCompilations(const char* folder, const char* device_types) {
  void* library = dlopen("libtensorflow_cc.so.2", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return 1;
  using Getter = tensorflow::MarkForCompilationPassFlags* (*)();
  const auto flags_of = reinterpret_cast<Getter>(
      dlsym(library, "_ZN10tensorflow30GetMarkForCompilationPassFlagsEv"));
  if (flags_of == nullptr) return 1;
  tensorflow::MarkForCompilationPassFlags* flags = flags_of();
  if (flags->tf_xla_persistent_cache_directory.empty()) {
    flags->tf_xla_persistent_cache_directory = folder;
    flags->tf_xla_persistent_cache_device_types = device_types;
  }
  return 0;
}
