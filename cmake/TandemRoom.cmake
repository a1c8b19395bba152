# tandem_room(NAME DEPS library...)
#
# Makes from src/NAME:
#   tandem_NAME        every .cc below it that is not a test, bench or fuzz target
#   tandem_NAME_tests  every *_test.cc, one CTest test per GoogleTest test
#   one program per *_bench.cc, named like the file (built by the target `benches`)
# The *_fuzz.cc are built by the preset `fuzz` (tests/fuzz).
#
# A file whose name ends in _avx2, _avx512 (F, BW, VL, DQ), _avx512bf16 or _amx is compiled for
# that instruction set; its code may run only behind base/cpu_features.h.

set(TANDEM_FLAGS_avx2 -mavx2 -mfma -mf16c)
set(TANDEM_FLAGS_avx512 ${TANDEM_FLAGS_avx2} -mavx512f -mavx512bw -mavx512vl -mavx512dq)
set(TANDEM_FLAGS_avx512bf16 ${TANDEM_FLAGS_avx512} -mavx512bf16)
set(TANDEM_FLAGS_amx ${TANDEM_FLAGS_avx512bf16} -mamx-tile -mamx-bf16)

function(tandem_instruction_set_flags)
  foreach(file IN LISTS ARGN)
    if(file MATCHES "_(avx2|avx512|avx512bf16|amx)(_test|_bench)?\\.cc$")
      set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS "${TANDEM_FLAGS_${CMAKE_MATCH_1}}")
    endif()
  endforeach()
endfunction()

function(tandem_room name)
  cmake_parse_arguments(ROOM "" "" "DEPS;TEST_DEPS;EXCLUDE" ${ARGN})
  set(dir ${CMAKE_SOURCE_DIR}/src/${name})
  file(GLOB_RECURSE all CONFIGURE_DEPENDS ${dir}/*.cc)
  foreach(pattern IN LISTS ROOM_EXCLUDE)
    list(FILTER all EXCLUDE REGEX "${pattern}")
  endforeach()
  set(sources ${all})
  set(tests ${all})
  set(benches ${all})
  list(FILTER sources EXCLUDE REGEX "_(test|bench|fuzz)\\.cc$")
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER benches INCLUDE REGEX "_bench\\.cc$")
  tandem_instruction_set_flags(${all})

  if(sources)
    add_library(tandem_${name} STATIC ${sources})
    target_include_directories(tandem_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(tandem_${name} PUBLIC ${ROOM_DEPS} PRIVATE tandem_flags)
  else()
    add_library(tandem_${name} INTERFACE)
    target_include_directories(tandem_${name} INTERFACE ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(tandem_${name} INTERFACE ${ROOM_DEPS})
  endif()

  if(tests)
    add_executable(tandem_${name}_tests ${tests})
    target_link_libraries(tandem_${name}_tests PRIVATE tandem_${name} ${ROOM_TEST_DEPS}
                          tandem_flags GTest::gmock GTest::gtest_main rapidcheck)
    target_compile_definitions(tandem_${name}_tests PRIVATE TANDEM_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
    gtest_discover_tests(tandem_${name}_tests DISCOVERY_TIMEOUT 60
                         PROPERTIES TIMEOUT 600 LABELS "unit;${name}")
  endif()

  foreach(file IN LISTS benches)
    get_filename_component(bench ${file} NAME_WE)
    add_executable(${bench} EXCLUDE_FROM_ALL ${file})
    target_link_libraries(${bench} PRIVATE tandem_${name} tandem_flags benchmark::benchmark)
    add_dependencies(benches ${bench})
  endforeach()
endfunction()
