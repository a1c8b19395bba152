# The CUDA backend: libtandem_cuda.so, loaded only for --device cuda. Compute capability 9.0 with the
# instructions of sm_90a (wgmma, setmaxnreg).
set(CMAKE_CUDA_ARCHITECTURES 90a-real)
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
# CMake 3.25 knows no C++20 for nvcc and ignores the standard silently.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")

set(cuda_dir ${CMAKE_SOURCE_DIR}/src/ops/cuda)
file(GLOB cuda_sources CONFIGURE_DEPENDS ${cuda_dir}/*.cu ${cuda_dir}/*.cc)
set(cuda_tests ${cuda_sources})
list(FILTER cuda_tests INCLUDE REGEX "_test\\.(cu|cc)$")
# Those of several ranks need two devices and stand apart.
set(cuda_rank_tests ${cuda_tests})
list(FILTER cuda_rank_tests INCLUDE REGEX "/peer_[a-z_]*test\\.cc$")
list(FILTER cuda_tests EXCLUDE REGEX "/peer_[a-z_]*test\\.cc$")
set(cuda_benches ${cuda_sources})
list(FILTER cuda_benches INCLUDE REGEX "_bench\\.(cu|cc)$")
list(FILTER cuda_sources EXCLUDE REGEX "_(test|bench)\\.(cu|cc)$")

# The algorithm tables (R1.5) travel inside the library: a line of a raw string literal each file, cut where compilers
# limit one literal's length.
file(GLOB gemm_tables CONFIGURE_DEPENDS ${cuda_dir}/gemm_tables/*.txt)
set(gemm_table_literals "")
foreach(file IN LISTS gemm_tables)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  get_filename_component(table ${file} NAME)
  file(READ ${file} rest)
  string(LENGTH "${rest}" length)
  set(at 0)
  string(APPEND gemm_table_literals "    {\"${table}\",\n")
  while(at LESS length)
    string(SUBSTRING "${rest}" ${at} 12000 part)
    string(APPEND gemm_table_literals "R\"~(${part})~\"\n")
    math(EXPR at "${at} + 12000")
  endwhile()
  string(APPEND gemm_table_literals "    },\n")
endforeach()
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/gemm_tables.cc CONTENT
"#include \"ops/cuda/gemm_tables.h\"

#include <vector>

namespace tandem::ops::cuda {

std::span<const GemmTableFile> gemm_tables() {
  static const std::vector<GemmTableFile> tables = {
@gemm_table_literals@  };
  return tables;
}

}  // namespace tandem::ops::cuda
" @ONLY)

add_library(tandem_cuda SHARED ${cuda_sources} ${CMAKE_BINARY_DIR}/generated/gemm_tables.cc)
target_include_directories(tandem_cuda PUBLIC ${CMAKE_SOURCE_DIR}/src ${CUDAToolkit_INCLUDE_DIRS})
target_link_libraries(tandem_cuda PUBLIC tandem_ops CUDA::cudart PRIVATE tandem_flags CUDA::cublasLt)
set_target_properties(tandem_cuda PROPERTIES CUDA_STANDARD 20 LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
target_compile_options(tandem_cuda PRIVATE
  $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr --extended-lambda -diag-suppress=554 -lineinfo --compress-mode=size -Xcompiler=-Wall>)

if(cuda_tests)
  # Runs on a GPU machine only: gates/device.sh ops. Not a CTest test here.
  add_executable(tandem_cuda_tests ${cuda_tests})
  target_link_libraries(tandem_cuda_tests PRIVATE tandem_cuda GTest::gmock GTest::gtest_main)
  set_target_properties(tandem_cuda_tests PROPERTIES CUDA_STANDARD 20 RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
endif()
# gates/device.sh p1: communicators and ranks on two devices.
add_executable(tandem_cuda_rank_tests ${cuda_rank_tests} ${CMAKE_SOURCE_DIR}/src/executor/cuda_ranks_test.cc)
target_link_libraries(tandem_cuda_rank_tests PRIVATE tandem_executor tandem_cuda tandem_flags GTest::gmock GTest::gtest_main)
set_target_properties(tandem_cuda_rank_tests PROPERTIES CUDA_STANDARD 20 RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
foreach(file IN LISTS cuda_benches)
  get_filename_component(bench ${file} NAME_WE)
  add_executable(${bench} ${file})
  target_link_libraries(${bench} PRIVATE tandem_cuda)
  set_target_properties(${bench} PROPERTIES CUDA_STANDARD 20 RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
endforeach()
