#pragma once

#include <cuda_runtime.h>

#include <utility>

#include "ops/cuda/context.h"
#include "ops/cuda/cuda_result.h"

namespace tandem::ops::cuda {

// Programmatic launches: a kernel may start while the one before it still runs, so that launching, loading
// weights and other work that needs no earlier result overlap with it.
//
// A kernel launched with launch_early calls wait_for_inputs() before it touches anything that an earlier
// kernel wrote or still reads; until then it may read weights only. let_next_start() says that the next
// kernel's blocks may take free multiprocessors; it promises nothing about results.
__device__ __forceinline__ void wait_for_inputs() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
__device__ __forceinline__ void let_next_start() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

struct Grid {
  dim3 blocks, threads;
  std::size_t shared_bytes = 0;
  unsigned cluster = 0;  // blocks along x that form a cluster; 0: no clusters, or as the kernel says
};

template <class... Parameters, class... Arguments>
[[nodiscard]] Result<void> launch_early(const Context& context, std::string_view what, void (*kernel)(Parameters...), const Grid& grid,
                                        Arguments&&... arguments) {
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = grid.cluster;
  attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid.blocks;
  config.blockDim = grid.threads;
  config.dynamicSmemBytes = grid.shared_bytes;
  config.stream = context.stream;
  config.attrs = attributes;
  config.numAttrs = grid.cluster > 0 ? 2 : 1;
  return checked(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...), what);
}

}  // namespace tandem::ops::cuda
