# Build options and the flags that every target shares.

set(MEGATRAIN_CUDA "AUTO" CACHE STRING "Build the CUDA device: AUTO (when nvcc is found), ON or OFF")
set_property(CACHE MEGATRAIN_CUDA PROPERTY STRINGS AUTO ON OFF)
set(MEGATRAIN_GLOO "AUTO" CACHE STRING "Several processes on CPUs: AUTO (when Gloo is found), ON or OFF")
set_property(CACHE MEGATRAIN_GLOO PROPERTY STRINGS AUTO ON OFF)
set(MEGATRAIN_NCCL "AUTO" CACHE STRING "Several processes on GPUs: AUTO (when CUDA and NCCL are found), ON or OFF")
set_property(CACHE MEGATRAIN_NCCL PROPERTY STRINGS AUTO ON OFF)
set(MEGATRAIN_SANITIZE "" CACHE STRING "Sanitizers, as -fsanitize= takes them: address,undefined or thread")
option(MEGATRAIN_BUILD_TESTS "Build the tests" ON)
option(MEGATRAIN_FUZZ "Build the fuzz targets (clang only)" OFF)
option(MEGATRAIN_WERROR "Treat warnings as errors" OFF)
option(MEGATRAIN_BUNDLE_CUDA "Install the CUDA libraries next to the program" OFF)

if(NOT MEGATRAIN_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "MEGATRAIN_CUDA is '${MEGATRAIN_CUDA}'; it takes AUTO, ON or OFF.")
endif()
if(NOT MEGATRAIN_GLOO MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "MEGATRAIN_GLOO is '${MEGATRAIN_GLOO}'; it takes AUTO, ON or OFF.")
endif()
if(NOT MEGATRAIN_NCCL MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "MEGATRAIN_NCCL is '${MEGATRAIN_NCCL}'; it takes AUTO, ON or OFF.")
endif()
if(MEGATRAIN_FUZZ AND NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "MEGATRAIN_FUZZ needs clang (libFuzzer); the compiler is "
                      "${CMAKE_CXX_COMPILER_ID}. Use the preset 'fuzz'.")
endif()
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")

# Flags of our own C++ targets. Contraction is off everywhere: a fused multiply-add is written
# where it is meant, so that bits do not depend on the compiler's mood.
add_library(megatrain_flags INTERFACE)
target_compile_options(megatrain_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wconversion;-Wno-sign-conversion;-ffp-contract=off>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${MEGATRAIN_WERROR}>>:-Werror>)
if(MEGATRAIN_SANITIZE)
  target_compile_options(megatrain_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${MEGATRAIN_SANITIZE};-fno-omit-frame-pointer;-fno-sanitize-recover=all>)
  target_link_options(megatrain_flags INTERFACE -fsanitize=${MEGATRAIN_SANITIZE})
endif()
if(MEGATRAIN_FUZZ)
  target_compile_options(megatrain_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=fuzzer-no-link>)
  # The usual name for "checksums are not compared": no fuzzer guesses them.
  target_compile_definitions(megatrain_flags INTERFACE FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION)
endif()
